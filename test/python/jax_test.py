# flashattn.jax.dot_product_attention against jax's own in float64, values and gradients.
# REQUIRES: python-package, jax
# RUN: env JAX_PLATFORMS=cpu %flashattn_python %s

import functools
import itertools
import os
import unittest
import unittest.mock

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # of what is compared with

import jax
import jax.numpy as jnp
import numpy
from jax.nn import dot_product_attention as own

import flashattn.jax as fj
from flashattn import _reference

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")  # of f32 on GPUs, which take TF32 else
DTYPES = {"f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16}


def make(seed, *shape, dtype=jnp.float32):
    values = numpy.random.default_rng(seed).standard_normal(shape)
    return jnp.asarray(values, jnp.float32).astype(dtype)


def wide(tree):
    """The same numbers in float64, for whatever is a float."""
    return jax.tree.map(lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)  # fmt: skip


def wrt(call, arrays, others, weights, **options):
    """Values and gradients of all `arrays`, with the weight of each element of the output."""

    def loss(arrays):
        o = call(**arrays, **others, **options)
        return (o * weights.astype(o.dtype)).sum(dtype=jnp.promote_types(o.dtype, jnp.float32)), o

    (_, o), gradients = jax.value_and_grad(loss, has_aux=True)(arrays)
    return {"o": o, **gradients}


@functools.lru_cache(maxsize=None)
def jitted(call, options):
    return jax.jit(functools.partial(wrt, call, **dict(options)))


def visible(t, s, is_causal=False, local_window_size=None, **_):
    """Which pairs a call's options show."""
    left, right = numpy.broadcast_to(s + t if local_window_size is None else local_window_size, 2)
    ahead = numpy.arange(s) - numpy.arange(t)[:, None]
    return (ahead <= (0 if is_causal else right)) & (ahead >= -left)


def naive(short, arrays, others, weights, options):
    """The same in plain arithmetic of f32, rounded where the type is."""
    q, k, v = (numpy.asarray(arrays[n], numpy.float32) for n in ("query", "key", "value"))
    (batch, t, heads, d), s, group = q.shape, k.shape[1], q.shape[2] // k.shape[2]
    round_to, scale = _reference.rounder(short), options.get("scale", d**-0.5)
    shape = batch, heads, t, s
    seen = numpy.broadcast_to(others.get("mask", True), shape) & visible(t, s, **options)
    for name, size in (("query", t), ("key_value", s)):
        ends = numpy.asarray(others.get(f"{name}_seq_lengths", [size] * batch))[:, None]
        ends = numpy.arange(size) < ends
        seen = seen & (ends[:, None, :, None] if name == "query" else ends[:, None, None])
    bias = numpy.broadcast_to(arrays.get("bias", 0), shape).astype(numpy.float32)
    found = {n: numpy.zeros(x.shape, numpy.float32) for n, x in arrays.items()}
    found["o"] = numpy.zeros_like(q)
    d_bias = numpy.zeros(shape, numpy.float32)
    for b, h in numpy.ndindex(batch, heads):
        at, kv, do = (b, slice(None), h), (b, slice(None), h // group), weights[b, :, h]
        do = numpy.asarray(do, numpy.float32)
        given = q[at], k[kv], v[kv]
        features = {"round_to": round_to, "bias": bias[b, h]}
        o, lse = _reference.attention_head(*given, seen[b, h], scale, **features)
        o = round_to(o)
        delta = (do * o).sum(-1)
        g = _reference.head_gradients(*given, do, lse, delta, seen[b, h], scale, **features)
        found["o"][at] = o
        found["query"][at] = g.dq
        found["key"][kv] += g.dk
        found["value"][kv] += g.dv
        d_bias[b, h] = g.d_scores
    if "bias" in arrays:
        shared = tuple(i for i, n in enumerate(arrays["bias"].shape) if n == 1)
        found["bias"] = d_bias.sum(shared, keepdims=True)
    return {name: round_to(x) for name, x in found.items()}


class Case(unittest.TestCase):
    def near(self, found, exact, rough, short):
        """The rule of numbers: values may be off by twice what plain arithmetic is, gradients by three
        times."""
        self.assertEqual(set(found), set(exact))
        for name, x in found.items():
            self.assertEqual(x.shape, exact[name].shape, name)
            x, y, z = (numpy.asarray(t[name]).astype(numpy.float64) for t in (found, exact, rough))
            factor = 2 if name == "o" else 3
            self.assertLessEqual(abs(x - y).max(), factor * abs(z - y).max() + 1e-5, name)
            bound = _reference.FROBENIUS[short] * numpy.linalg.norm(y)
            self.assertLessEqual(numpy.linalg.norm(x - y), bound, name)


FEATURES = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"local_window_size": (2, 3)},
    "causal window": {"is_causal": True, "local_window_size": 4},
    "bias": {"scale": 0.4},
    "mask": {"is_causal": True},
    "key lengths": {"is_causal": True},
    "query lengths": {},
    "key and query lengths": {"is_causal": True},
    "all": {"is_causal": True, "scale": 0.3},
}


