# aux_tensors (rule A10) with JAX: jit, grad, vmap and packed sequences, and what is refused.
# REQUIRES: python-package, jax
# RUN: %flashattn_python %s

import unittest

import jax
import jax.numpy as jnp
import numpy
from flashattn import ArgumentError, UnsupportedError, causal
from flashattn.jax import attention


def by_both(score, b, h, p, k, slopes):
    return score + slopes[b, h] * (k - p)


def by_head(score, b, h, p, k, slopes):
    return score + slopes[h] * (k - p)


def attend(q, k, v, slopes, **options):
    score_mod = by_both if slopes.ndim == 2 else by_head
    return attention(q, k, v, mask=causal, score_mod=score_mod, aux_tensors=(slopes,), **options)


def reference(q, k, v, slopes):
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    j = jnp.arange(q.shape[2])
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k, precision="highest") * q.shape[3] ** -0.5
    scores = scores + jnp.broadcast_to(slopes, q.shape[:2])[..., None, None] * (j[None] - j[:, None])
    weights = jax.nn.softmax(jnp.where(j[None] > j[:, None], -jnp.inf, scores), axis=-1)
    return jnp.einsum("bhnm,bhmd->bhnd", weights, v, precision="highest")


class AuxTensors(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(5)
        self.rows = [jnp.asarray(random.standard_normal((2, h, 40, 16)), jnp.float32) for h in (4, 2, 2)]
        self.slopes = jnp.asarray(random.uniform(size=(2, 4)), jnp.float32)

    def near(self, found, wanted):
        numpy.testing.assert_allclose(found, wanted, atol=2e-5, rtol=2e-5)

    def test_values(self):
        for slopes in (self.slopes, self.slopes[0], numpy.full(4, 0.5)):
            self.near(attend(*self.rows, slopes), reference(*self.rows, slopes))

    def test_jit(self):
        """A traced array is an operand of the program."""
        compiled = jax.jit(attend)
        for slopes in (self.slopes, 2 * self.slopes):
            self.near(compiled(*self.rows, slopes), reference(*self.rows, slopes))
        self.assertEqual(compiled._cache_size(), 1)

    def test_gradients(self):
        found, wanted = (
            jax.grad(lambda rows: (function(*rows, self.slopes) ** 2).sum())(self.rows)
            for function in (attend, reference)
        )
        for x, y in zip(found, wanted):
            self.near(x, y)

    def test_vmap(self):
        q, k, v = self.rows
        queries, slopes = jnp.stack((q, 2 * q, 3 * q)), jnp.stack((self.slopes, 2 * self.slopes, -self.slopes))
        for table in (lambda s: s, lambda s: s[..., 0, :]):
            for dims, given in (((0, None, None, None), self.slopes), ((0, None, None, 0), slopes)):
                found, wanted = (
                    jax.vmap(function, dims)(queries, k, v, table(given)) for function in (attend, reference)
                )
                self.near(found, wanted)

    def test_batch_in_vmap(self):
        """A score_mod that reads b without a table counts within each call, too."""
        q, k, v = self.rows
        call = lambda q: attention(  # noqa: E731
            q, k, v, mask=causal, score_mod=lambda s, b, h, p, k: s + 0.1 * b * (k - p)
        )
        slopes = jnp.asarray([[0.0], [0.1]])
        found = jax.vmap(call)(jnp.stack((q, 2 * q)))
        self.near(found, jnp.stack([reference(x, k, v, slopes) for x in (q, 2 * q)]))

    def test_packed(self):
        packed = [x.transpose(0, 2, 1, 3).reshape(80, x.shape[1], 16) for x in self.rows]
        starts = jnp.asarray([0, 40, 80], jnp.int32)
        found = attend(*packed, self.slopes, layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts)
        wanted = reference(*self.rows, self.slopes)
        self.near(found.reshape(2, 40, 4, 16).transpose(0, 2, 1, 3), wanted)

    def test_refused(self):
        with self.assertRaisesRegex(UnsupportedError, "^expected aux_tensors without gradients but got 'aux0' with one"):
            jax.grad(lambda slopes: attend(*self.rows, slopes).sum())(self.slopes)
        with self.assertRaisesRegex(ArgumentError, "^expected head count of 'aux0' to be 4 as in 'q' but got 3$"):
            attend(*self.rows, self.slopes[0, :3])


if __name__ == "__main__":
    unittest.main()
