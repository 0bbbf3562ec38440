# Keys and values of 8 bits in JAX: jitted, differentiated, mapped and sharded calls, and what is refused.
# REQUIRES: python-package, jax
# RUN: env JAX_PLATFORMS=cpu %flashattn_python %s

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import unittest  # noqa: E402

import flashattn  # noqa: E402
import flashattn.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy  # noqa: E402
from flashattn import ArgumentError, UnsupportedError, causal, quantize  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402


def make(seed, *shape):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32)


def values_of(x, scale):
    blocks = scale.shape[-1]
    split = x.astype(numpy.float32).reshape(*x.shape[:-1], blocks, -1) * scale[..., None]
    return split.reshape(x.shape)


def near(found, wanted, bound=2e-5):
    numpy.testing.assert_allclose(numpy.asarray(found), numpy.asarray(wanted), atol=bound, rtol=bound)


def attend(q, k, v, k_scale=None, v_scale=None, **options):
    return fj.attention(q, k, v, k_scale=k_scale, v_scale=v_scale, mask=causal, **options)


class FP8JaxTest(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = make(1, 2, 4, 5, 32), make(2, 2, 2, 9, 32), make(3, 2, 2, 9, 32)
        self.k8, self.k_scale = quantize(self.k, per="row", columns=16)
        self.v8, self.v_scale = quantize(self.v, "int8", per="head")
        self.given = self.q, self.k8, self.v8, self.k_scale, self.v_scale
        self.dense = values_of(self.k8, self.k_scale), values_of(self.v8, self.v_scale)
        self.wanted = flashattn.attention(self.q, *self.dense, mask=causal)

    def test_quantize(self):
        for dtype in ("float8_e4m3fn", "float8_e5m2", "int8"):
            for x in (self.k, self.k.astype(ml_dtypes.bfloat16)):
                found, scale = quantize(jnp.asarray(x), dtype, per="row", columns=16)
                other, scales = quantize(x, dtype, per="row", columns=16)
                self.assertIsInstance(found, jax.Array)
                near(scale, scales, 1e-6)
                # XLA may divide in another way, which shows where a number is half between two others.
                differ = numpy.asarray(found).view(numpy.uint8) != other.view(numpy.uint8)
                self.assertLess(differ.mean(), 0.01)
        jitted = jax.jit(lambda x: quantize(x, per="head"))
        near(jitted(self.k)[1], quantize(self.k, per="head")[1], 1e-6)

    def test_ways_of_calling(self):
        near(attend(*self.given), self.wanted)
        near(jax.jit(attend)(*self.given), self.wanted)
        near(attend(*(jnp.asarray(x) for x in self.given)), self.wanted)
        half = flashattn.attention(self.q, self.k8, self.v8, k_scale=0.5, v_scale=2.0, mask=causal)
        for k_scale, v_scale in ((0.5, 2), (jnp.float32(0.5), jnp.full((2, 2), 2.0)), (0.5, [[2.0, 2.0]])):
            near(jax.jit(lambda q: attend(q, self.k8, self.v8, k_scale, v_scale))(self.q), half, 1e-4)
        e5m2 = self.k.astype(ml_dtypes.float8_e5m2)
        near(attend(self.q, e5m2, self.v), flashattn.attention(self.q, e5m2, self.v, mask=causal))

    def test_packed(self):
        starts = numpy.array([0, 4, 9], numpy.int32)
        q, k8, scale = make(4, 9, 4, 32), self.k8[0].swapaxes(0, 1), self.k_scale[0].swapaxes(0, 1)
        options = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "layout": "thd"}
        for k_scale in (scale, numpy.array([[0.5, 1.0], [2.0, 3.0]], numpy.float32)):
            found = jax.jit(lambda q: attend(q, k8, k8, k_scale, **options))(q)
            near(found, flashattn.attention(q, k8, k8, k_scale=k_scale, mask=causal, **options), 1e-4)

    def test_gradient_of_queries(self):
        def loss(q, *others):
            return jnp.square(attend(q, *others)).sum()

        for given, dense in (
            (self.given[1:], self.dense),
            ((self.k, self.v8, None, self.v_scale), (self.k, self.dense[1])),
            ((self.k8, self.v, numpy.float32(0.5), None), (self.k8.astype(numpy.float32) / 2, self.v)),
        ):
            near(jax.grad(loss)(self.q, *given), jax.grad(loss)(self.q, *dense), 2e-4)
        # A scale for each packed sequence.
        starts = numpy.array([0, 4, 9], numpy.int32)
        scale = numpy.array([[0.5, 1.0], [2.0, 3.0]], numpy.float32)
        q, k8 = make(4, 9, 4, 32), self.k[0].swapaxes(0, 1).astype(ml_dtypes.float8_e4m3fn)
        options = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "layout": "thd"}
        values = k8.astype(numpy.float32) * scale[[0] * 4 + [1] * 5][..., None]

        def packed(k, **own):
            return jax.grad(lambda q: jnp.square(attend(q, k, values, **own, **options)).sum())(q)

        near(packed(k8, k_scale=scale), packed(values), 2e-4)
        with self.assertRaisesRegex(UnsupportedError, "expected no gradient of 'k' of f8E4M3FN but got an input that"):
            jax.grad(lambda k: loss(self.q, k, *self.given[2:]))(jnp.asarray(self.k8))
        with self.assertRaisesRegex(UnsupportedError, "expected no gradient of 'k_scale' of f32 but got an input that"):
            jax.grad(lambda scale: loss(*self.given[:3], scale, self.v_scale))(jnp.asarray(self.k_scale))

    def test_mapped(self):
        queries, scales = jnp.stack([self.q, 2 * self.q]), jnp.stack([self.k_scale, 3 * self.k_scale])
        found = jax.vmap(attend, (0, None, None, 0, None))(queries, *self.given[1:3], scales, self.v_scale)
        for q, scale, one in zip(queries, scales, found):
            near(one, attend(q, *self.given[1:3], scale, self.v_scale), 1e-4)
        found = jax.vmap(lambda q: attend(q, *self.given[1:3], 0.5))(queries)
        near(found[1], attend(queries[1], *self.given[1:3], 0.5), 1e-4)

    def test_sharded(self):
        mesh = jax.make_mesh((2,), ("x",))
        for axis in (0, 1):
            spec = PartitionSpec(*[None] * axis, "x")
            with jax.set_mesh(mesh):
                given = [jax.device_put(x, NamedSharding(mesh, spec)) for x in self.given]
                near(jax.jit(attend)(*given), self.wanted)

    def test_refused(self):
        for message, given, options in (
            ("expected no 'k_scale' with 'k' of f32 but got one", (self.k, self.v), {"k_scale": 1.0}),
            ("expected 'k_scale' of rank 0, 2 or 4 but got rank 3", (self.k8, self.v), {"k_scale": self.k_scale[0]}),
            ("expected head count of 'v_scale' to be 1 or 2 but got 3", (self.k8, self.v8),
             {"v_scale": numpy.ones((1, 3), numpy.float32)}),
        ):  # fmt: skip
            with self.assertRaisesRegex(ArgumentError, message):
                attend(self.q, *given, **options)
        with self.assertRaisesRegex(UnsupportedError, "expected 'k' of 16 or 32 bits but got f8E4M3FN"):
            fj.context_parallel(self.q, self.k8, self.v, axis_name="x", mesh=jax.make_mesh((2,), ("x",)))


if __name__ == "__main__":
    unittest.main()