class GridTest(Case):
    def test_grid(self):
        points = itertools.product(((17, 17), (5, 19), (33, 9)), FEATURES, DTYPES.items())
        count, part = 0, 1 if jax.default_backend() == "cpu" else 4  # XLA compiles longer for GPUs
        for (t, s), feature, (short, dtype) in itertools.islice(points, 0, None, part):
            if "window" in feature and t > s:
                continue  # rows that see nothing, of which jax has the mean of all values
            n, k = {17: (4, 4), 5: (4, 2), 33: (3, 1)}[t]
            arrays = {
                "query": make(1, 2, t, n, 16, dtype=dtype),
                "key": make(2, 2, s, k, 16, dtype=dtype),
                "value": make(3, 2, s, k, 16, dtype=dtype),
            }
            others = {}
            if feature in ("bias", "all"):
                arrays["bias"] = make(4, *((1, n, t, s) if feature == "bias" else (2, 1, t, s)))
            if feature in ("mask", "all"):
                others["mask"] = (make(5, 2, 1, t, s) > -0.3).at[..., 0].set(True)
            if feature in ("key lengths", "key and query lengths", "all"):
                others["key_value_seq_lengths"] = jnp.array([s, 3], jnp.int32)
            if feature in ("query lengths", "key and query lengths", "all"):
                others["query_seq_lengths"] = jnp.array([2, t], jnp.int32)
            options = tuple(FEATURES[feature].items())
            weights = make(6, 2, t, n, 16, dtype=dtype)
            with self.subTest(lengths=(t, s), feature=feature, dtype=short):
                found = jitted(fj.dot_product_attention, options)(arrays, others, weights)
                exact = jitted(own, options)(wide(arrays), others, wide(weights))
                rough = naive(short, arrays, others, weights, dict(options))
                self.near(found, exact, rough, short)
                self.assertEqual({x.dtype for n, x in found.items() if n != "bias"}, {dtype(0).dtype})
                count += 1
        self.assertGreaterEqual(count, 60 // part)

    def test_numbers_hide_as_a_mask_does(self):
        """A bias of large finite numbers where keys are padding, in values and gradients."""
        q, k, v = make(1, 2, 5, 4, 16), make(2, 2, 9, 2, 16), make(3, 2, 9, 2, 16)
        shown = jnp.array([[True] * 4 + [False] * 5, [False] * 3 + [True] * 6])[:, None, None]
        arrays, weights = {"query": q, "key": k, "value": v}, make(4, 2, 5, 4, 16)
        exact = jitted(fj.dot_product_attention, ())(arrays, {"mask": shown}, weights)
        for number in (-1e10, -1e20, float(jnp.finfo(jnp.float32).min)):
            bias = jnp.where(shown, 0, number).astype(jnp.float32)
            found = jitted(fj.dot_product_attention, ())(arrays, {"bias": bias}, weights)
            for name, x in exact.items():
                numpy.testing.assert_allclose(found[name], x, rtol=1e-4, atol=1e-5, err_msg=f"{name}, {number}")

    def test_lengths_need_no_mask(self):
        q, k, v = make(1, 2, 5, 4, 16), make(2, 2, 9, 2, 16), make(3, 2, 9, 2, 16)
        lengths = {
            "query_seq_lengths": jnp.array([2, 5], jnp.int32),
            "key_value_seq_lengths": jnp.array([9, 3], jnp.int32),
        }
        calls = []

        def attention(*rows, **keywords):
            calls.append({name for name, x in keywords.items() if x is not None})
            return fj.attention(*rows, **keywords)

        found = []
        with unittest.mock.patch.object(fj._dot_product, "attention", attention):
            for others in ({}, {"mask": jnp.ones((5, 9), bool)}, {"bias": jnp.zeros((5, 9))}):
                o, lse = fj.dot_product_attention(q, k, v, return_residual=True, **lengths, **others)
                self.assertTrue((o[0, 2:] == 0).all() and (lse[0, 2:] == -jnp.inf).all())
                found.append((o, lse))
        self.assertIn("q_len", calls[0])
        self.assertNotIn("attn_mask", calls[0])
        for call, (o, lse) in zip(calls[1:], found[1:]):
            self.assertNotIn("q_len", call)
            self.assertIn("attn_mask", call)
            numpy.testing.assert_allclose(o, found[0][0], rtol=1e-5, atol=1e-6)
            numpy.testing.assert_allclose(lse, found[0][1], rtol=1e-5, atol=1e-6)
        # Rows that do not count may hold anything.
        other = fj.dot_product_attention(q.at[0, 2:].set(jnp.nan), k, v, **lengths)
        numpy.testing.assert_array_equal(other, found[0][0])
        alone = fj.dot_product_attention(q[0, :2], k[0], v[0], return_residual=True)
        numpy.testing.assert_allclose(found[0][0][0, :2], alone[0], rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
