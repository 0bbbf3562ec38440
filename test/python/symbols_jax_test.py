# Masks that read tensors (rules Y1 and Y2) with JAX: jit with traced arrays, grad, vmap, shard_map and sharded arrays,
# against float64.
# REQUIRES: python-package, jax
# RUN: env JAX_PLATFORMS=cpu %flashattn_python %s

import os
import sys
import unittest

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy
from flashattn import ArgumentError, affine_set, causal, masks
from flashattn.jax import attention
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "Inputs"))
from symbol_masks import BATCH, HEADS, KV_HEADS, named_cases, set_cases  # noqa: E402

N = 40


def reference(q, k, v, seen):
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k, precision="highest") * q.shape[3] ** -0.5
    sees = seen.any(-1, keepdims=True)
    scores = jnp.where(sees, jnp.where(seen, scores, -jnp.inf), 0.0)
    weights = jnp.where(sees, jax.nn.softmax(scores, axis=-1), 0.0)
    return jnp.einsum("bhnm,bhmd->bhnd", weights, v, precision="highest")


def mask_of(n, start, end):
    prefix = affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[n])
    first = affine_set("(p, k)[nq, nk, start] : (k - start >= 0)", per_query=[start])
    last = affine_set("(p, k)[nq, nk, end] : (end - 1 - p >= 0)", per_key=[end])
    return (prefix | first & last) & causal


def attend(q, k, v, n, start, end):
    return attention(q, k, v, mask=mask_of(n, start, end))


def wanted_of(q, k, v, n, start, end):
    p, j = jnp.arange(N)[:, None], jnp.arange(N)
    n = n.reshape(-1, 1, 1, 1)
    start, end = (jnp.broadcast_to(x, (BATCH, N))[:, None] for x in (start, end))
    seen = ((j < n) | ((j >= start[..., None]) & (p < end[..., None, :]))) & (j <= p)
    return reference(q, k, v, seen)


