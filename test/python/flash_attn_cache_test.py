# flash_attn_with_kvcache of FlashAttention 2 and 3, and tables of pages in their functions for packed sequences and
# in FlashAttention-4's: against plain operations of PyTorch, sequence by sequence.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import itertools
import math
import unittest

import torch
from flashattn import ArgumentError, FlashAttnError, UnsupportedError
from flashattn import flash_attn as fa2
from flashattn import flash_attn_interface as fa3
from flashattn.flash_attn import cute

B, H, G, D, S, P = 4, 4, 2, 16, 8, 5
CAPACITY = S * P
LENGTHS = [0, 7, 20, 31]


def starts_of(counts):
    return torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)


def turned(x, cos, sin, position, interleaved):
    """A row of heads, `[H, D]`, rotated by the angles of a position."""
    half, x = cos.shape[1], x.clone()
    c, s = cos[position], sin[position]
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    one, two = (x[:, at].clone() for at in pairs)
    x[:, pairs[0]], x[:, pairs[1]] = one * c - two * s, one * s + two * c
    return x


def plain(q, k, v, causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0, slopes=None):
    """o and lse of one sequence, `[N, H, D]` and `[H, N]`, with heads of k and v that are shared."""
    n, m = q.shape[0], k.shape[0]
    p, j = torch.arange(n)[:, None] + m - n, torch.arange(m)[None]
    seen = torch.ones(n, m, dtype=torch.bool)
    left, right = window_size
    if causal:
        seen &= j <= p
    if left >= 0:
        seen &= j >= p - left
    if right >= 0:
        seen &= j <= p + right
    if attention_chunk:
        seen &= j // attention_chunk == p // attention_chunk
    k, v = (x.repeat_interleave(H // G, 1) for x in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) / math.sqrt(q.shape[-1])
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * (p - j).abs()
    scores = scores.masked_fill(~seen, -math.inf)
    o = torch.einsum("hnm,mhd->nhd", torch.softmax(scores, -1).nan_to_num(), v)
    return o, scores.logsumexp(-1)


class Case:
    """A call of flash_attn_with_kvcache, and the caches that it should leave behind."""

    def __init__(
        self, module, pages=False, slots=False, pads=False, packed=False, new=0, rotary=0, interleaved=False,
        moved=False, width=D, **options,
    ):  # fmt: skip
        self.module, self.packed, self.options = module, packed, options
        self.queries = [1, 3, 5, 2] if packed else [3] * B
        self.new = [4, 0, 6, 3] if packed else [new] * B
        self.has_new = packed or new > 0
        self.q = [torch.randn(n, H, width) for n in self.queries]
        self.rows = [torch.randn(n, 2, G, width) for n in self.new]
        self.pads = [0, 3, 20, 5] if pads else [0] * B
        self.caches = torch.randn(2 * B, CAPACITY, 2, G, width)
        self.slots = torch.randperm(2 * B)[:B] if slots else torch.arange(B)
        self.angles = torch.rand(2, 80, rotary // 2)
        self.rotary, self.interleaved = rotary, interleaved
        self.first = [n // 2 for n in LENGTHS] if moved else LENGTHS
        self.given = {"cache_seqlens": torch.tensor(LENGTHS, dtype=torch.int32), "return_softmax_lse": True, **options}
        if slots:
            self.given["cache_batch_idx"] = self.slots.int()
        if pads:
            self.given["cache_leftpad"] = torch.tensor(self.pads, dtype=torch.int32)
        if rotary:
            self.given.update(
                rotary_cos=self.angles[0], rotary_sin=self.angles[1], rotary_interleaved=interleaved
            )
        if moved:
            self.given["rotary_seqlens"] = torch.tensor(self.first, dtype=torch.int32)
        self.table = None
        if pages:
            count = 2 * B * P + 3
            self.table = torch.randperm(count)[: 2 * B * P].view(2 * B, P)
            self.pool = torch.full((count, 2, S, G, width), math.nan)
            self.pool[self.table.flatten()] = self.caches.view(2 * B * P, S, 2, G, width).transpose(1, 2)
            table = self.table if slots else self.table[:B]
            self.given["block_table" if module is fa2 else "page_table"] = table.int()
        else:
            self.pool = (self.caches if slots else self.caches[:B]).clone()

    def call(self):
        if self.packed:
            q, rows = torch.cat(self.q), torch.cat(self.rows)
            self.given.update(
                cu_seqlens_q=starts_of(self.queries), cu_seqlens_k_new=starts_of(self.new), max_seqlen_q=5,
                scheduler_metadata=fa3.get_scheduler_metadata(
                    B, 5, CAPACITY, H, G, D, self.given["cache_seqlens"], cu_seqlens_q=starts_of(self.queries)
                ),
            )  # fmt: skip
        else:
            q, rows = torch.stack(self.q), torch.stack(self.rows)
        new = rows.unbind(-3) if self.has_new else (None, None)
        halves = self.pool.unbind(2 if self.table is None else 1)
        return self.module.flash_attn_with_kvcache(q, *halves, *new, **self.given)

    def check(self, test):
        o, lse = self.call()
        at, names = 0, ("causal", "window_size", "attention_chunk", "softcap")
        shown = {name: self.options[name] for name in names if name in self.options}
        is_ordered = any(name in shown for name in names[:3])
        for b in range(B):
            n, first, slot = LENGTHS[b], self.first[b], int(self.slots[b])
            cache = self.caches[slot].clone()
            for j, row in enumerate(self.rows[b]):
                cache[n + j] = row
                if self.rotary:
                    cache[n + j, 0] = turned(row[0], *self.angles, first + j, self.interleaved)
            if self.table is None:
                found = self.pool[slot]
            else:
                found = self.pool[self.table[slot]].transpose(1, 2).flatten(0, 1)
            test.near(found, cache)
            q = self.q[b]
            if self.rotary:
                places = [first + (i if is_ordered else 0) for i in range(len(q))]
                q = torch.stack([turned(x, *self.angles, p, self.interleaved) for x, p in zip(q, places)])
            k, v = cache[self.pads[b] : n + self.new[b]].unbind(1)
            slopes = self.options.get("alibi_slopes")
            wanted, logs = plain(q, k, v, **shown, slopes=None if slopes is None else slopes[b])
            rows = slice(at, at + len(q))
            test.near(o[rows] if self.packed else o[b], wanted)
            test.near(lse[:, rows] if self.packed else lse[b], logs)
            at += len(q)


class CacheTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def near(self, found, wanted):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

    def test_grid(self):
        """Each pair of values of two arguments occurs in some call."""
        masks = ({"causal": True}, {}, {"window_size": (4, 2)})
        grid = itertools.product((False, True), (False, True), (False, True), (0, 8, 16), masks)
        for at, (pages, slots, pads, rotary, mask) in enumerate(grid):
            new = (1, 3, 5, 0)[at % (3 if rotary else 4)]
            options = {"pages": pages, "slots": slots, "pads": pads, "rotary": rotary, "interleaved": at % 2 == 0}
            with self.subTest(new=new, **options, **mask):
                Case((fa2, fa3)[at // 2 % 2], new=new, **options, **mask).check(self)
            with self.subTest(packed=True, **options, **mask):
                moved = bool(rotary and pads)
                Case(fa3, packed=True, moved=moved, num_splits=2, **options, **mask).check(self)

    def test_other_arguments(self):
        Case(fa3, pages=True, pads=True, packed=True, rotary=8, attention_chunk=7).check(self)
        Case(fa3, pages=True, new=2, softcap=3.0, causal=True).check(self)
        Case(fa2, pages=True, slots=True, new=4, causal=True, alibi_slopes=torch.rand(B, H)).check(self)
        Case(fa2, pads=True, causal=True, alibi_slopes=torch.rand(B, H)).check(self)
        # Head dimensions that are no multiples of 8 are padded after the new rows are written.
        Case(fa2, pages=True, new=3, width=19, causal=True).check(self)
        Case(fa3, slots=True, packed=True, width=19, causal=True).check(self)

    def test_numbers_as_lengths(self):
        q, caches = torch.randn(2, 1, H, D), torch.randn(2, 2, 30, G, D)
        index, leftpad = torch.tensor([1, 1], dtype=torch.int32), torch.tensor([0, 29], dtype=torch.int32)
        for module in (fa2, fa3):
            o = module.flash_attn_with_kvcache(q, *caches, cache_batch_idx=index, cache_leftpad=leftpad)
            self.near(o[0], plain(q[0], *caches[:, 1])[0])
            self.near(o[1], plain(q[1], *caches[:, 1, 29:])[0])
            o = module.flash_attn_with_kvcache(q, *caches, cache_seqlens=5, cache_batch_idx=index)
            self.near(o[1], plain(q[1], *caches[:, 1, :5])[0])

    def test_varlen(self):
        counts, lengths = [3, 0, 5], [17, 4, 30]
        pool = torch.randn(11, 2, S, G, D)
        table = torch.randperm(11)[:9].view(3, 3).repeat(1, 2)[:, :4]
        q, cu_q, cu_k = torch.randn(8, H, D), starts_of(counts), starts_of(lengths)
        k, v = pool.unbind(1)
        wanted = [
            plain(q[cu_q[b] : cu_q[b + 1]], *(x[table[b]].flatten(0, 1)[:n] for x in (k, v)), causal=True)
            for b, n in enumerate(lengths)
        ]
        rows, logs = torch.cat([o for o, _ in wanted]), torch.cat([lse for _, lse in wanted], 1)
        table = table.int()
        o, lse, _ = fa2.flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, 5, 30, causal=True, return_attn_probs=True, block_table=table, deterministic=True
        )
        self.near(o, rows)
        self.near(lse, logs)
        used = cu_k.diff()
        o, lse = cute.flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=cu_q, seqused_k=used, page_table=table, causal=True, return_lse=True
        )
        self.near(o, rows)
        self.near(lse, logs)
        batched = torch.stack([torch.cat([x, torch.zeros(5 - len(x), H, D)]) for x in q.split(counts)])
        o, _ = cute.flash_attn_varlen_func(
            batched, k, v, seqused_q=cu_q.diff(), seqused_k=used, page_table=table, causal=True
        )
        for b, n in enumerate(counts):
            self.near(o[b, :n], wanted[b][0])
            self.assertFalse(o[b, n:].any())
        o, _ = cute.flash_attn_varlen_func(batched, k, v, page_table=table)
        self.near(o[0], plain(batched[0], *(x[table[0]].flatten(0, 1) for x in (k, v)))[0])
        for call in (
            lambda q: fa2.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 5, 30, block_table=table, deterministic=True),
            lambda q: cute.flash_attn_varlen_func(q, k, v, cu_seqlens_q=cu_q, seqused_k=used, page_table=table),
            lambda q: fa2.flash_attn_with_kvcache(q[None], k[:1], v[:1], cache_leftpad=torch.ones(1).int()),
        ):
            with self.assertRaisesRegex(UnsupportedError, "with(out gradients but| requires_grad in a call with)"):
                call(q.clone().requires_grad_())

    def test_compiled(self):
        made = Case(fa3, pages=True, packed=True, rotary=8, pads=True, causal=True)
        other = Case(fa3, pages=True, packed=True, rotary=8, pads=True, causal=True)
        for name in ("q", "rows", "caches", "slots", "angles", "table", "given"):
            setattr(other, name, getattr(made, name))
        other.pool = made.pool.clone()
        q, rows = torch.cat(made.q), torch.cat(made.rows)
        wanted = made.call()

        def step(q, k_pool, v_pool, k, v):
            return fa3.flash_attn_with_kvcache(q, k_pool, v_pool, k, v, **made.given)

        torch._dynamo.reset()
        compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
        self.near(compiled(q, *other.pool.unbind(1), *rows.unbind(1)), wanted)
        self.assertTrue(torch.equal(other.pool.nan_to_num(9), made.pool.nan_to_num(9)))

    def test_errors(self):
        q, new = torch.randn(2, 1, H, D), torch.randn(2, 1, G, D)
        pool = torch.randn(9, S, G, D)
        caches, table = torch.randn(2, 30, G, D), torch.tensor([[0, 1], [8, 3]], dtype=torch.int32)
        wrong = torch.tensor([[0, 99], [8, 3]], dtype=torch.int32)
        lengths, angles = torch.tensor([9, 3], dtype=torch.int32), torch.rand(40, 8)
        for message, call in (
            ("expected 'k' and 'v' with rotary_cos but got None",
             lambda: fa2.flash_attn_with_kvcache(q, caches, caches, rotary_cos=angles, rotary_sin=angles)),
            ("expected 'k' and 'v' with cu_seqlens_k_new but got None",
             lambda: fa3.flash_attn_with_kvcache(q, caches, caches, cu_seqlens_k_new=lengths)),
            ("expected rotary_cos and rotary_sin or neither but got None as rotary_sin",
             lambda: fa2.flash_attn_with_kvcache(q, caches, caches, new, new, cache_seqlens=lengths,
                                                 rotary_cos=angles)),
            ("expected cache_seqlens with k and v but got None",
             lambda: fa2.flash_attn_with_kvcache(q, pool, pool, new, new, block_table=table)),
            ("expected 'k' and 'v' or neither but got 'k' alone",
             lambda: fa2.flash_attn_with_kvcache(q, caches, caches, new, cache_seqlens=lengths)),
            ("expected pages from 0 to 8 in 'page_table' but got 99 for page 1 of sequence 0",
             lambda: fa2.flash_attn_with_kvcache(q, pool, pool, cache_seqlens=lengths, block_table=wrong)),
            ("expected 'page_table' of shape [2, 2] but got [1, 2]",
             lambda: fa2.flash_attn_with_kvcache(q, pool, pool, cache_seqlens=lengths, block_table=table[:1])),
            ("expected 'q' to be a tensor of torch but got ndarray",
             lambda: fa2.flash_attn_with_kvcache(q.numpy(), pool, pool, cache_seqlens=lengths)),
            ("expected qv None but got a value of type Tensor",
             lambda: fa3.flash_attn_with_kvcache(q, pool, pool, qv=q, page_table=table)),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaises(FlashAttnError) as caught:
                call()
            self.assertIn(message, str(caught.exception))
            self.assertIsInstance(caught.exception, (ArgumentError, UnsupportedError))


if __name__ == "__main__":
    unittest.main()
