# Packed sequences and lengths of queries in jax: jitted, differentiated, mapped and sharded by heads, each
# against calls of the package on NumPy.
# REQUIRES: python-package, jax
# RUN: env JAX_PLATFORMS=cpu %flashattn_python %s

import os
import unittest

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import AxisType, PartitionSpec

import flashattn
import flashattn.jax as fj

CU_Q = numpy.array([1, 6, 6, 13], numpy.int32)
CU_K = numpy.array([0, 3, 9, 20], numpy.int32)
STARTS = {"cu_seqlens_q": CU_Q, "cu_seqlens_k": CU_K}


def make(seed, *shape):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32)


Q, K, V = make(1, 15, 4, 16), make(2, 22, 2, 16), make(3, 22, 2, 24)
DO, D_LSE, SINKS = make(4, 15, 4, 24), make(5, 4, 15), make(6, 4)


def near(found, wanted):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        numpy.testing.assert_allclose(x, y, rtol=3e-5, atol=3e-5)


class SequencesTest(unittest.TestCase):
    def test_layouts(self):
        turns = {
            "thd": lambda x: x,
            "bshd": lambda x: x[None],
            "bhsd": lambda x: x.swapaxes(0, 1)[None],
        }
        for layout, turn in turns.items():
            with self.subTest(layout):
                q, k, v, do = map(turn, (Q, K, V, DO))
                d_lse = D_LSE if layout == "thd" else D_LSE[None]
                options = {"layout": layout, "mask": flashattn.causal}
                o, lse = flashattn.attention(q, k, v, return_lse=True, sink_logits=SINKS, **STARTS, **options)
                gradients = flashattn.attention_backward(
                    q, k, v, o, lse, do, d_lse=d_lse, sink_logits=SINKS, return_d_sink_logits=True, **STARTS,
                    **options,
                )  # fmt: skip

                @jax.jit
                def call(q, k, v, sinks, starts):
                    def attend(*rows):
                        return fj.attention(
                            *rows[:3], sink_logits=rows[3], return_lse=True, **starts, **options
                        )

                    out, pull = jax.vjp(attend, q, k, v, sinks)
                    return out, pull((do, d_lse))

                near(call(q, k, v, SINKS, STARTS), ((o, lse), gradients))

    def test_lengths(self):
        k, v = make(2, 3, 9, 2, 16), make(3, 3, 9, 2, 24)
        lengths = {"q_len": numpy.array([2, 0, 7], numpy.int32), "kv_len": numpy.array([9, 4, 5], numpy.int32)}
        options = {"layout": "thd", "cu_seqlens_q": CU_Q, "mask": flashattn.causal}
        near(fj.attention(Q, k, v, **lengths, **options), flashattn.attention(Q, k, v, **lengths, **options))

    def test_vmap(self):
        many = numpy.stack([CU_Q, numpy.array([0, 2, 9, 15], numpy.int32)])
        found = jax.vmap(lambda q, s: fj.attention(q, K, V, layout="thd", cu_seqlens_q=s, cu_seqlens_k=CU_K))(
            numpy.stack([Q, 2 * Q]), many
        )
        for one, q, starts in zip(found, (Q, 2 * Q), many):
            near(one, flashattn.attention(q, K, V, layout="thd", cu_seqlens_q=starts, cu_seqlens_k=CU_K))
        row, lengths = make(7, 2, 2, 6, 8), numpy.array([[3, 6], [0, 2]], numpy.int32)
        found = jax.vmap(lambda n: fj.attention(row, row, row, q_len=n))(lengths)
        for one, n in zip(found, lengths):
            near(one, flashattn.attention(row, row, row, q_len=n))

    def test_sharded_heads(self):
        mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
        expected = flashattn.attention(Q, K, V, layout="thd", mask=flashattn.causal, **STARTS)
        with jax.set_mesh(mesh):
            split = jax.NamedSharding(mesh, PartitionSpec(None, "x", None))
            q, k, v = (jax.device_put(x, split) for x in (Q, K, V))
            call = lambda *rows: fj.attention(*rows, layout="thd", mask=flashattn.causal, **STARTS)  # noqa: E731
            found = jax.jit(call)(q, k, v)
            self.assertEqual(jax.typeof(found).sharding.spec[1], "x")
            near(found, expected)
            jax.grad(lambda *rows: call(*rows).sum())(q, k, v)

    def test_messages(self):
        cases = (
            ({"cu_seqlens_q": None}, "expected cu_seqlens_q with layout thd but got None"),
            ({"q": Q[None]}, "expected 'q' of rank 3 but got rank 4"),
            ({"cu_seqlens_k": None}, "expected 'k' of rank 4 but got rank 3"),
            ({"bias": make(0, 4, 1, 1)}, "expected no bias with cu_seqlens_q but got one"),
            ({"cu_seqlens_q": CU_Q[1:]}, "expected 3 starts in 'cu_seqlens_k', as in 'cu_seqlens_q', but got 4"),
            ({"cu_seqlens_q": make(0, 4)}, "expected 'cu_seqlens_q' with element type i32 but got f32"),
            ({"q": Q[None], "k": K[None], "v": jnp.stack([V, V]), "layout": "bshd"},
             "expected batch size of 'v' to be 1, as its sequences are packed, but got 2"),
        )  # fmt: skip
        for given, message in cases:
            with self.subTest(message=message):
                options = {"q": Q, "k": K, "v": V, "layout": "thd", **STARTS, **given}
                rows = [options.pop(name) for name in "qkv"]
                with self.assertRaises(flashattn.ArgumentError) as caught:
                    fj.attention(*rows, **options)
                self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