class SymbolsJaxTest(unittest.TestCase):
    def setUp(self):
        self.generator = numpy.random.default_rng(5)
        self.symbols = (
            jnp.asarray([30, 5]),
            jnp.maximum(jnp.arange(N) - 15, 0),
            jnp.tile(jnp.minimum(jnp.arange(N) + 20, N), (BATCH, 1)),
        )

    def draw(self, nq=N, nk=N, *batch):
        shapes = (HEADS, nq), (KV_HEADS, nk), (KV_HEADS, nk)
        return [jnp.asarray(self.generator.standard_normal((*batch, BATCH, *x, 16)), jnp.float32) for x in shapes]

    def near(self, found, wanted):
        numpy.testing.assert_allclose(found, wanted, atol=5e-5, rtol=5e-5)

    def check(self, function, wanted, rows):
        """Values and gradients, in jit."""
        results = []
        for call in (function, wanted):
            loss = lambda rows, call=call: ((x := call(*rows)) ** 2).sum()  # noqa: E731
            results.append((jax.jit(call)(*rows), *jax.jit(jax.grad(loss))(rows)))
        for one, other in zip(*results):
            self.near(one, other)

    def test_masks(self):
        generator = numpy.random.default_rng(13)
        cases = {**set_cases(generator), **named_cases(generator)}
        for name, case in list(cases.items())[::3]:
            with self.subTest(name):
                seen = jnp.asarray(case.seen())
                call = lambda *rows: attention(*rows, mask=case.make(jnp.asarray), align="top_left")  # noqa: E731
                self.check(call, lambda *rows: reference(*rows, seen), self.draw(case.nq, case.nk))

    def test_traced_arrays(self):
        compiled = jax.jit(lambda *given: attend(*given))
        for add in (0, 3):
            symbols = tuple(x + add for x in self.symbols)
            rows = self.draw()
            self.near(attend(*rows, *symbols), wanted_of(*rows, *symbols))
            self.near(compiled(*rows, *symbols), wanted_of(*rows, *symbols))
            self.check(lambda *rows: attend(*rows, *symbols), lambda *rows: wanted_of(*rows, *symbols), rows)
        self.assertEqual(compiled._cache_size(), 1)
        ids = jnp.asarray([0] * 10 + [1] * 30)
        whole = jax.jit(lambda q, k, v, ids: attention(q, k, v, mask=masks.documents(ids, causal=True)))
        for ids in (ids, ids[::-1], jnp.tile(ids, (BATCH, 1))):
            p = jnp.arange(N)
            same = jnp.broadcast_to(ids[..., None] == ids[..., None, :], (BATCH, N, N))[:, None]
            self.near(whole(*rows, ids), reference(*rows, same & (p <= p[:, None])))

    def test_vmap(self):
        rows = self.draw(N, N, 3)
        own = [jnp.stack([x + i for i in range(3)]) for x in self.symbols]
        for places in ((None, None, None), (0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0)):
            with self.subTest(places=places):
                given = [x if at is None else y for x, y, at in zip(self.symbols, own, places)]
                dims = (0, 0, 0, *places)
                found, wanted = (jax.vmap(f, dims)(*rows, *given) for f in (attend, wanted_of))
                self.near(found, wanted)
        q, k, v = (x[0] for x in rows)
        for function in (attend, jax.jit(attend)):
            found, wanted = (
                jax.vmap(f, (None, None, None, 0, None, None))(q, k, v, own[0], *self.symbols[1:])
                for f in (function, wanted_of)
            )
            self.near(found, wanted)
        one = own[0][:, 1]  # a number for all batch elements of a call
        found, wanted = (jax.vmap(f)(*rows, one, *own[1:]) for f in (attend, wanted_of))
        self.near(found, wanted)

        def loss(f, q, *given):
            return (f(q, *given) ** 2).sum()

        found, wanted = (
            jax.vmap(jax.grad(lambda q, *x, f=f: loss(f, q, *x)))(*rows, *own) for f in (attend, wanted_of)
        )
        self.near(found, wanted)

    def test_packed(self):
        q, k, v = self.draw()
        starts = jnp.asarray([0, N, 2 * N], jnp.int32)
        ids = jnp.asarray(self.generator.integers(0, 3, (BATCH, N)))
        make = lambda ids: causal & affine_set(  # noqa: E731
            "(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[ids], per_key=[ids]
        )
        wanted = attention(q, k, v, mask=make(ids)).swapaxes(1, 2).reshape(2 * N, HEADS, 16)
        packed = [x.swapaxes(1, 2).reshape(2 * N, -1, 16) for x in (q, k, v)]
        options = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
        for rows in (ids.reshape(-1), ids.reshape(1, -1)):
            self.near(attention(*packed, mask=make(rows), layout="thd", **options), wanted)
            found = attention(*(x[None] for x in packed), mask=make(rows), layout="bshd", **options)
            self.near(found[0], wanted)

    def test_devices(self):
        rows = self.draw()
        mesh = Mesh(numpy.array(jax.devices()[:2]), ("x",), axis_types=(AxisType.Explicit,))
        wanted = wanted_of(*rows, *self.symbols)
        of_heads = jnp.broadcast_to(self.symbols[1], (BATCH, HEADS, N)), jnp.broadcast_to(
            self.symbols[2][:, None], (BATCH, KV_HEADS, N))  # fmt: skip
        place = NamedSharding(mesh, PartitionSpec("x"))
        split = lambda *arrays: [jax.device_put(x, place) for x in arrays]  # noqa: E731
        for spec, given in (
            (PartitionSpec("x"), self.symbols), (PartitionSpec(None, "x"), self.symbols),
            (PartitionSpec("x"), (self.symbols[0], *of_heads)),
            (PartitionSpec(None, "x"), (self.symbols[0], *of_heads)),
        ):  # fmt: skip
            with jax.set_mesh(mesh):
                placed = [jax.device_put(x, NamedSharding(mesh, spec)) for x in rows]
                self.near(jax.jit(attend)(*placed, *given), wanted)
        with jax.set_mesh(mesh):
            n, _, end = self.symbols
            self.near(jax.jit(attend)(*split(*rows, n), self.symbols[1], *split(end)), wanted)
        mesh = Mesh(numpy.array(jax.devices()[:2]), ("x",))
        places = (*[PartitionSpec("x")] * 4, PartitionSpec(), PartitionSpec("x"))
        call = jax.shard_map(attend, mesh=mesh, in_specs=places, out_specs=PartitionSpec("x"))
        self.near(call(*rows, *self.symbols), wanted)

    def test_refused(self):
        rows = self.draw()
        for message, symbols in (
            ("expected batch size of 'per_sequence0' to be 1 or 2 but got 3", (jnp.zeros(3, int), *self.symbols[1:])),
            ("expected per_query\\[0\\] to be a tensor of integers but got one of f32",
             (self.symbols[0], jnp.zeros(N), self.symbols[2])),
            ("expected key length of 'per_key0' to be 40 but got 39", (*self.symbols[:2], self.symbols[2][:, 1:])),
        ):  # fmt: skip
            with self.assertRaisesRegex(ArgumentError, message):
                jax.jit(attend)(*rows, *symbols)


if __name__ == "__main__":
    unittest.main()
