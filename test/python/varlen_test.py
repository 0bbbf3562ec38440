# torch's varlen_attn with flashattn as flash attention implementation: values and gradients against float64.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import itertools
import unittest

import flashattn
import flashattn.torch as ft
import torch
from flashattn import ArgumentError, UnsupportedError
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
from torch.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

aten = torch.ops.aten
HEADS, KV_HEADS, DIM = 4, 2, 16
#: Lengths of queries and keys, some of them 0.
LENGTHS = ((7, 0, 1, 20, 33), (9, 4, 1, 0, 40))
WINDOWS = ((-1, -1), (-1, 0), (5, 0), (3, 2), (-1, 2), (4, -1))


def starts_of(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def reference(q, k, v, starts_q, starts_k, window, scale=None, used=None):
    """o and lse in float64, one sequence after the other. A row that sees no key is 0."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    left, right = (torch.inf if n < 0 else n for n in window)
    o, lse = [], []
    for b, rows in enumerate(zip(starts_q, starts_q[1:], starts_k, starts_k[1:])):
        first, end, first_key, end_key = map(int, rows)
        if used is not None:
            end_key = min(end_key, first_key + int(used[b]))
        count, keys = end - first, end_key - first_key
        distance = torch.arange(count)[:, None] + keys - count - torch.arange(keys)
        seen = (distance <= left) & (distance >= -right)
        scores = torch.einsum("qhd,khd->hqk", q[first:end], k[first_key:end_key])
        scores = (scores * (scale or DIM**-0.5)).masked_fill(~seen, -torch.inf)
        lse.append(scores.logsumexp(-1))
        shares = (scores - lse[-1].masked_fill(lse[-1] == -torch.inf, 0)[..., None]).exp()
        o.append(torch.einsum("hqk,khd->qhd", shares, v[first_key:end_key]))
    return torch.cat(o), torch.cat(lse, 1)


def make(dtype=torch.float32, lengths=LENGTHS, value_dim=DIM):
    torch.manual_seed(5)
    sizes = zip((HEADS, KV_HEADS, KV_HEADS), (sum(lengths[0]), *2 * (sum(lengths[1]),)), (DIM, DIM, value_dim))
    return [torch.randn(rows, heads, dim).to(dtype).requires_grad_() for heads, rows, dim in sizes]


class VarlenTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ft.register()
        activate_flash_attention_impl("flashattn")
        cls.addClassCleanup(restore_flash_attention_impl)
        cls.starts = tuple(map(starts_of, LENGTHS))
        cls.sizes = tuple(map(max, LENGTHS))

    def call(self, q, k, v, attend=varlen_attn, **options):
        return attend(q, k, v, *self.starts, *self.sizes, enable_gqa=True, **options)

    def test_values_and_gradients(self):
        for dtype, window, scale in (
            *((torch.float32, window, None) for window in WINDOWS),
            (torch.float32, (-1, 0), 0.4),
            (torch.bfloat16, (5, 0), 0.4),
            (torch.float16, (-1, 0), None),
        ):
            with self.subTest(dtype=dtype, window=window, scale=scale):
                given = make(dtype)
                o, lse = self.call(
                    *given, window_size=window, scale=scale, return_aux=AuxRequest(lse=True)
                )
                exact = [x.detach().double().requires_grad_() for x in given]
                wanted, wanted_lse = reference(*exact, *self.starts, window, scale)
                d_o = torch.randn_like(o)
                found = o, *torch.autograd.grad(o, given, d_o)
                wanted = wanted, *torch.autograd.grad(wanted, exact, d_o.double())
                bound = 1e-5 if dtype is torch.float32 else 2e-2
                torch.testing.assert_close(lse.double(), wanted_lse.detach(), rtol=bound, atol=bound)
                for mine, other in zip(found, wanted):
                    self.assertEqual(mine.dtype, dtype)
                    self.assertTrue(torch.isfinite(mine).all())
                    error = (mine.double() - other).norm() / other.norm()
                    self.assertLessEqual(float(error.detach()), bound)

    def test_another_size_of_values(self):
        given = make(value_dim=24)
        o = self.call(*given)
        wanted, _ = reference(*given, *self.starts, (-1, -1))
        torch.testing.assert_close(o.double(), wanted, rtol=1e-5, atol=1e-5)

    def test_heads_before_rows(self):
        """Results have the order of dimensions of the queries, as torch's rules for tracing say."""
        q, k, v = make(value_dim=24)
        q = q.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
        o = self.call(q, k, v)
        self.assertEqual(o.stride(), (24, 24 * len(q), 1))
        gradients = torch.autograd.grad(o.square().sum(), (q, k, v))
        for tensor, gradient in zip((q, k, v), gradients):
            self.assertEqual(gradient.stride(), tensor.stride())
        torch.testing.assert_close(o, self.call(q.contiguous(), k, v))

    def test_compiled(self):
        compiled = torch.compile(varlen_attn, backend="aot_eager", fullgraph=True)
        for window in WINDOWS:
            given = make()
            both = [self.call(*given, attend, window_size=window) for attend in (varlen_attn, compiled)]
            found = [torch.autograd.grad(o.square().sum(), given) for o in both]
            self.assertTrue(torch.equal(*both))
            self.assertTrue(all(map(torch.equal, *found)))

    def test_autocast_and_a_mode(self):
        given = make()
        with torch.autocast("cpu", torch.bfloat16), torch.profiler.profile() as profile:
            o = self.call(*given)
        self.assertEqual(o.dtype, torch.float32)  # varlen_attn has no rule for autocast
        self.assertIn("aten::_flash_attention_forward", {e.key for e in profile.key_averages()})
        self.assertTrue(torch.equal(o, self.call(*given)))

    def test_used_keys(self):
        q, k, v = (x.detach() for x in make())
        used = torch.tensor([3, 0, 1, 0, 35], dtype=torch.int32)
        for window in WINDOWS:
            o = self.call(q, k, v, seqused_k=used, window_size=window)
            wanted, _ = reference(q, k, v, *self.starts, window, used=used)
            torch.testing.assert_close(o.double(), wanted, rtol=1e-5, atol=1e-5)
        # Caches of equal size, one for each sequence.
        keys, values = torch.randn(5, 12, KV_HEADS, DIM), torch.randn(5, 12, KV_HEADS, DIM)
        used = torch.tensor([12, 5, 7, 1, 0], dtype=torch.int32)
        o, *_ = aten._flash_attention_forward(
            q, keys, values, self.starts[0], None, 33, 12, 0.0, True, False, seqused_k=used
        )
        slots = torch.arange(6) * 12
        wanted, _ = reference(
            q, keys.flatten(0, 1), values.flatten(0, 1), self.starts[0], slots, (-1, 0), used=used
        )
        torch.testing.assert_close(o.double(), wanted, rtol=1e-5, atol=1e-5)

    def test_out(self):
        q, k, v = (x.detach() for x in make())
        wanted, lse = self.call(q, k, v, window_size=(5, 0), return_aux=AuxRequest(lse=True))
        room = torch.full((len(q), 2 * HEADS, DIM), torch.nan)
        for out in (torch.empty_like(q), room[:, ::2]):
            given, found = varlen_attn_out(
                out, q, k, v, *self.starts, *self.sizes, enable_gqa=True, window_size=(5, 0),
                return_aux=AuxRequest(lse=True), num_splits=1,
            )  # fmt: skip
            self.assertIs(given, out)
            self.assertTrue(torch.equal(out, wanted) and torch.equal(found, lse))
        self.assertTrue(room[:, 1::2].isnan().all())

    def test_sequences_of_equal_length(self):
        """torch's operators without starts, and torch's own rule for their gradients."""
        q, k, v = (torch.randn(2, n, h, DIM, requires_grad=True) for n, h in ((5, 4), (9, 2), (9, 2)))
        for is_causal, left, right in ((True, None, None), (False, 3, 1), (True, 2, -1)):
            o, lse, *rest = aten._flash_attention_forward(
                q, k, v, None, None, 5, 9, 0.0, is_causal, False,
                scale=0.3, window_size_left=left, window_size_right=right,
            )  # fmt: skip
            self.assertEqual([x.shape for x in rest], [(2,), (), (0,)])
            mask = flashattn.window(left=left, right=0 if is_causal else right)
            wanted, wanted_lse = flashattn.attention(
                q, k, v, layout="bshd", scale=0.3, mask=mask, return_lse=True
            )
            torch.testing.assert_close((o, lse), (wanted, wanted_lse))
            found, other = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (o, wanted))
            torch.testing.assert_close(found, other)

    def test_pages(self):
        q = make()[0].detach()
        counts = [n for n in LENGTHS[1]]
        pool = torch.randn(9 * len(counts), 2, 8, 2, 16)
        table = torch.randperm(len(pool)).int().view(len(counts), 9)
        rows = [
            torch.cat([half[table[b]].flatten(0, 1)[:n] for b, n in enumerate(counts)]) for half in pool.unbind(1)
        ]
        wanted = aten._flash_attention_forward(q, *rows, *self.starts, *self.sizes, 0.0, True, False)[:2]
        for options, starts in (({}, self.starts), ({"seqused_k": self.starts[1].diff()}, (self.starts[0], None))):
            found = aten._flash_attention_forward(
                q, *pool.unbind(1), *starts, *self.sizes, 0.0, True, False, block_table=table, **options
            )[:2]
            torch.testing.assert_close(found, wanted)

    def test_refusals(self):
        q, k, v = (x.detach() for x in make())
        table = torch.zeros(5, 1, dtype=torch.int32)
        for position, options, kind, message in (
            ({7: 0.1}, {}, ArgumentError, "expected dropout_p 0 but got 0.1; pass 0.0"),
            ({9: True}, {}, UnsupportedError, "expected return_debug_mask False but got True"),
            ({}, {"alibi_slopes": torch.ones(4)}, UnsupportedError,
             "expected alibi_slopes None but got a tensor; pass a score_mod or a bias to flashattn.attention"),
            ({2: k, 4: None}, {"block_table": table}, ArgumentError, "expected kv_len with page_table but got None"),
            ({3: None}, {}, ArgumentError, "expected 'q' of rank 4 but got rank 3"),
            ({4: None}, {}, ArgumentError, "expected 'k' of rank 4 but got rank 3"),
            ({3: starts_of(LENGTHS[0]).float()}, {}, ArgumentError,
             "expected 'cu_seqlens_q' with element type i32 but got f32"),
            ({1: k[:, :1].expand(-1, 3, -1)}, {}, ArgumentError,
             "expected head count of 'v' to be 3 as in 'k' but got 2"),
        ):  # fmt: skip
            arguments = [q, k, v, *self.starts, *self.sizes, 0.0, False, False]
            for index, value in position.items():
                arguments[index] = value
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                aten._flash_attention_forward(*arguments, **options)

    def test_other_implementations_return(self):
        restore_flash_attention_impl()
        try:
            with self.assertRaises(NotImplementedError):  # torch has no such kernel for the CPU
                self.call(*make())
        finally:
            activate_flash_attention_impl("flashattn")
        self.call(*make())


if __name__ == "__main__":
    unittest.main()
