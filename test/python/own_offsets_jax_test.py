# offset as an array with JAX: jit, grad and vmap, against attention in plain operations.
# REQUIRES: python-package, jax
# RUN: %flashattn_python %s

import unittest

import jax
import jax.numpy as jnp
import numpy
from flashattn import causal
from flashattn.jax import attention


def attend(q, k, v, offsets):
    return attention(q, k, v, mask=causal, offset=offsets)


def reference(q, k, v, offsets):
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k, precision="highest") * q.shape[3] ** -0.5
    p = offsets[:, None, None, None] + jnp.arange(q.shape[2])[:, None]
    scores = jnp.where(p < jnp.arange(k.shape[2]), -jnp.inf, scores)
    return jnp.einsum("bhnm,bhmd->bhnd", jax.nn.softmax(scores, axis=-1), v, precision="highest")


class OwnOffsets(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(5)
        self.rows = [jnp.asarray(random.standard_normal((2, 3, n, 16)), jnp.float32) for n in (20, 40, 40)]
        self.offsets = jnp.asarray([0, 19], jnp.int32)

    def near(self, found, wanted):
        numpy.testing.assert_allclose(found, wanted, atol=2e-5, rtol=2e-5)

    def test_jit(self):
        compiled = jax.jit(attend)
        for offsets in (self.offsets, self.offsets[::-1]):
            self.near(attend(*self.rows, offsets), reference(*self.rows, offsets))
            self.near(compiled(*self.rows, offsets), reference(*self.rows, offsets))
        self.assertEqual(compiled._cache_size(), 1)

    def test_gradients(self):
        found, wanted = (
            jax.grad(lambda rows: (function(*rows, self.offsets) ** 2).sum())(self.rows)
            for function in (attend, reference)
        )
        for x, y in zip(found, wanted):
            self.near(x, y)

    def test_vmap(self):
        q, k, v = self.rows
        queries, offsets = jnp.stack((q, 2 * q)), jnp.stack((self.offsets, self.offsets + 3))
        for dims, given in (((0, None, None, None), self.offsets), ((0, None, None, 0), offsets)):
            found, wanted = (jax.vmap(function, dims)(queries, k, v, given) for function in (attend, reference))
            self.near(found, wanted)


if __name__ == "__main__":
    unittest.main()
