# Keys in pages in PyTorch: eager, compiled, exported and mapped calls; decode and append; what is refused.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import itertools
import unittest

import torch
from flashattn import ArgumentError, FlashAttnError, UnsupportedError, attention, causal, window
from flashattn import torch as ft
from flashattn.flash_attn.layers.rotary import apply_rotary_emb
from torch.utils.flop_counter import FlopCounterMode

B, P, S, PAGES, H, G, D = 3, 4, 8, 17, 4, 2, 16


def attend(q, k, v, table, lengths, **options):
    return attention(q, k, v, page_table=table, kv_len=lengths, layout="bshd", mask=causal, **options)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


class PagedTorchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        torch._dynamo.reset()
        self.q = torch.randn(B, 5, H, D)
        self.pool = torch.randn(PAGES, 2, S, G, D)
        self.k, self.v = self.pool.unbind(1)
        self.table = torch.randperm(PAGES)[: B * P].view(B, P)
        self.lengths = torch.tensor([3, 32, 17])
        self.given = self.q, self.k, self.v, self.table, self.lengths

    def gathered(self, table, lengths):
        """The caches that the pages make, with the lengths of their sequences."""
        k, v = (pool[table.long()].flatten(1, 2) for pool in self.pool.unbind(1))
        return k, v, lengths

    def test_ways_of_calling(self):
        k, v, lengths = self.gathered(self.table, self.lengths)
        wanted = attention(self.q, k, v, kv_len=lengths, layout="bshd", mask=causal)
        close(attend(*self.given), wanted)
        close(attend(*self.given[:3], self.table.int(), self.lengths.int()), wanted)
        out = torch.empty_like(self.q)
        attend(*self.given, out=out)
        close(out, wanted)
        compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
        close(compiled(*self.given), wanted)

        class Layer(torch.nn.Module):
            def forward(self, *given):
                return attend(*given)

        close(torch.export.export(Layer(), self.given).module()(*self.given), wanted)
        starts = torch.tensor([0, 5, 10, 15])
        packed = attention(
            self.q.flatten(0, 1), self.k, self.v, page_table=self.table, kv_len=self.lengths,
            cu_seqlens_q=starts, layout="thd", mask=causal,
        )  # fmt: skip
        close(packed.view_as(wanted), wanted)
        heads = [x.transpose(1, 2) for x in self.given[:3]]
        other = attention(*heads, page_table=self.table, kv_len=self.lengths, mask=causal)
        close(other.transpose(1, 2), wanted)
        larger = torch.nn.functional.pad(self.table.int(), (0, 3), value=99)
        close(attend(*self.given[:3], larger[:, :P], self.lengths), wanted)

    def test_operator(self):
        none = dict.fromkeys(("bias", "attn_mask", "sink_logits"))
        operands = {
            **none, "kv_len": self.lengths.int(), "q_len": None, "cu_seqlens_q": None, "cu_seqlens_k": None,
            "page_table": self.table.int(), "leftpad_k": torch.zeros(B, dtype=torch.int32),
        }  # fmt: skip
        arguments = *self.given[:3], *operands.values(), *[None] * 8
        options = {"mask": "#flashattn.causal", "layout": "bshd"}
        torch.library.opcheck(torch.ops.flashattn.attention.default, arguments, options)
        with FlopCounterMode(display=False) as counter:
            attend(*self.given)
        self.assertEqual(counter.get_total_flops(), 4 * B * H * 5 * P * S * D)

    def test_vmap(self):
        wanted = attend(*self.given)
        queries = torch.stack([self.q, self.q * 2])
        tables = torch.stack([self.table, self.table.flip(0)])
        found = torch.vmap(attend, in_dims=(0, None, None, 0, None))(queries, *self.given[1:3], tables, self.lengths)
        close(found[0], wanted)
        close(found[1], attend(queries[1], *self.given[1:3], tables[1], self.lengths))
        close(torch.vmap(lambda q: attend(q, *self.given[1:]))(queries)[0], wanted)
        padding = torch.tensor([[0, 2, 4], [1, 0, 3]])
        rows = torch.randn(2, B, H, 5, D)
        found = torch.vmap(lambda x, pad: attention(x, x, x, leftpad_k=pad))(rows, padding)
        for at in range(2):
            close(found[at], attention(rows[at], rows[at], rows[at], leftpad_k=padding[at]))

    def test_gradients_are_refused(self):
        leaf = self.q.clone().requires_grad_()
        rest = self.given[1:]
        message = "expected no tensor with requires_grad in a call with page_table but got one; make the call under"
        with torch.no_grad():
            wanted = attend(leaf, *rest)
            attend(leaf, *rest, return_lse=True)  # a plan that a call with gradients would find
        for call in (
            lambda: attend(leaf, *rest),
            lambda: attend(leaf, *rest, return_lse=True),
            lambda: torch.func.grad(lambda q: attend(q, *rest).sum())(self.q),
            lambda: attend(self.q, self.k.clone().requires_grad_(), *rest[1:]),
        ):
            with self.assertRaises(UnsupportedError) as caught:
                call()
            self.assertIn(message, str(caught.exception))
        with self.assertRaisesRegex(RuntimeError, message):
            torch.compile(attend, backend="aot_eager", fullgraph=True)(leaf, *rest)
        with self.assertRaisesRegex(UnsupportedError, "in a call with leftpad_k but got one"):
            attention(leaf, leaf, leaf, leftpad_k=torch.zeros(B).int(), layout="bshd")
        close(attend(leaf.detach(), *rest), wanted)

    def test_errors(self):
        wrong = self.table.clone()
        wrong[1, 2] = 99
        meta = torch.device("meta")
        for call in (
            lambda: attend(*self.given[:3], wrong, self.lengths),
            lambda: torch.compile(attend, backend="aot_eager")(*self.given[:3], wrong, self.lengths),
            lambda: attend(*self.given[:3], self.table.to(meta), self.lengths),
            lambda: attend(*self.given[:3], self.table.float(), self.lengths),
            lambda: attend(*self.given[:3], self.table[0], self.lengths),
            lambda: attend(*self.given[:3], self.table, self.lengths[:2]),
            lambda: attend(self.q, self.k[:, :0], self.v[:, :0], self.table, self.lengths),
        ):
            with self.assertRaisesRegex(FlashAttnError, "^expected .* but got "):
                call()

    def test_decode(self):
        for count, layout, kind in itertools.product((1, 3), ("bshd", "bhsd"), (torch.int32, torch.int64)):
            with self.subTest(count=count, layout=layout, kind=kind):
                turn = (lambda x: x.transpose(1, 2)) if layout == "bhsd" else (lambda x: x)
                pool = self.pool.clone()
                q, k, v = (torch.randn(B, count, h, D) for h in (H, G, G))
                lengths, table = self.lengths.to(kind), self.table.to(kind)
                found, lse = ft.decode(
                    turn(q), *map(turn, pool.unbind(1)), lengths, turn(k), turn(v), page_table=table,
                    layout=layout, return_lse=True, mask=window(left=9, right=0),
                )  # fmt: skip
                caches = [x.clone() for x in self.gathered(self.table, lengths)[:2]]
                options = {"layout": "bshd", "return_lse": True, "mask": window(left=9, right=0)}
                wanted = ft.decode(q, *caches, lengths, k, v, **options)
                close((turn(found), lse), wanted)
                for half, cache in zip(pool.unbind(1), caches):
                    self.assertTrue(torch.equal(half[self.table].flatten(1, 2), cache))
                again = ft.decode(q, *pool.unbind(1), lengths, page_table=table, **options)
                close(again, wanted)

        def step(q, k_pool, v_pool, lengths, table, k, v):
            lengths = lengths + 1
            return ft.decode(q, k_pool, v_pool, lengths, k, v, page_table=table, layout="bshd")

        pools = [[x.clone() for x in self.pool.unbind(1)] for _ in range(2)]
        compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
        results = [
            call(q, *half, self.lengths - 1, self.table, k, v) for call, half in zip((step, compiled), pools)
        ]
        close(*results)
        close(*pools)
        arguments = q, *pools[0], self.lengths, None
        for op, new in ((torch.ops.flashattn.decode.default, ()), (torch.ops.flashattn.decode.append, (k, v))):
            torch.library.opcheck(op, (*arguments, *new, self.table), {"layout": "bshd"})
        for message, change in (
            ("expected 'page_table' of rank 2 and element type int32 or int64", {"page_table": self.table[0]}),
            ("expected 'page_table' of rank 2 and element type int32 or int64", {"page_table": self.table / 2}),
            ("expected 'page_table' of shape", {"page_table": self.table[:2]}),
            ("expected 'kv_len' from 3 to 32, the capacity of the caches", {"kv_len": self.lengths + 20}),
            ("expected 'page_table' to be a tensor of torch but got list", {"page_table": self.table.tolist()}),
        ):
            given = {"kv_len": self.lengths, "page_table": self.table, "k": k, "v": v, **change}
            with self.subTest(message=message), self.assertRaisesRegex(ArgumentError, f"^{message}"):
                ft.decode(q, *self.pool.unbind(1), layout="bshd", **given)

    def test_append(self):
        for layout, rotates in itertools.product(("bhsd", "bshd", "thd"), (None, False, True)):
            with self.subTest(layout=layout, rotates=rotates):
                counts = (3, 0, 5) if layout == "thd" else (2, 2, 2)
                turn = (lambda x: x.transpose(1, 2)) if layout == "bhsd" else (lambda x: x)
                new = [torch.randn(n, 2, G, D) for n in counts]
                pool, wanted = self.pool.clone(), self.pool.clone()
                table = self.table.clone()
                table[0, 1] = 99  # row 8 on of sequence 0 has no page
                lengths = torch.tensor([9, 32, 33])  # the last row of sequence 2 is past its pages
                cos, sin = torch.rand(40, 4), torch.rand(40, 4)
                rows = torch.cat(new) if layout == "thd" else torch.stack(new)
                options = {"page_table": table, "layout": layout}
                if layout == "thd":
                    options["cu_seqlens_k"] = torch.tensor([0, 3, 3, 8])
                if rotates is not None:
                    options.update(rotary_cos=cos, rotary_sin=sin, rotary_interleaved=rotates)
                halves = [turn(x) for x in pool.unbind(1)]
                ft.append(*halves, turn(rows[..., 0, :, :]), turn(rows[..., 1, :, :]), lengths, **options)
                for b, values in enumerate(new):
                    for j, value in enumerate(values):
                        row = int(lengths[b]) - counts[b] + j
                        if row >= P * S or table[b, row // S] == 99:
                            continue
                        if rotates is not None:
                            key = value[None, None, 0]
                            value = value.clone()
                            value[0] = apply_rotary_emb(key, cos, sin, rotates, seqlen_offsets=row)[0, 0]
                        wanted[table[b, row // S], :, row % S] = value
                close(pool, wanted)

    def test_append_to_caches(self):
        """Caches without pages and slots of caches, with rows before the first and past the last."""
        new = torch.randn(2, 3, 2, G, D)
        caches = torch.randn(4, 2, 20, G, D)
        for index in (None, torch.tensor([[3], [1]])):
            found = caches.clone() if index is not None else caches[:2].clone()
            wanted = found.clone()
            ft.append(*found.unbind(1), *new.unbind(2), torch.tensor([2, 21]), page_table=index, layout="bshd")
            first, second = (0, 1) if index is None else (3, 1)
            wanted[first, :, :2] = new[0, 1:].transpose(0, 1)
            wanted[second, :, 18:] = new[1, :2].transpose(0, 1)
            self.assertTrue(torch.equal(found, wanted))
        same = caches.clone()
        for lengths in ([-5, 99], [0, 0]):  # no row has a place
            ft.append(*same[:2].unbind(1), *new.unbind(2), torch.tensor(lengths), layout="bshd")
        ft.append(*same[:2].unbind(1), *new[:, :0].unbind(2), torch.tensor([3, 4]), layout="bshd")
        self.assertTrue(torch.equal(same, caches))

    def test_append_by_slot(self):
        for layout in ("thd", "bhsd"):
            pool, wanted = self.pool.clone(), self.pool.clone()
            slots = torch.tensor([[5 * S + 3, -1], [0, 16 * S + 7]])
            new = torch.randn(2, 2, 2, G, D)
            for slot, row in zip(slots.flatten().tolist(), new.flatten(0, 1)):
                if slot >= 0:
                    wanted[slot // S, :, slot % S] = row
            if layout == "thd":
                rows, halves = new.flatten(0, 1).unbind(1), pool.unbind(1)
                slots = slots.flatten().int()
            else:
                rows, halves = ([x.transpose(1, 2) for x in y] for y in (new.unbind(2), pool.unbind(1)))
            ft.append(*halves, *rows, slot_mapping=slots, layout=layout)
            self.assertTrue(torch.equal(pool, wanted))
        cos = torch.rand(9, 8)
        compiled = torch.compile(ft.append, backend="aot_eager", fullgraph=True)
        pools = [self.pool.clone() for _ in range(2)]
        options = {"slot_mapping": slots, "rotary_cos": cos, "rotary_sin": cos, "positions": slots % 9}
        for call, pool in zip((ft.append, compiled), pools):
            call(*(x.transpose(1, 2) for x in pool.unbind(1)), *rows, **options)
        close(*pools)

    def test_append_errors(self):
        k, v = (torch.randn(B, 2, G, D) for _ in range(2))
        halves = self.k, self.v
        table, lengths = self.table, self.lengths
        angles = {"rotary_cos": torch.rand(40, 8), "rotary_sin": torch.rand(40, 8)}
        slots = torch.zeros(B, 2).int()
        for message, call in (
            ("expected kv_len or slot_mapping but got None", lambda: ft.append(*halves, k, v, layout="bshd")),
            ("expected no page_table with slot_mapping but got one",
             lambda: ft.append(*halves, k, v, slot_mapping=slots, page_table=table, layout="bshd")),
            ("expected no kv_len with slot_mapping but got one",
             lambda: ft.append(*halves, k, v, lengths, slot_mapping=slots, layout="bshd")),
            ("expected positions with rotary_cos and slot_mapping but got None",
             lambda: ft.append(*halves, k, v, slot_mapping=slots, layout="bshd", **angles)),
            ("expected rotary_cos and rotary_sin or neither but got None as rotary_sin",
             lambda: ft.append(*halves, k, v, lengths, rotary_cos=angles["rotary_cos"], layout="bshd")),
            ("expected rotary_cos of shape [positions, at most 8] but got [40, 9]",
             lambda: ft.append(*halves, k, v, lengths, page_table=table, rotary_cos=torch.rand(40, 9),
                               rotary_sin=torch.rand(40, 9), layout="bshd")),
            ("expected rotary_sin of shape [40, 8] but got [39, 8]",
             lambda: ft.append(*halves, k, v, lengths, page_table=table, rotary_cos=angles["rotary_cos"],
                               rotary_sin=torch.rand(39, 8), layout="bshd")),
            ("expected 'k_cache' of shape [3, 8, 2, 16] but got [17, 8, 2, 16]",
             lambda: ft.append(*halves, k, v, lengths, layout="bshd")),
            ("expected 'k_cache' of shape [17, 2, 2, 16] but got [17, 8, 2, 16]",
             lambda: ft.append(*halves, k.transpose(1, 2), v.transpose(1, 2), lengths, page_table=table)),
            ("expected 'v' of shape [3, 2, 2, 16] but got [3, 1, 2, 16]",
             lambda: ft.append(*halves, k, v[:, :1], lengths, page_table=table, layout="bshd")),
            ("expected 'kv_len' of shape [3] but got [2]",
             lambda: ft.append(*halves, k, v, lengths[:2], page_table=table, layout="bshd")),
            ("expected 'kv_len' with element type int32 or int64 but got float32",
             lambda: ft.append(*halves, k, v, lengths.float(), page_table=table, layout="bshd")),
            ("expected 'page_table' of shape [3, 4] but got [2, 4]",
             lambda: ft.append(*halves, k, v, lengths, page_table=table[:2], layout="bshd")),
            ("expected 'page_table' of shape [3, 'P'] but got [4]",
             lambda: ft.append(*halves, k, v, lengths, page_table=table[0], layout="bshd")),
            ("expected 'slot_mapping' of shape [3, 2] but got [6]",
             lambda: ft.append(*halves, k, v, slot_mapping=slots.flatten(), layout="bshd")),
            ("expected cu_seqlens_k and layout thd together but got None",
             lambda: ft.append(*halves, k[0], v[0], lengths, page_table=table, layout="thd")),
            ("expected cu_seqlens_k and layout thd together but got layout bshd",
             lambda: ft.append(*halves, k, v, lengths, page_table=table, cu_seqlens_k=lengths, layout="bshd")),
            ("expected 'v' of type torch.float16 as 'k' but got torch.float32",
             lambda: ft.append(*halves, k.half(), v, lengths, page_table=table, layout="bshd")),
            ("expected 'k' of rank 4 but got rank 3",
             lambda: ft.append(*halves, k[0], v[0], lengths, page_table=table, layout="bshd")),
            ("expected 'v' to be a tensor of torch but got NoneType",
             lambda: ft.append(*halves, k, None, lengths, page_table=table, layout="bshd")),
            ("expected a writable 'k_cache' but got an expanded tensor",
             lambda: ft.append(self.k[:1].expand(17, -1, -1, -1), self.v, k, v, lengths, page_table=table,
                               layout="bshd")),
            ("expected 'page_table' on cpu as 'k' but got meta",
             lambda: ft.append(*halves, k, v, lengths, page_table=table.to("meta"), layout="bshd")),
            ("expected tensors without gradients but got 'k'",
             lambda: ft.append(*halves, k.clone().requires_grad_(), v, lengths, page_table=table, layout="bshd")),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaises(FlashAttnError) as caught:
                call()
            self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
