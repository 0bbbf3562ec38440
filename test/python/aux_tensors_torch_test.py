# aux_tensors (rule A10) with torch: autograd, torch.compile, torch.func, autocast and tracing, against float64, and what is
# refused.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import unittest

import flashattn
import torch
from flashattn import ArgumentError, UnsupportedError, causal
from torch.fx.experimental.proxy_tensor import make_fx


def by_both(score, b, h, p, k, slopes):
    return score + slopes[b, h] * (k - p)


def by_head(score, b, h, p, k, slopes):
    return score + slopes[h] * (k - p)


def attend(q, k, v, slopes, **options):
    score_mod = by_both if slopes.dim() == 2 else by_head
    return flashattn.attention(q, k, v, mask=causal, score_mod=score_mod, aux_tensors=(slopes,), **options)


def in_double(q, k, v, slopes):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1).double() for x in (k, v))
    j = torch.arange(q.shape[2])
    scores = q.double() @ k.mT * q.shape[3] ** -0.5
    scores = scores + slopes.double().expand(q.shape[:2])[..., None, None] * (j[None] - j[:, None])
    return scores.masked_fill(j[None] > j[:, None], -torch.inf).softmax(-1) @ v


class AuxTensors(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.rows = [torch.randn(2, h, 40, 16, requires_grad=True) for h in (4, 2, 2)]
        self.slopes = torch.rand(2, 4)

    def near(self, found, wanted, bound=1e-5):
        self.assertLess(((found.double() - wanted).norm() / wanted.norm()).item(), bound)

    def check(self, attend, rows, slopes):
        found, wanted = attend(*rows, slopes), in_double(*rows, slopes)
        self.near(found, wanted)
        d_o = torch.randn(found.shape)
        for x, y in zip(
            torch.autograd.grad(found, rows, d_o), torch.autograd.grad(wanted, rows, d_o.double())
        ):
            self.near(x, y.double())

    def test_autograd(self):
        expanded = torch.rand(4).expand(2, 4)
        for slopes in (self.slopes, self.slopes[0], self.slopes.t().contiguous().t(), expanded, expanded[:, ::1]):
            with self.subTest(strides=slopes.stride()):
                # The second call has a plan.
                self.check(attend, self.rows, slopes)
                self.check(attend, self.rows, 2 * slopes)

    def test_compiled(self):
        compiled = torch.compile(attend)
        for slopes in (self.slopes, 2 * self.slopes):
            self.check(compiled, self.rows, slopes)

    def test_graph(self):
        q, k, v = (x.detach() for x in self.rows)
        graph = make_fx(lambda *given: attend(*given), tracing_mode="fake")(q, k, v, self.slopes)
        self.assertIn("memref.load %aux0[%batch, %head]", graph.code)
        slopes = torch.rand(2, 4)
        self.near(graph(q, k, v, slopes), in_double(q, k, v, slopes))

    def test_transforms(self):
        q, k, v = (torch.randn(3, *x.shape) for x in self.rows)
        slopes = torch.rand(3, 2, 4)
        for of_heads, one in ((False, self.slopes), (True, self.slopes[0])):
            # With slopes of batches, calls run one by one: b counts within each.
            found = torch.vmap(attend, (0, 0, 0, None))(q, k, v, one)
            self.near(found, torch.stack([in_double(*rows, one) for rows in zip(q, k, v)]))
            each = slopes[:, 0] if of_heads else slopes
            found = torch.vmap(attend)(q, k, v, each)
            self.near(found, torch.stack([in_double(*rows) for rows in zip(q, k, v, each)]))
        rows = [x.detach() for x in self.rows]
        found = torch.func.grad(lambda q: attend(q, *rows[1:], self.slopes).sum())(rows[0])
        wanted = torch.autograd.grad(in_double(*self.rows, self.slopes).sum(), self.rows[0])[0]
        self.near(found, wanted.double())

    def test_batch_in_vmap(self):
        """A score_mod that reads b without a table counts within each call, too."""
        q, k, v = (torch.randn(3, *x.shape) for x in self.rows)
        call = lambda *rows: flashattn.attention(  # noqa: E731
            *rows, mask=causal, score_mod=lambda s, b, h, p, k: s + 0.1 * b * (k - p)
        )
        slopes = torch.tensor([[0.0], [0.1]])
        wanted = torch.stack([in_double(*rows, slopes) for rows in zip(q, k, v)])
        self.near(torch.vmap(call)(q, k, v), wanted)

    def test_autocast(self):
        with torch.autocast("cpu", torch.bfloat16):
            found = attend(*self.rows, self.slopes)
        self.assertEqual(found.dtype, torch.bfloat16)
        self.near(found, in_double(*self.rows, self.slopes), 2e-2)

    def test_types(self):
        q, k, v = (x.detach() for x in self.rows)
        for kind in (torch.float16, torch.bfloat16):
            slopes = self.slopes.to(kind)
            self.near(attend(q, k, v, slopes), in_double(q, k, v, slopes))
        slopes = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
        self.near(attend(q, k, v, slopes), in_double(q, k, v, slopes))

    def test_refused(self):
        for function, kind, message in (
            (
                lambda: attend(*self.rows, self.slopes.requires_grad_()), UnsupportedError,
                "^expected tensors without gradients but got 'aux0' with requires_grad",
            ),
            (
                lambda: attend(*self.rows, torch.ones(3)), ArgumentError,
                "^expected head count of 'aux0' to be 4 as in 'q' but got 3$",
            ),
            (
                lambda: attend(*self.rows, torch.ones(4, device="meta")), ArgumentError,
                "^expected 'aux0' ",
            ),
            (
                lambda: attend(*self.rows, torch.ones(4, dtype=torch.float64)), UnsupportedError,
                "^expected 'aux0' with element type f16, bf16, f32, i32 or bool but got float64$",
            ),
        ):  # fmt: skip
            with self.assertRaisesRegex(kind, message):
                function()


if __name__ == "__main__":
    unittest.main()
