# On a GPU with torch: keys in pages and slots, for decoding, prefill and packed queries, against float64; a CUDA graph
# of a step that appends; and FlashAttention's function for caches.
# REQUIRES: python-package, cuda, torch
# RUN: %flashattn_python %s

import itertools
import math
import random
import unittest

import torch
from flashattn import attention, causal, sink, window
from flashattn import flash_attn as fa2
from flashattn import torch as ft

MASKS = {
    "none": None, "causal": causal, "window": window(left=100, right=0),
    "rolling": window(left=60, right=0) | sink(4) & causal,
}  # fmt: skip
#: Relative Frobenius norm of the error.
RELATIVE = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-5}


def seen_by(name, count, keys, device):
    p = torch.arange(count, device=device)[:, None] + keys - count
    j = torch.arange(keys, device=device)
    seen = torch.ones(count, keys, dtype=torch.bool, device=device) if name == "none" else j <= p
    if name == "window":
        seen &= j >= p - 100
    if name == "rolling":
        seen &= (j >= p - 60) | (j < 4)
    return seen


def in_double(q, k, v, seen):
    """o and lse of one sequence, `[N, H, D]`."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
    return (torch.softmax(scores, -1).nan_to_num() @ v).transpose(0, 1), scores.logsumexp(-1)


class PagedCudaTest(unittest.TestCase):
    device = "cuda"

    def setUp(self):
        torch.manual_seed(5)

    def near(self, found, wanted, dtype):
        self.assertFalse(found.isnan().any())
        norm = wanted.norm()
        self.assertLessEqual(float((found.double() - wanted).norm()), RELATIVE[dtype] * float(norm) + 1e-5)

    def problem(self, size, columns, counts, mask, dtype, dim, group=4, kv_heads=2, pads=False, packed=False):
        """Checks one call. Pages that no query sees hold NaN, and their entries are no pages."""
        device, batch, rows = self.device, len(counts), size * columns
        pages = batch * columns + 3
        pad = [random.randrange(rows) if pads else 0 for _ in counts]
        lengths = [random.choice((rows - p, random.randint(0, rows - p), 1)) for p in pad]
        pool = torch.randn(pages, 2, size, kv_heads, dim, device=device).to(dtype)
        table = torch.randperm(pages, device=device)[: batch * columns].view(batch, columns).int()
        q = [torch.randn(n, group * kv_heads, dim, device=device).to(dtype) for n in counts]
        wanted, used = [], torch.zeros(batch, columns, dtype=torch.bool, device=device)
        for b, n in enumerate(lengths):
            k, v = (x[table[b].long()].flatten(0, 1)[pad[b] : pad[b] + n] for x in pool.unbind(1))
            seen = seen_by(mask, counts[b], n, device)
            wanted.append(in_double(q[b], k, v, seen))
            used[b, (seen.any(0).nonzero().flatten() + pad[b]) // size] = True
        free = torch.ones(pages, dtype=torch.bool, device=device)
        free[table[used].long()] = False
        pool[free] = math.nan
        table[~used] = random.choice((-1, pages, 1 << 30, -(1 << 31)))
        given = {"page_table": table, "kv_len": torch.tensor(lengths, device=device), "mask": MASKS[mask]}
        if pads:
            given["leftpad_k"] = torch.tensor(pad, device=device)
        if packed:
            starts = torch.tensor([0, *itertools.accumulate(counts)], device=device)
            given.update(cu_seqlens_q=starts, layout="thd")
        else:
            given["layout"] = "bshd"
        rows_of = torch.cat(q) if packed else torch.stack(q)
        o, lse = attention(rows_of, *pool.unbind(1), return_lse=True, **given)
        if not packed:
            o, lse = o.flatten(0, 1), lse.transpose(0, 1).flatten(1)
        self.near(o, torch.cat([x for x, _ in wanted]), dtype)
        torch.testing.assert_close(lse.double(), torch.cat([x for _, x in wanted], 1), rtol=1e-3, atol=1e-3)

    def test_numbers(self):
        random.seed(4)
        sizes = ((1, 300), (16, 30), (20, 20), (128, 5), (400, 1))
        calls = (
            (1, torch.float16, 128, False), (4, torch.bfloat16, 64, True), (200, torch.bfloat16, 128, False),
            (70, torch.float16, 64, True), (3, torch.float32, 32, False),
        )  # fmt: skip
        # Each pair of a page size and a mask, and each call, occurs; a kernel takes a second to compile.
        for at, ((size, columns), mask) in enumerate(itertools.product(sizes, MASKS)):
            count, dtype, dim, pads = calls[at % len(calls)]
            with self.subTest(size=size, mask=mask, count=count, dtype=dtype, pads=pads):
                self.problem(size, columns, [count] * 3, mask, dtype, dim, pads=pads)
            with self.subTest(size=size, mask=mask, packed=True):
                counts, dtype, dim, group, pads = [1, 200, 0, 33, 1], torch.bfloat16, 128, 4, False
                if at % 2:
                    dtype, dim, group, pads = torch.float16, 64, 1, True
                self.problem(size, columns, counts, mask, dtype, dim, group=group, pads=pads, packed=True)

    def test_graph(self):
        """One capture serves all lengths, tables and queries."""
        batch, size, columns, heads, kv_heads, dim = 4, 16, 20, 8, 2, 128
        like = {"device": self.device, "dtype": torch.float16}
        pool = torch.randn(100, 2, size, kv_heads, dim, **like)
        table = torch.randperm(100, device=self.device)[: batch * columns].view(batch, columns).int()
        lengths = torch.tensor([5, 100, 17, 300], device=self.device)
        q, k, v = (torch.randn(batch, 1, h, dim, **like) for h in (heads, kv_heads, kv_heads))
        angles = torch.rand(2, size * columns, dim // 2, device=self.device)

        def step():
            one = ft.decode(q, *pool.unbind(1), lengths, k, v, page_table=table, layout="bshd")
            two = fa2.flash_attn_with_kvcache(
                q, *pool.unbind(1), k, v, *angles, cache_seqlens=lengths, block_table=table, causal=True
            )
            return one, two

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = step()
        for lengths_now in ([6, 101, 18, 301], [1, 319, 16, 17], [319, 2, 33, 64]):
            lengths.copy_(torch.tensor(lengths_now))
            table.copy_(table.flip(0))
            for x in (q, k, v):
                x.copy_(torch.randn_like(x))
            before = pool.clone()
            graph.replay()
            found = [x.clone() for x in results]
            after = pool.clone()
            pool.copy_(before)
            for one, two in zip(found, step()):
                torch.testing.assert_close(one, two, rtol=0, atol=0)
            self.assertTrue(torch.equal(pool, after))

    def test_append(self):
        """Rows without a place are dropped on the device, where an index out of range would be an error."""
        pool = torch.randn(9, 2, 8, 2, 16, device=self.device)
        table = torch.tensor([[4, 99, 2], [-5, 0, 8]], device=self.device)
        new = torch.randn(2, 4, 2, 2, 16, device=self.device)
        wanted = pool.clone()
        lengths = [9, 26]  # row 8 of sequence 0 has no page, and rows 24 and 25 of sequence 1 are past its pages
        for b, n in enumerate(lengths):
            for j in range(4):
                row = n - 4 + j
                page = int(table[b, row // 8]) if row < 24 else -1
                if 0 <= page < 9:
                    wanted[page, :, row % 8] = new[b, j]
        ft.append(
            *pool.unbind(1), *new.unbind(2), torch.tensor(lengths, device=self.device), page_table=table,
            layout="bshd",
        )  # fmt: skip
        self.assertTrue(torch.equal(pool, wanted))


if __name__ == "__main__":
    unittest.main()
