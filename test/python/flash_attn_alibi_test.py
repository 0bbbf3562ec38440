# alibi_slopes of FlashAttention-2's functions and aux_tensors of FlashAttention-4's: values and gradients against attention
# in float64, and what is refused.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import itertools
import unittest

import torch
from flashattn import ArgumentError, TraceError, UnsupportedError, _reference
from flashattn import flash_attn as fa2
from flashattn.flash_attn import cute

BOUND = _reference.FROBENIUS["f32"]


def in_double(q, k, v, slopes, causal=False, window=(-1, -1), softcap=0.0, scores_of=None):
    """o and the log-sum-exp of `[N, H, D]` with FlashAttention's bias, `-slope * |i + Nk - Nq - j|`, in float64."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    nq, nk = q.shape[1], k.shape[1]
    distance = torch.arange(nq)[:, None] + nk - nq - torch.arange(nk)
    scores = q @ k.transpose(1, 2) * q.shape[2] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if scores_of is None:
        scores = scores - slopes.double()[:, None, None] * distance.abs()
    else:
        scores = scores_of(scores)
    seen = torch.ones(nq, nk, dtype=torch.bool)
    if causal:
        seen &= distance >= 0
    left, right = window
    seen &= (distance <= left) | torch.tensor(left < 0)
    seen &= (-distance <= right) | torch.tensor(right < 0)
    scores = scores.masked_fill(~seen, -torch.inf)
    o = torch.nan_to_num(scores.softmax(-1)) @ v
    return o.transpose(0, 1), scores.logsumexp(-1)


class Alibi(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def rows(self, *shapes, **options):
        return [torch.randn(shape, requires_grad=True, **options) for shape in shapes]

    def near(self, found, wanted):
        error = (found.double() - wanted).norm() / wanted.norm()
        self.assertLess(error.item(), BOUND)

    def check(self, leaves, found, wanted):
        """Checks an output and the gradients of the leaves."""
        self.near(found, wanted)
        d_o = torch.randn(found.shape)
        gradients = torch.autograd.grad(found, leaves, d_o, retain_graph=True)
        for x, y in zip(gradients, torch.autograd.grad(wanted, leaves, d_o.double(), retain_graph=True)):
            self.near(x, y.double())

    def slopes(self, *shape):
        """Slopes in memory whose other elements are NaN."""
        memory = torch.full((64,), torch.nan)
        found = memory[8 : 8 + torch.Size(shape).numel()].view(shape)
        return found.copy_(torch.rand(shape) * 0.3)

    def batched(self, q, k, v, slopes, **options):
        found = [
            in_double(q[b], k[b], v[b], slopes if slopes.dim() == 1 else slopes[b], **options)
            for b in range(len(q))
        ]
        return torch.stack([o for o, _ in found]), torch.stack([lse for _, lse in found])

    def test_batches(self):
        for shape, (nq, nk), options in itertools.product(
            ((4,), (2, 4)), ((33, 33), (20, 70)),
            ({}, {"causal": True}, {"window_size": (9, 3)}, {"causal": True, "softcap": 4.0}),
        ):  # fmt: skip
            with self.subTest(shape=shape, nq=nq, nk=nk, **options):
                leaves = self.rows((2, nq, 4, 24), (2, nk, 2, 24), (2, nk, 2, 24))
                slopes = self.slopes(*shape)
                wanted, logs = self.batched(
                    *leaves, slopes, causal=options.get("causal", False),
                    window=options.get("window_size", (-1, -1)), softcap=options.get("softcap", 0.0),
                )  # fmt: skip
                found, lse, _ = fa2.flash_attn_func(*leaves, alibi_slopes=slopes, return_attn_probs=True, **options)
                self.check(leaves, found, wanted)
                self.near(lse, logs)

    def test_deterministic(self):
        leaves = self.rows((2, 40, 4, 16), (2, 40, 2, 16), (2, 40, 2, 16))
        slopes = self.slopes(4)
        found = fa2.flash_attn_func(*leaves, causal=True, alibi_slopes=slopes, deterministic=True)
        self.check(leaves, found, self.batched(*leaves, slopes, causal=True)[0])

    def test_one_tensor(self):
        slopes = self.slopes(2, 4)
        (qkv,) = self.rows((2, 30, 3, 4, 16))
        wanted, _ = self.batched(*qkv.unbind(2), slopes, causal=True)
        self.check([qkv], fa2.flash_attn_qkvpacked_func(qkv, causal=True, alibi_slopes=slopes), wanted)
        q, kv = self.rows((2, 10, 4, 16), (2, 30, 2, 2, 16))
        wanted, _ = self.batched(q, *kv.unbind(2), slopes)
        self.check([q, kv], fa2.flash_attn_kvpacked_func(q, kv, alibi_slopes=slopes), wanted)

    def test_packed(self):
        """The distance is that within a sequence."""
        lengths, keys = (5, 0, 33), (17, 4, 33)
        cu_q, cu_k = (
            torch.tensor([0, *itertools.accumulate(x)], dtype=torch.int32) for x in (lengths, keys)
        )
        for shape, causal in itertools.product(((4,), (3, 4)), (False, True)):
            with self.subTest(shape=shape, causal=causal):
                slopes = self.slopes(*shape)
                leaves = self.rows((38, 4, 16), (54, 2, 16), (54, 2, 16))
                parts = [
                    in_double(
                        leaves[0][cu_q[b] : cu_q[b + 1]],
                        *(x[cu_k[b] : cu_k[b + 1]] for x in leaves[1:]),
                        slopes if slopes.dim() == 1 else slopes[b], causal=causal,
                    )[0]
                    for b in range(3)
                ]  # fmt: skip
                found = fa2.flash_attn_varlen_func(
                    *leaves, cu_q, cu_k, 33, 33, causal=causal, alibi_slopes=slopes
                )
                self.check(leaves, found, torch.cat(parts))
        slopes = self.slopes(3, 4)
        (qkv,) = self.rows((54, 3, 4, 16))
        wanted = torch.cat(
            [in_double(*qkv[cu_k[b] : cu_k[b + 1]].unbind(1), slopes[b])[0] for b in range(3)]
        )
        self.check([qkv], fa2.flash_attn_varlen_qkvpacked_func(qkv, cu_k, 33, alibi_slopes=slopes), wanted)
        q, kv = self.rows((54, 4, 16), (54, 2, 4, 16))
        wanted = torch.cat([
            in_double(*(x[cu_k[b] : cu_k[b + 1]] for x in (q, *kv.unbind(1))), slopes[b])[0] for b in range(3)
        ])  # fmt: skip
        found = fa2.flash_attn_varlen_kvpacked_func(q, kv, cu_k, cu_k, 33, 33, alibi_slopes=slopes)
        self.check([q, kv], found, wanted)

    def test_caches(self):
        slopes, lengths = self.slopes(2, 4), torch.tensor([7, 20], dtype=torch.int32)
        with torch.no_grad():
            q, *new = self.rows((2, 3, 4, 16), (2, 3, 2, 16), (2, 3, 2, 16))
            caches = self.rows((2, 30, 2, 16), (2, 30, 2, 16))
            found, lse = fa2.flash_attn_with_kvcache(
                q, *caches, *new, cache_seqlens=lengths, causal=True, alibi_slopes=slopes,
                return_softmax_lse=True,
            )  # fmt: skip
            for b, count in enumerate((10, 23)):
                wanted, logs = in_double(q[b], *(x[b, :count] for x in caches), slopes[b], causal=True)
                self.near(found[b], wanted)
                self.near(lse[b], logs)
                for cache, rows in zip(caches, new):
                    self.assertTrue(torch.equal(cache[b, count - 3 : count], rows[b]))
        with self.assertRaisesRegex(UnsupportedError, "^expected tensors without gradients but got 'q'"):
            fa2.flash_attn_with_kvcache(q.requires_grad_(), *caches, alibi_slopes=slopes)

    def test_refused(self):
        q, k, v = (x.detach() for x in self.rows(*[(2, 9, 4, 16)] * 3))
        starts = torch.tensor([0, 9, 18], dtype=torch.int32)
        packed = *(x.flatten(0, 1) for x in (q, k, v)), starts, starts, 9, 9
        for slopes, message in (
            (torch.ones(3), r"^expected alibi_slopes of shape \[4\] or \[2, 4\] but got \[3\]$"),
            (torch.ones(4, 2), r"^expected alibi_slopes of shape \[4\] or \[2, 4\] but got \[4, 2\]$"),
            (torch.ones(4).double(), "^expected alibi_slopes of type torch.float32 but got torch.float64$"),
            ([1.0] * 4, "^expected 'alibi_slopes' to be a tensor of torch but got list$"),
        ):
            for function, given in (
                (fa2.flash_attn_func, (q, k, v)),
                (fa2.flash_attn_varlen_func, packed),
                (fa2.flash_attn_with_kvcache, (q, k, v)),
            ):
                with self.assertRaisesRegex(ArgumentError, message):
                    function(*given, alibi_slopes=slopes)

    def test_aux_tensors(self):
        def modify(score, b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
            slopes, factors = aux_tensors
            return score * factors[b] - slopes[b, h] * (q_idx - kv_idx)

        slopes, factors = self.slopes(2, 4), self.slopes(2)
        for nq, options in ((20, {}), (12, {"causal": True})):
            with self.subTest(nq=nq, **options):
                leaves = self.rows((2, nq, 4, 16), (2, 20, 2, 16), (2, 20, 2, 16))
                distance = torch.arange(nq)[:, None] - torch.arange(20)
                wanted = torch.stack([
                    in_double(
                        *(x[b] for x in leaves), None,
                        scores_of=lambda s: s * factors[b] - slopes[b][:, None, None] * distance,
                        **options,
                    )[0]
                    for b in range(2)
                ])  # fmt: skip
                found, _ = cute.flash_attn_func(
                    *leaves, score_mod=modify, aux_tensors=[slopes, factors], **options
                )
                self.check(leaves, found, wanted)
        rows = [x.detach() for x in leaves]
        with self.assertRaisesRegex(UnsupportedError, "^expected aux_tensors None but got a value of type list"):
            cute.flash_attn_func(*rows, aux_tensors=[slopes])
        for aux, change in (
            (torch.zeros(20), lambda s, b, h, q_idx, kv_idx, seqlen_info, aux_tensors: s + aux_tensors[0][kv_idx]),
            (slopes, lambda s, b, h, q_idx, kv_idx, seqlen_info, aux_tensors: s + aux_tensors[0][b, q_idx]),
        ):
            with self.assertRaisesRegex(TraceError, "^expected b or h as index of dimension . of 'aux0'"):
                cute.flash_attn_func(*rows, score_mod=change, aux_tensors=[aux])


if __name__ == "__main__":
    unittest.main()
