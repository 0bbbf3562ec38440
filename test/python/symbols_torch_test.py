# Masks that read tensors (rules Y1 and Y2) with torch: autograd, opcheck, torch.compile, vmap, torch.func, tracing and
# export, against float64.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import copy
import os
import pickle
import sys
import unittest

import numpy
import torch
from flashattn import ArgumentError, affine_set, attention, causal, masks
from flashattn import torch as ft
from flashattn._options import OPERANDS
from torch.fx.experimental.proxy_tensor import make_fx

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "Inputs"))
from symbol_masks import BATCH, HEADS, KV_HEADS, make_forest, make_runs, named_cases, set_cases  # noqa: E402

op = torch.ops.flashattn.attention.default
backward = torch.ops.flashattn.attention_backward.default
NOTHING = (None,) * len(OPERANDS)
N = 40


def in_double(q, k, v, seen):
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q.double() @ k.mT * q.shape[3] ** -0.5).masked_fill(~seen, -torch.inf)
    sees = seen.any(-1, keepdim=True).expand(*scores.shape[:3], 1)
    return torch.where(sees, scores.where(sees, 0.0).softmax(-1), 0.0) @ v


def draw(nq=N, nk=N, *batch):
    return [torch.randn(*batch, BATCH, h, n, 16) for h, n in ((HEADS, nq), (KV_HEADS, nk), (KV_HEADS, nk))]


def mask_of(n, start, end):
    prefix = affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[n])
    first = affine_set("(p, k)[nq, nk, start] : (k - start >= 0)", per_query=[start])
    last = affine_set("(p, k)[nq, nk, end] : (end - 1 - p >= 0)", per_key=[end])
    return (prefix | first & last) & causal


def attend(q, k, v, n, start, end):
    return attention(q, k, v, mask=mask_of(n, start, end))


def wanted_of(q, k, v, n, start, end):
    p, j = torch.arange(N)[:, None], torch.arange(N)
    n = n.reshape(-1, 1, 1, 1)
    start, end = (x.expand(BATCH, N)[:, None] for x in (start, end))
    seen = ((j < n) | ((j >= start[..., None]) & (p < end[..., None, :]))) & (j <= p)
    return in_double(q, k, v, seen)


class SymbolsTorchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        self.symbols = (
            torch.tensor([30, 5]),
            (torch.arange(N) - 15).clamp(0).int(),
            (torch.arange(N) + 20).clamp(max=N).int().repeat(BATCH, 1),
        )

    def near(self, found, wanted):
        error = (found.double() - wanted).norm()
        self.assertLessEqual(error.item(), 1e-5 * wanted.norm().item() + 1e-12)

    def check(self, function, wanted, rows):
        rows = [x.detach().requires_grad_() for x in rows]
        found, wanted = function(*rows), wanted(*rows)
        self.near(found, wanted)
        d_o = torch.randn(found.shape)
        gradients = (torch.autograd.grad(o, rows, x) for o, x in ((found, d_o), (wanted, d_o.double())))
        for one, other in zip(*gradients):
            self.near(one, other.double())

    def test_autograd(self):
        generator = numpy.random.default_rng(12)
        for name, case in {**set_cases(generator), **named_cases(generator)}.items():
            with self.subTest(name):
                mask, seen = case.make(torch.from_numpy), torch.from_numpy(case.seen())
                call = lambda *rows: attention(*rows, mask=mask, align="top_left")  # noqa: E731
                for _ in range(2):  # the second call has a plan
                    self.check(call, lambda *rows: in_double(*rows, seen), draw(case.nq, case.nk))
                with torch.no_grad():
                    rows = draw(case.nq, case.nk)
                    self.near(call(*rows), in_double(*rows, seen))

    def test_writes(self):
        n = torch.tensor([5, 30], dtype=torch.int32)
        mask = affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[n])
        for lengths in ((5, 30), (40, 0), (1, 2)):
            n.copy_(torch.tensor(lengths))
            seen = torch.arange(N) < n[:, None, None, None]
            self.check(lambda *rows: attention(*rows, mask=mask), lambda *rows: in_double(*rows, seen), draw())
        q, k, v = (x.requires_grad_() for x in draw())
        o = attention(q, k, v, mask=mask)
        n += 1
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            o.sum().backward()

    def test_opcheck(self):
        mask = mask_of(*self.symbols)
        symbols = [x for _, x in mask._symbols]
        q, k, v = draw()
        for leaf in (q, q.clone().requires_grad_()):
            torch.library.opcheck(op, (leaf, k, v, *NOTHING, *symbols), {"mask": str(mask)})
        o, lse = op(q, k, v, *NOTHING, *symbols, mask=str(mask))
        torch.library.opcheck(
            backward, (torch.randn_like(o), None, q, k, v, o, lse, *NOTHING, *symbols), {"mask": str(mask)}
        )
        with self.assertRaisesRegex(ArgumentError, "^expected 3 symbols, which the mask reads, but got 2$"):
            op(q, k, v, *NOTHING, *symbols[:2], mask=str(mask))
        with self.assertRaisesRegex(ArgumentError, "^expected 3 symbols, which the mask reads, but got 0$"):
            op(q, k, v, *NOTHING, mask=str(mask))
        with self.assertRaisesRegex(ArgumentError, "^expected 0 symbols, which the mask reads, but got 3$"):
            op(q, k, v, *NOTHING, *symbols)

    def test_compiled(self):
        n, start, end = (x.int() for x in self.symbols)
        mask = mask_of(n, start, end)
        for options in ({}, {"fullgraph": True}, {"fullgraph": True, "dynamic": True}):
            compiled = torch.compile(attend, backend="aot_eager", **options)
            outside = torch.compile(lambda *rows: attention(*rows, mask=mask), backend="aot_eager", **options)
            for _ in range(2):
                for call in (lambda *rows: compiled(*rows, n, start, end), outside):
                    self.check(call, lambda *rows: wanted_of(*rows, n, start, end), draw())
                n += 3

    def test_named_masks_in_graphs(self):
        """They are made of tensors inside of what torch compiles and maps."""
        generator = numpy.random.default_rng(3)
        ids = torch.from_numpy(make_runs(generator, 3, BATCH, N))
        parents = torch.from_numpy(
            numpy.stack([[make_forest(generator, N) for _ in range(BATCH)] for _ in range(3)])
        )
        rows = torch.randint(0, N + 1, (3, BATCH, 1, N, 4)).sort(-1).values
        n, flag = torch.randint(0, N, (3, BATCH)), torch.tensor([[True, False]] * 3)
        starts = torch.tensor([[[0, 3, 9], [0, 10, 35]]] * 3)
        q_ranges, k_ranges = torch.tensor([[[0, 10], [10, N]]] * 3), torch.tensor([[[0, 10], [5, N]]] * 3)
        makes = {
            "prefix": (lambda n: masks.prefix(n) | causal, n),
            "window": (lambda n: masks.window(left=n, right=3), n),
            "causal_if": (masks.causal_if, flag),
            "documents": (masks.documents, ids),
            "starts": (lambda starts: masks.documents(starts=starts, length=N, causal=True), starts),
            "shared_question": (lambda ids: masks.shared_question(5, ids), ids),
            "tree": (masks.tree, parents),
            "flashmask": (masks.flashmask, rows),
            "ranges": (lambda x: masks.ranges(x, k_ranges[0], ["causal", 0], queries=N), q_ranges),
        }
        for name, (make, given) in makes.items():
            with self.subTest(name):
                torch._dynamo.reset()
                call = lambda *given, make=make: attention(*given[:3], mask=make(given[3]))  # noqa: E731
                compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
                leaves = draw()
                self.assertTrue(torch.equal(compiled(*leaves, given[0]), call(*leaves, given[0])))
                leaves = draw(N, N, 3)
                each = [call(*(x[i] for x in (*leaves, given))) for i in range(3)]
                torch.testing.assert_close(torch.vmap(call)(*leaves, given), torch.stack(each))

    def test_packed_gradients(self):
        ids = torch.from_numpy(make_runs(numpy.random.default_rng(4), BATCH, N))
        make = lambda ids: causal & affine_set(  # noqa: E731
            "(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[ids], per_key=[ids]
        )
        starts = torch.tensor([0, N, 2 * N], dtype=torch.int32)

        def packed(q, k, v):
            q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
            o = attention(
                q, k, v, mask=make(ids.flatten()), layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts
            )
            return o.unflatten(0, (BATCH, N)).transpose(1, 2)

        p = torch.arange(N)
        seen = (ids[:, None, :, None] == ids[:, None, None]) & (p <= p[:, None])
        self.check(packed, lambda *rows: in_double(*rows, seen), draw())

    def test_a_count_in_a_graph(self):
        call = lambda *rows: attention(  # noqa: E731
            *rows, mask=affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[7]) | causal
        )
        p, j = torch.arange(N)[:, None], torch.arange(N)
        wanted = lambda *rows: in_double(*rows, (j < 7) | (j <= p))  # noqa: E731
        for function in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
            self.check(function, wanted, draw())
        with torch.inference_mode():
            call(*draw())
        self.check(call, wanted, draw())

    def test_graph(self):
        rows = draw()
        graph = make_fx(attend, tracing_mode="fake")(*rows, *self.symbols)
        self.assertIn("[nq, nk, sequence0, query0, key0]", graph.code)
        rows, symbols = draw(), (self.symbols[0] + 3, *self.symbols[1:])
        self.near(graph(*rows, *symbols), wanted_of(*rows, *symbols))

    def test_export(self):
        class Layer(torch.nn.Module):
            def forward(self, *given):
                return attend(*given)

        program = torch.export.export(Layer(), (*draw(), *self.symbols))
        rows, symbols = draw(), (self.symbols[0] + 3, *self.symbols[1:])
        self.near(program.module()(*rows, *symbols), wanted_of(*rows, *symbols))

    def test_transforms(self):
        n, start, end = self.symbols
        rows, draw_one = draw(N, N, 3), draw()
        own = (
            torch.randint(0, N, (3, BATCH)),
            torch.stack([(start - i).clamp(0) for i in range(3)]),
            torch.stack([end + i for i in range(3)]),
        )
        found = torch.vmap(attend, (None, None, None, 0, None, None))(*draw_one, own[0], start, end)
        self.near(found, torch.stack([wanted_of(*draw_one, n, start, end) for n in own[0]]))
        for places in ((None, None, None), (0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0)):
            with self.subTest(places=places):
                given = [x if at is None else y for x, y, at in zip(self.symbols, own, places)]
                found = torch.vmap(attend, (0, 0, 0, *places))(*rows, *given)
                each = [
                    wanted_of(*(x[i] for x in rows), *(x if at is None else x[i] for x, at in zip(given, places)))
                    for i in range(3)
                ]
                self.near(found, torch.stack(each))
        found = torch.vmap(attend, (0, 0, 0, 1, 0, 0))(*rows, own[0].T.contiguous(), *own[1:])
        each = [wanted_of(*(x[i] for x in (*rows, *own))) for i in range(3)]
        self.near(found, torch.stack(each))
        found = torch.vmap(attend)(*rows, own[0][:, 1], *own[1:])
        each = [wanted_of(*(x[i] for x in (*rows, own[0][:, 1], *own[1:]))) for i in range(3)]
        self.near(found, torch.stack(each))
        q, k, v = draw()
        found = torch.func.grad(lambda q: attend(q, k, v, n, start, end).square().sum())(q)
        leaf = q.clone().requires_grad_()
        self.near(found, torch.autograd.grad(wanted_of(leaf, k, v, n, start, end).square().sum(), leaf)[0].double())
        loss = lambda q, k, v, *given: attend(q, k, v, *given).square().sum()  # noqa: E731
        found = torch.vmap(torch.func.grad(loss))(*rows, *own)
        leaf = rows[0].clone().requires_grad_()
        each = [wanted_of(leaf[i], rows[1][i], rows[2][i], *(x[i] for x in own)) for i in range(3)]
        self.near(found, torch.autograd.grad(torch.stack(each).square().sum(), leaf)[0].double())

    def test_autocast(self):
        rows = draw()
        with torch.autocast("cpu", torch.bfloat16):
            found = attend(*rows, *self.symbols)
        self.assertEqual(found.dtype, torch.bfloat16)
        wanted = wanted_of(*rows, *self.symbols)
        self.assertLess(((found.double() - wanted).norm() / wanted.norm()).item(), 2e-2)

    def test_values(self):
        mask = mask_of(*self.symbols)
        rows = draw()
        for other in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask)):
            self.assertEqual(str(other), str(mask))
            self.assertTrue(torch.equal(attention(*rows, mask=other), attention(*rows, mask=mask)))

    def test_lists_and_copies(self):
        rows = draw()
        wanted = attention(*rows, mask=masks.ranges([[0, 9], [9, N]], [[0, 5], [3, N]], queries=N))
        found = attention(*rows, mask=masks.ranges(torch.tensor([[0, 9], [9, N]]), [[0, 5], [3, N]], queries=N))
        self.near(found, wanted.double())
        given = torch.tensor([[[[3, 1]]]], dtype=torch.int32)
        mask = masks.flashmask(given, causal=True)
        given.zero_()
        self.assertEqual([x.item() for _, x in mask._symbols], [3, 1])

    def test_decode(self):
        """A cache of chains and the nodes of a tree behind it: as the last rows of attention over all keys."""
        nodes, capacity = 5, N + 8
        parents = torch.arange(-1, capacity - 1, dtype=torch.int32)
        parents[N - nodes : N] = torch.tensor([N - nodes - 1, N - nodes, N - nodes, N - nodes - 1, N - 2])
        q, k, v = draw(nodes, capacity)
        lengths = torch.full((BATCH,), N, dtype=torch.int32)
        start = torch.tensor([2, 7], dtype=torch.int32)[:BATCH]
        mask = masks.tree(parents) & masks.left_padding(start)
        seen = torch.zeros(nodes, capacity, dtype=torch.bool)
        for i in range(nodes):
            at = N - nodes + i
            while at >= 0:
                seen[i, at] = True
                at = int(parents[at])
        seen = seen & (torch.arange(capacity) >= start[:, None, None, None])
        wanted = in_double(q, k, v, seen)
        self.near(ft.decode(q, k, v, lengths, mask=mask), wanted)
        caches = [torch.cat((x[:, :, : N - nodes], torch.zeros_like(x[:, :, N - nodes :])), 2) for x in (k, v)]
        new = [x[:, :, N - nodes : N] for x in (k, v)]
        compiled = torch.compile(lambda *x: ft.decode(*x, mask=mask), backend="aot_eager", fullgraph=True)
        self.near(compiled(q, *caches, lengths, *new), wanted)
        pools = [x.reshape(BATCH, KV_HEADS, 6, 8, 16).transpose(1, 2).reshape(-1, KV_HEADS, 8, 16) for x in (k, v)]
        table = torch.arange(BATCH * 6, dtype=torch.int32).reshape(BATCH, 6)
        self.near(ft.decode(q, *pools, lengths, page_table=table, mask=mask), wanted)
        with self.assertRaisesRegex(ArgumentError, "^expected align top_left, or q_len, in a call with kv_len and the"):
            ft.decode(q, k, v, lengths, mask=masks.documents(torch.zeros(nodes, dtype=int)))

    def test_refused(self):
        n, start, end = self.symbols
        documents = masks.documents(torch.zeros(20, dtype=int))
        for kind, message, call in (
            (ArgumentError, "^expected 'per_query0' on cpu as 'q' but got meta$",
             lambda: attend(*draw(), n, start.to("meta"), end)),
            (ArgumentError, "^expected k_ranges to be a tensor of torch on cpu but got an array of numpy$",
             lambda: masks.ranges(torch.tensor([[0, 3]]), numpy.array([[0, 3]]), queries=N)),
            (ArgumentError, "^expected types to be a tensor of torch on meta but got a tensor of torch on cpu$",
             lambda: masks.ranges(*[torch.zeros(1, 2, dtype=int, device="meta")] * 2, torch.zeros(1), queries=N)),
            (ArgumentError, "^expected as many keys as queries with the mask documents but got 40 keys and 20 queries$",
             lambda: torch.compile(attention, backend="aot_eager")(*draw(20), mask=documents)),
        ):  # fmt: skip
            with self.assertRaisesRegex(kind, message):
                call()


if __name__ == "__main__":
    unittest.main()
