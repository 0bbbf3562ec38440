# Packed sequences of PyTorch tensors: gradients against a loop over the sequences, and graphs of torch.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import io
import unittest
import warnings

import torch
from flashattn import ArgumentError, KeywordError, attention, causal, window
from flashattn import torch as ft
from flashattn._options import OPERANDS
from torch.utils.flop_counter import FlopCounterMode

op = torch.ops.flashattn.attention.default
backward = torch.ops.flashattn.attention_backward.default
D, DV, HQ, HKV = 16, 24, 4, 2
QUERIES, KEYS = torch.tensor([5, 0, 37, 1, 12]), torch.tensor([7, 4, 50, 0, 70])


def starts_of(lengths, first=0):
    return torch.cat([torch.tensor([0]), lengths.cumsum(0)]).int() + first


CU_Q, CU_K = starts_of(QUERIES, 3), starts_of(KEYS, 2)
STARTS = {"cu_seqlens_q": CU_Q, "cu_seqlens_k": CU_K}


def inputs(grad=False, **options):
    """q, k, v and sink logits. Some rows belong to no sequence."""
    total_q, total_k = int(CU_Q[-1]) + 4, int(CU_K[-1]) + 4
    shapes = (total_q, HQ, D), (total_k, HKV, D), (total_k, HKV, DV)
    made = [*(torch.randn(shape, **options) for shape in shapes), torch.randn(HQ)]
    return [x.requires_grad_(grad) for x in made]


def one_by_one(q, k, v, sinks=None, **options):
    """The same by a loop over the sequences."""
    o = q.new_zeros(q.shape[0], HQ, DV)
    lse = torch.full((HQ, q.shape[0]), -torch.inf)
    for b in range(len(QUERIES)):
        at, keys = slice(CU_Q[b], CU_Q[b + 1]), slice(CU_K[b], CU_K[b + 1])
        one, one_lse = attention(
            q[None, at], k[None, keys], v[None, keys], layout="bshd", return_lse=True, sink_logits=sinks,
            **options,
        )  # fmt: skip
        o, lse = o.clone(), lse.clone()
        o[at], lse[:, at] = one[0], one_lse[0]
    return o, lse


def packed(q, k, v, sinks=None, **options):
    return attention(
        q, k, v, layout="thd", return_lse=True, sink_logits=sinks, **STARTS, **options
    )


def loss_of(o, lse, weights):
    return (o.float() * weights).sum() + lse[lse.isfinite()].square().sum()


def close(found, wanted, **tolerances):
    torch.testing.assert_close(found, wanted, **(tolerances or {"rtol": 1e-4, "atol": 1e-5}))


class SequencesTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        torch._dynamo.reset()

    def gradients(self, function, leaves, weights, **options):
        o, lse = function(*leaves, **options)
        used = [x for x in leaves if x is not None]
        return o, lse, torch.autograd.grad(loss_of(o, lse, weights), used)

    def test_autograd(self):
        weights = torch.randn(int(CU_Q[-1]) + 4, HQ, DV)
        for dtype in (torch.float32, torch.bfloat16):
            for options in ({}, {"mask": causal, "softcap": 3.0}, {"mask": window(left=5, right=1), "scale": 0.3}):
                with self.subTest(dtype=dtype, options=options):
                    leaves = inputs(True, dtype=dtype)
                    for given in (leaves, leaves[:3]):
                        for _ in range(2):  # the second call has a plan
                            found = self.gradients(packed, given, weights, **options)
                        wanted = self.gradients(one_by_one, given, weights, **options)
                        exact = dtype == torch.float32
                        tolerances = {} if exact else {"rtol": 2e-2, "atol": 2e-2}
                        for a, b in zip((*found[:2], *found[2]), (*wanted[:2], *wanted[2])):
                            close(a, b, **tolerances)

    def test_numbers_of_finite_differences(self):
        """The gradient along a random direction is the difference of two losses."""
        leaves = inputs(True)
        weights = torch.randn(int(CU_Q[-1]) + 4, HQ, DV)
        *_, found = self.gradients(packed, leaves, weights, mask=causal)
        for x, gradient in zip(leaves, found):
            direction = torch.randn_like(x)
            values = []
            for step in (-1e-2, 1e-2):
                moved = [y.detach() + step * direction if y is x else y.detach() for y in leaves]
                values.append(loss_of(*packed(*moved, mask=causal), weights).double())
            difference = (values[1] - values[0]) / 2e-2
            scale = gradient.norm().double() * direction.norm().double()
            self.assertLess(float((difference - (gradient * direction).sum()).abs() / scale), 2e-3)

    def test_layouts_and_int64(self):
        q, k, v, sinks = inputs()
        wanted = packed(q, k, v, sinks, mask=causal)
        options = {"mask": causal, "sink_logits": sinks, "return_lse": True}
        wide = {name: starts.long() for name, starts in STARTS.items()}
        bshd = attention(q[None], k[None], v[None], layout="bshd", **wide, **options)
        bhsd = attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), **wide, **options)
        lists = attention(q, k, v, layout="thd", cu_seqlens_q=CU_Q.tolist(), cu_seqlens_k=CU_K.tolist(), **options)
        for o, lse in (
            (bshd[0][0], bshd[1][0]), (bhsd[0][0].transpose(0, 1), bhsd[1][0]), lists,
        ):  # fmt: skip
            self.assertTrue(torch.equal(o, wanted[0]))
            self.assertTrue(torch.equal(lse, wanted[1]))
        for name in STARTS:  # an expanded or strided tensor is copied
            strided = torch.stack([STARTS[name]] * 2, 1)[:, 0]
            found = attention(q, k, v, layout="thd", **{**STARTS, name: strided}, **options)
            self.assertTrue(torch.equal(found[0], wanted[0]))

    def test_caches(self):
        """Packed queries against keys that each sequence has in a batch of its own."""
        q, k, v, _ = inputs()
        room = int(KEYS.max()) + 3
        caches = [torch.full((len(KEYS), room, HKV, x.shape[-1]), torch.nan) for x in (k, v)]
        for b, length in enumerate(KEYS):
            for cache, x in zip(caches, (k, v)):
                cache[b, :length] = x[CU_K[b] : CU_K[b + 1]]
        found = attention(
            q, *caches, layout="thd", mask=causal, cu_seqlens_q=CU_Q, kv_len=KEYS.int(), return_lse=True
        )
        for a, b in zip(found, packed(q, k, v, mask=causal)):
            self.assertTrue(torch.equal(a, b))

    def test_lengths_of_queries(self):
        q, k, v = (torch.randn(3, h, n, 8, requires_grad=True) for h, n in ((4, 20), (2, 30), (2, 30)))
        lengths = torch.tensor([20, 0, 7], dtype=torch.int32)
        o = attention(q, k, v, mask=causal, q_len=lengths)
        found = torch.autograd.grad(o.square().sum(), (q, k, v))
        rows = [attention(q[b, :, :n][None], k[b][None], v[b][None], mask=causal) for b, n in enumerate(lengths)]
        wanted = torch.autograd.grad(sum(x.square().sum() for x in rows), (q, k, v))
        for b, n in enumerate(lengths):
            close(o[b, :, :n], rows[b][0])
            self.assertTrue((o[b, :, n:] == 0).all())
        for a, b in zip(found, wanted):
            close(a, b)

    def test_operators(self):
        q, k, v, sinks = inputs(True)
        given = {**dict.fromkeys(OPERANDS), "sink_logits": sinks, **STARTS}
        torch.library.opcheck(op, (q, k, v, *given.values()), {"layout": "thd", "mask": "#flashattn.causal"})
        q, k, v, sinks = inputs()
        given["sink_logits"] = sinks
        o, lse = op(q, k, v, *given.values(), layout="thd")
        torch.library.opcheck(
            backward, (torch.randn_like(o), None, q, k, v, o, lse, *given.values()),
            {"layout": "thd", "needs_sink_logits": True},
        )  # fmt: skip

    def test_compile(self):
        weights = torch.randn(int(CU_Q[-1]) + 4, HQ, DV)
        leaves = inputs(True)
        for dynamic in (False, True):
            compiled = torch.compile(packed, backend="aot_eager", fullgraph=True, dynamic=dynamic)
            found = self.gradients(compiled, leaves, weights, mask=causal)
            wanted = self.gradients(packed, leaves, weights, mask=causal)
            for a, b in zip((*found[:2], *found[2]), (*wanted[:2], *wanted[2])):
                close(a, b)

    def test_export(self):
        class Layer(torch.nn.Module):
            def forward(self, q, k, v, cu_q, cu_k):
                return attention(q, k, v, layout="thd", mask=causal, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)

        q, k, v, _ = inputs()
        rows, keys, count = (torch.export.Dim(name, min=2) for name in ("rows", "keys", "count"))
        program = torch.export.export(
            Layer(), (q, k, v, CU_Q, CU_K),
            dynamic_shapes=({0: rows}, {0: keys}, {0: keys}, {0: count}, {0: count}),
        )  # fmt: skip
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        layer = torch.export.load(file).module()
        self.assertTrue(torch.equal(layer(q, k, v, CU_Q, CU_K), Layer()(q, k, v, CU_Q, CU_K)))
        fewer = q[:9], k[:8], v[:8], starts_of(torch.tensor([4, 5])), starts_of(torch.tensor([1, 7]))
        self.assertTrue(torch.equal(layer(*fewer), Layer()(*fewer)))

    def test_transforms(self):
        """vmap calls the operator for each element, because rows of several batches cannot be packed."""
        q, k, v, _ = inputs()
        many = torch.randn(3, *q.shape)
        found = torch.func.vmap(lambda x: packed(x, k, v)[0])(many)
        for one, x in zip(found, many):
            self.assertTrue(torch.equal(one, packed(x, k, v)[0]))

        def loss(x):
            return packed(x, k, v)[0].square().sum()

        x = q.clone().requires_grad_()
        close(torch.func.grad(loss)(q), torch.autograd.grad(loss(x), x)[0])
        each = torch.func.vmap(torch.func.grad(loss))(many)
        close(each[2], torch.func.grad(loss)(many[2]))
        lengths = torch.tensor([[3], [5]], dtype=torch.int32)
        row = torch.randn(1, 2, 6, 8)
        found = torch.func.vmap(lambda n: attention(row, row, row, q_len=n))(lengths)
        for one, n in zip(found, lengths):
            self.assertTrue(torch.equal(one, attention(row, row, row, q_len=n)))

    def test_autocast(self):
        q, k, v, _ = inputs()
        with torch.autocast("cpu", torch.bfloat16):
            found = packed(q, k, v, mask=causal)[0]
        self.assertTrue(torch.equal(found, packed(*(x.bfloat16() for x in (q, k, v)), mask=causal)[0]))

    def test_flops(self):
        """Sequences count as if they had equal lengths."""
        q, k, v = torch.randn(20, 4, 8), torch.randn(40, 2, 8), torch.randn(40, 2, 8)
        starts = {"cu_seqlens_q": torch.tensor([0, 10, 20]), "cu_seqlens_k": torch.tensor([0, 20, 40])}
        alone = [x.unflatten(0, (2, -1)) for x in (q, k, v)]
        counts = []
        for call in (
            lambda: attention(q, k, v, layout="thd", **starts),
            lambda: attention(q, *alone[1:], layout="thd", cu_seqlens_q=starts["cu_seqlens_q"]),
            lambda: attention(*alone, layout="bshd"),
        ):
            with FlopCounterMode(display=False) as counter:
                call()
            counts.append(counter.get_total_flops())
        self.assertEqual(counts, [counts[2]] * 3)

    def test_messages(self):
        q, k, v, _ = inputs()
        leaf = q.clone().requires_grad_()
        row = torch.randn(2, 4, 5, 8)
        meta = {name: x.to("meta") for name, x in STARTS.items()}
        compiled = torch.compile(packed, backend="eager", fullgraph=True)
        step = row[:, :, :1], row, row, torch.tensor([5, 5])
        cases = (
            (ArgumentError, "expected cu_seqlens_q with layout thd but got None", lambda: attention(leaf, k, v, layout="thd")),
            (ArgumentError, "expected 'q' of rank 3 but got rank 4", lambda: packed(leaf[None], k, v)),
            (ArgumentError, "expected 'q' of rank 3 but got rank 4", lambda: compiled(leaf[None], k, v)),
            (ArgumentError, "expected no bias with cu_seqlens_q but got one", lambda: packed(leaf, k, v, bias=torch.zeros(1))),
            (ArgumentError, "expected no attn_mask with q_len but got one", lambda: attention(
                row, row, row, q_len=torch.tensor([1, 2]), attn_mask=torch.ones(5, 5, dtype=torch.bool))),
            (ArgumentError, "expected 'cu_seqlens_q' on cpu as 'q' but got meta",
             lambda: attention(leaf, k, v, layout="thd", **meta)),
            (ArgumentError, "expected 'cu_seqlens_q' with element type i32 but got f32",
             lambda: attention(leaf, k, v, layout="thd", cu_seqlens_q=CU_Q.float(), cu_seqlens_k=CU_K)),
            (ArgumentError, "expected starts from 0 to 61 in 'cu_seqlens_q' but got 65",  # without a plan
             lambda: attention(leaf[1:], k, v, layout="thd", cu_seqlens_q=CU_Q + 7, cu_seqlens_k=CU_K)),
            (ArgumentError, "expected starts from 0 to 62 in 'cu_seqlens_q' but got 65",  # with one
             lambda: [attention(leaf, k, v, layout="thd", cu_seqlens_q=CU_Q + n, cu_seqlens_k=CU_K) for n in (0, 7)]),
            (ArgumentError, "expected starts that do not decrease in 'cu_seqlens_k' but got",
             lambda: attention(q, k, v, layout="thd", cu_seqlens_q=CU_Q, cu_seqlens_k=CU_K.flip(0))),
            (ArgumentError, "expected 6 starts in 'cu_seqlens_k', as in 'cu_seqlens_q', but got 5",
             lambda: attention(q, k, v, layout="thd", cu_seqlens_q=CU_Q, cu_seqlens_k=CU_K[1:])),
            (KeywordError, "decode() got an unexpected keyword argument 'cu_seqlens_q'; expected none: only flashattn.attention",
             lambda: ft.decode(*step, cu_seqlens_q=CU_Q)),
            (ArgumentError, "expected layout bhsd or bshd but got 'thd'", lambda: ft.decode(*step, layout="thd")),
        )  # fmt: skip
        for number, (kind, message, call) in enumerate(cases):
            with self.subTest(number=number, message=message), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with self.assertRaises(Exception) as caught:
                    call()
                self.assertIn(message, str(caught.exception))
                if "compiled" not in call.__code__.co_freevars:
                    self.assertIsInstance(caught.exception, kind)

    @unittest.skipUnless(torch.distributed.is_available(), "torch has no DTensor")
    def test_sharding_is_refused(self):
        from torch.distributed.tensor import DeviceMesh, Replicate, distribute_tensor
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        try:
            mesh = DeviceMesh("cpu", [0, 1])
            given = [distribute_tensor(x, mesh, [Replicate()]) for x in (*inputs()[:3], CU_Q, CU_K)]
            # torch raises its own error with the message.
            with self.assertRaisesRegex(RuntimeError, "expected plain tensors with cu_seqlens_q but got DTensors"):
                attention(*given[:3], layout="thd", cu_seqlens_q=given[3], cu_seqlens_k=given[4])
            pages = [torch.ones(2, 5, 2, 16), *torch.ones(2, 7, 8, 2, 16), torch.ones(2, 3).int(), torch.ones(2).int()]
            q, k, v, table, lengths = (distribute_tensor(x, mesh, [Replicate()]) for x in pages)
            with self.assertRaisesRegex(RuntimeError, "expected plain tensors with page_table but got DTensors"):
                attention(q, k, v, page_table=table, kv_len=lengths, layout="bshd")
        finally:
            torch.distributed.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
