# On a GPU with torch: masks that read tensors, forward and backward, against float64; without a wait of the host, and
# in CUDA graphs, which read the tensors' elements at each replay.
# REQUIRES: python-package, cuda, torch
# RUN: %flashattn_python %s

import os
import sys
import unittest

import numpy
import torch
from flashattn import ArgumentError, attention, attention_backward, causal, masks
from flashattn import torch as ft
from torch.nn.attention.flex_attention import create_block_mask

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "Inputs"))
from symbol_masks import BATCH, HEADS, KV_HEADS, N, named_cases, set_cases  # noqa: E402

#: Relative Frobenius norm of the error, of values and of gradients.
RELATIVE = {torch.float16: (1e-3, 3e-3), torch.bfloat16: (8e-3, 2e-2), torch.float32: (1e-5, 1e-5)}


def in_double(q, k, v, seen):
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q.double() @ k.mT * q.shape[3] ** -0.5).masked_fill(~seen, -torch.inf)
    sees = seen.any(-1, keepdim=True).expand(*scores.shape[:3], 1)
    return torch.where(sees, scores.where(sees, 0.0).softmax(-1), 0.0) @ v


class SymbolsCudaTest(unittest.TestCase):
    device = "cuda"

    def setUp(self):
        torch.manual_seed(6)

    def to(self, array):
        return torch.from_numpy(numpy.ascontiguousarray(array)).to(self.device)

    def draw(self, nq, nk, dtype, dim=64):
        shapes = (HEADS, nq), (KV_HEADS, nk), (KV_HEADS, nk)
        return [torch.randn(BATCH, *x, dim, device=self.device).to(dtype).requires_grad_() for x in shapes]

    def near(self, found, wanted, bound):
        self.assertFalse(found.isnan().any())
        found, wanted = found.detach().double(), wanted.detach()
        self.assertLessEqual(float((found - wanted).norm()), bound * float(wanted.norm()) + 1e-4)

    def test_masks(self):
        generator = numpy.random.default_rng(14)
        cases = {**set_cases(generator), **named_cases(generator)}
        for at, (name, case) in enumerate(cases.items()):
            dtype = list(RELATIVE)[at % 3]
            with self.subTest(name, dtype=dtype):
                rows, seen = self.draw(case.nq, case.nk, dtype), self.to(case.seen())
                found, wanted = attention(*rows, mask=case.make(self.to), align="top_left"), in_double(*rows, seen)
                self.near(found, wanted, RELATIVE[dtype][0])
                d_o = torch.randn_like(found)
                gradients = torch.autograd.grad(found, rows, d_o), torch.autograd.grad(wanted, rows, d_o.double())
                for one, other in zip(*gradients):
                    self.near(one, other, RELATIVE[dtype][1])

    def test_few_queries(self):
        """Kernels that split the keys, of heads that share a tile."""
        n = torch.tensor([300, 1200], dtype=torch.int32, device=self.device)
        starts = torch.arange(3, dtype=torch.int32, device=self.device) * 400
        j = torch.arange(2000, device=self.device)
        for name, mask, seen in (
            ("prefix", masks.prefix(n), (j < n[:, None, None, None]).expand(BATCH, 1, 3, 2000)),
            ("left padding", masks.left_padding(n), (j >= n[:, None, None, None]).expand(BATCH, 1, 3, 2000)),
            ("window", masks.window(left=n, right=0) & causal,
             (j >= torch.arange(1997, 2000, device=self.device)[:, None] - n[:, None, None, None])
             & (j <= torch.arange(1997, 2000, device=self.device)[:, None])),
            ("queries", masks._set("k - query0 >= 0", per_query=[starts]),
             (j >= starts[:, None]).expand(BATCH, 1, 3, 2000)),
        ):  # fmt: skip
            with self.subTest(name), torch.no_grad():
                rows = self.draw(3, 2000, torch.float16, 128)
                self.near(attention(*rows, mask=mask), in_double(*rows, seen), 1e-3)

    def test_the_host_does_not_wait(self):
        rows = [x.detach() for x in self.draw(N, N, torch.float16)]
        ids = torch.arange(N, device=self.device) // 30
        parents = torch.arange(N, device=self.device) - 1
        n = torch.tensor([3, 70], device=self.device)
        calls = [
            lambda: masks.prefix(n) | causal, lambda: masks.documents(ids), lambda: masks.tree(parents),
            lambda: masks.shared_question(n, ids), lambda: masks.causal_if(n > 5), lambda: masks.prefix(9) | causal,
            lambda: masks.documents(starts=n, length=N, causal=True),
            lambda: masks.flashmask(ids[None, None, :, None] + 30, causal=True),
        ]  # fmt: skip
        for make in calls:
            attention(*rows, mask=make())  # compiles
        torch.cuda.synchronize()
        self.addCleanup(torch.cuda.set_sync_debug_mode, "default")
        torch.cuda.set_sync_debug_mode("error")
        for make in calls:
            attention(*rows, mask=make())

    def test_graphs(self):
        rows = [x.detach() for x in self.draw(N, N, torch.float16)]
        n = torch.tensor([5, 40], dtype=torch.int32, device=self.device)
        ids = torch.arange(N, device=self.device) // 30
        outside = masks.prefix(n) | causal

        def call():
            return attention(*rows, mask=outside), attention(*rows, mask=masks.documents(ids) & masks.prefix(77))

        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = call()
        j = torch.arange(N, device=self.device)
        for lengths, size in (((5, 40), 30), ((0, 99), 45), ((60, 1), 7)):
            n.copy_(torch.tensor(lengths))
            ids.copy_(torch.arange(N) // size)
            graph.replay()
            prefix = (j < n[:, None, None, None]) | (j <= j[:, None])
            self.near(found[0], in_double(*rows, prefix), 1e-3)
            self.near(found[1], in_double(*rows, ((ids == ids[:, None]) & (j < 77))[None, None]), 1e-3)

    def test_flex(self):
        rows = self.draw(N, N, torch.float32)
        ids = torch.arange(N, device=self.device) // 30
        lengths = torch.tensor([40, 90], dtype=torch.int32, device=self.device)
        mask_mod = lambda b, h, q, k: ((ids[q] == ids[k]) | (k < lengths[b])) & (q >= k)  # noqa: E731
        block_mask = create_block_mask(mask_mod, BATCH, None, N, N, device=self.device)
        j = torch.arange(N, device=self.device)
        for _ in range(2):
            found = ft.flex_attention(*rows, block_mask=block_mask, enable_gqa=True)
            seen = ((ids == ids[:, None]) | (j < lengths[:, None, None, None])) & (j <= j[:, None])
            self.near(found, in_double(*rows, seen), 1e-5)
            ids += torch.arange(N, device=self.device) // 50
            lengths -= 20

    def test_lists(self):
        """They are copied to the device, whether autograd records the call or not."""
        rows, lengths = self.draw(N, N, torch.float32), [5, 40]
        seen = torch.arange(N, device=self.device) < self.to(numpy.array(lengths))[:, None, None, None]
        wanted = in_double(*rows, seen)
        for options in ({"mask": masks.prefix(lengths)}, {"kv_len": lengths}):
            found, lse = attention(*rows, **options, return_lse=True)
            self.near(found, wanted, 1e-5)
            with torch.no_grad():
                self.near(attention(*rows, **options), wanted, 1e-5)
                d_o = torch.ones_like(found)
                dq, _, _ = attention_backward(*rows, found, lse, d_o, **options)
            self.near(dq, torch.autograd.grad(found, rows, d_o)[0].double(), 1e-5)

    def test_refused(self):
        rows = self.draw(N, N, torch.float16)
        message = "expected 'per_sequence0' on cuda:0 as 'q' but got the CPU"
        with self.assertRaisesRegex(ArgumentError, message), torch.no_grad():
            attention(*rows, mask=masks.prefix(torch.tensor([3, 4])))


if __name__ == "__main__":
    unittest.main()
