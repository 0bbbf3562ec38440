# Keys in pages and behind padding in JAX: jitted, mapped and sharded calls, and what is refused.
# REQUIRES: python-package, jax
# RUN: %flashattn_python %s

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import unittest  # noqa: E402

import flashattn  # noqa: E402
import flashattn.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from flashattn import FlashAttnError, UnsupportedError, causal  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

B, P, S, PAGES, H, G, D = 2, 4, 8, 11, 4, 2, 16


def attend(q, k, v, table, lengths, **options):
    return fj.attention(q, k, v, page_table=table, kv_len=lengths, layout="bshd", mask=causal, **options)


class PagedJaxTest(unittest.TestCase):
    def setUp(self):
        generator = numpy.random.default_rng(2)
        self.q = generator.standard_normal((B, 3, H, D), numpy.float32)
        self.k, self.v = (generator.standard_normal((PAGES, S, G, D), numpy.float32) for _ in "kv")
        self.table = generator.permutation(PAGES)[: B * P].reshape(B, P).astype(numpy.int32)
        self.lengths = numpy.array([30, 9], numpy.int32)
        self.given = self.q, self.k, self.v, self.table, self.lengths
        self.wanted = flashattn.attention(
            *self.given[:3], page_table=self.table, kv_len=self.lengths, layout="bshd", mask=causal
        )

    def near(self, found, wanted):
        numpy.testing.assert_allclose(found, wanted, atol=1e-5)

    def test_ways_of_calling(self):
        self.near(attend(*self.given), self.wanted)
        self.near(jax.jit(attend)(*self.given), self.wanted)
        self.near(attend(*self.given, device="model:sm_90a"), self.wanted)
        packed = fj.attention(
            self.q.reshape(6, H, D), self.k, self.v, page_table=self.table, kv_len=self.lengths, mask=causal,
            layout="thd", cu_seqlens_q=numpy.array([0, 3, 6], numpy.int32),
        )  # fmt: skip
        self.near(packed.reshape(self.wanted.shape), self.wanted)
        index = numpy.array([[5], [3]], numpy.int32)
        options = {"kv_len": numpy.array([8, 5], numpy.int32), "layout": "bshd"}
        slots = fj.attention(self.q, self.k, self.v, page_table=index, **options)
        self.near(slots, fj.attention(self.q, self.k[index[:, 0]], self.v[index[:, 0]], **options))

    def test_padding(self):
        padding = numpy.array([1, 7], numpy.int32)
        found = fj.attention(self.q, self.k[:2], self.v[:2], leftpad_k=padding, layout="bshd")
        self.near(found, flashattn.attention(self.q, self.k[:2], self.v[:2], leftpad_k=padding, layout="bshd"))
        mapped = jax.vmap(lambda q, pad: fj.attention(q, self.k[:2], self.v[:2], leftpad_k=pad, layout="bshd"))
        both = mapped(jnp.stack([self.q, self.q]), jnp.stack([padding, padding * 0]))
        self.near(both[0], found)
        self.near(both[1], fj.attention(self.q, self.k[:2], self.v[:2], layout="bshd"))

    def test_mapped(self):
        queries, tables = jnp.stack([self.q, 2 * self.q]), jnp.stack([self.table, self.table[::-1]])
        found = jax.vmap(attend, in_axes=(0, None, None, 0, None))(queries, *self.given[1:3], tables, self.lengths)
        self.near(found[0], self.wanted)
        self.near(found[1], attend(queries[1], *self.given[1:3], tables[1], self.lengths))

    def test_sharded(self):
        mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
        with jax.set_mesh(mesh):
            split = NamedSharding(mesh, PartitionSpec("x"))
            q, table, lengths = (jax.device_put(x, split) for x in (self.q, self.table, self.lengths))
            found = attend(q, self.k, self.v, table, lengths)
            self.assertEqual(jax.typeof(found).sharding.spec[0], "x")
            self.near(found, self.wanted)

    def test_errors(self):
        with self.assertRaisesRegex(
            UnsupportedError, "^expected no gradients with page_table but got an input that requires one"
        ):
            jax.grad(lambda q: attend(q, *self.given[1:]).sum())(self.q)
        with self.assertRaisesRegex(
            UnsupportedError, "^expected no gradients with leftpad_k but got an input that requires one"
        ):
            jax.grad(lambda q: fj.attention(q, q, q, leftpad_k=self.lengths).sum())(self.q)
        for message, call in (
            ("expected kv_len with page_table but got None",
             lambda: fj.attention(*self.given[:3], page_table=self.table, layout="bshd")),
            ("expected batch size of 'page_table' to be 2 as in 'q' but got 1",
             lambda: attend(*self.given[:3], self.table[:1], self.lengths)),
            ("expected 'page_table' with element type i32 but got f32",
             lambda: attend(*self.given[:3], jnp.ones((B, P)), self.lengths)),
            ("expected no bias with page_table but got one", lambda: attend(*self.given, bias=jnp.ones((3, 32)))),
            ("expected 'page_table' of rank 2 but got rank 1",
             lambda: attend(*self.given[:3], self.table[0], self.lengths)),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaises(FlashAttnError) as caught:
                call()
            self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
