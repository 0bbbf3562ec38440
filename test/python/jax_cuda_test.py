# On GPUs that jax sees: the tests of jax_test.py and jax_transforms_test.py there, shards on two of them
# where there are two; and shapes that Hopper's programs with warp specialization take.
# REQUIRES: python-package, cuda, jax
# RUN: %flashattn_python %s

import sys
import unittest

import jax

try:
    jax.devices("cuda")
except RuntimeError as error:
    print(f"SKIP: {error}")
    sys.exit(0)

import itertools

import jax.numpy as jnp
import numpy

import flashattn
import flashattn.jax as fj
from jax_test import DTYPES, Case, GridTest, jitted, make, naive, own, wide  # noqa: F401
from jax_transforms_test import FeatureTest, MapTest, ProgramTest  # noqa: F401


class CUDATest(Case):
    def test_platform(self):
        x = jnp.ones((1, 1, 64, 64), jnp.float16)
        self.assertEqual(fj.attention(x, x, x).device.platform, "gpu")

    def test_head_dimensions(self):
        for d, (short, dtype), is_causal in itertools.product(
            (64, 128), DTYPES.items(), (False, True)
        ):
            shapes = {"query": (2, 300, 4, d), "key": (2, 300, 2, d), "value": (2, 300, 2, d)}
            arrays = {n: make(i, *s, dtype=dtype) for i, (n, s) in enumerate(shapes.items())}
            weights = make(6, 2, 300, 4, d, dtype=dtype)
            with self.subTest(d=d, dtype=short, is_causal=is_causal):
                options = {"is_causal": is_causal}
                key = tuple(options.items())
                found = jitted(fj.dot_product_attention, key)(arrays, {}, weights)
                exact = jitted(own, key)(wide(arrays), {}, wide(weights))
                self.near(found, exact, naive(short, arrays, {}, weights, options), short)

    def test_decoding_in_parts(self):
        """Few queries read the keys in parts, with memory that a launch allocates."""
        q, k, v = (make(i, 3, h, n, 128, dtype=jnp.bfloat16) for i, h, n in ((1, 8, 1), (2, 2, 3000), (3, 2, 3000)))  # fmt: skip
        lengths = jnp.array([3000, 1, 777], jnp.int32)
        step = jax.jit(lambda *x: fj.attention(*x[:3], mask=flashattn.causal, kv_len=x[3]))
        wanted = flashattn.attention(
            *(numpy.asarray(x.astype(jnp.float32)) for x in (q, k, v)),
            mask=flashattn.causal, kv_len=numpy.asarray(lengths),
        )  # fmt: skip
        for _ in range(3):
            found = numpy.asarray(step(q, k, v, lengths).astype(jnp.float32))
            self.assertLessEqual(abs(found - wanted).max(), 2e-2)


if __name__ == "__main__":
    unittest.main()
