# Keys and values of 8 bits in PyTorch: gradients of queries, operators, compiled graphs, autocast, caches that grow,
# and the functions of FlashAttention-3.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import os
import unittest

import torch
from flashattn import UnsupportedError, attention, attention_backward, causal, quantize
from flashattn import flash_attn_interface as fa3
from flashattn.torch import append, decode

DEVICE = os.environ.get("FLASHATTN_TEST_DEVICE", "cpu")
DTYPE = torch.float32 if DEVICE == "cpu" else torch.float16
TYPES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)
BYTES = torch.uint8


def rows(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, DTYPE)


def values_of(x, scale, layout="bhsd"):
    """The values of elements of 8 bits, whose scales are those of `quantize`."""
    blocks = scale.shape[-1]
    return (x.float().unflatten(-1, (blocks, -1)) * scale.unsqueeze(-1)).flatten(-2).to(DTYPE)


def close(found, wanted, bound=None):
    bound = bound or (2e-5 if DEVICE == "cpu" else 2e-2)
    torch.testing.assert_close(found.float(), wanted.float(), atol=bound, rtol=bound)


def same_bits(found, wanted):
    torch.testing.assert_close(found.view(BYTES), wanted.view(BYTES), rtol=0, atol=0)


class GraphTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.q, self.k, self.v = rows(2, 4, 7, 32), rows(2, 2, 11, 32, seed=2), rows(2, 2, 11, 32, seed=3)
        self.k8, self.k_scale = quantize(self.k, per="row", columns=16)
        self.v8, self.v_scale = quantize(self.v, "int8", per="head")
        self.wanted = attention(self.q, values_of(self.k8, self.k_scale), values_of(self.v8, self.v_scale), mask=causal)

    def attend(self, q, k8, v8, k_scale, v_scale):
        return attention(q, k8, v8, k_scale=k_scale, v_scale=v_scale, mask=causal)

    @property
    def given(self):
        return self.q, self.k8, self.v8, self.k_scale, self.v_scale

    def test_plans_belong_to_types(self):
        """Calls that differ in the types of k and v alone, over and over."""
        bits = (self.k8.view(BYTES) & 0x3F, self.v8.view(BYTES) & 0x3F)
        wanted = {}
        for _ in range(3):
            for one in TYPES:
                for other in TYPES:
                    k, v = bits[0].view(one), bits[1].view(other)
                    found = attention(self.q, k, v, scale=1e-3)
                    dense = attention(self.q, k.to(DTYPE), v.to(DTYPE), scale=1e-3)
                    close(found / dense.abs().max(), dense / dense.abs().max())
                    torch.testing.assert_close(found, wanted.setdefault((one, other), found), rtol=0, atol=0)

    def test_gradient_of_queries(self):
        cases = (
            (self.k8, self.v8, self.k_scale, self.v_scale), (self.k8, self.v, self.k_scale, None),
            (self.k, self.v8, None, 0.03), (self.k8, self.v8, None, None),
        )  # fmt: skip
        for k, v, k_scale, v_scale in cases:
            with self.subTest(k=k.dtype, v=v.dtype):
                leaves = [x.detach().clone().requires_grad_(x.dtype == DTYPE) for x in (self.q, k, v)]
                for _ in range(2):  # with a plan, too
                    o = self.attend(*leaves, k_scale, v_scale)
                    found = torch.autograd.grad((o * self.wanted).sum(), [x for x in leaves if x.requires_grad])
                dense = [
                    x if x.dtype == DTYPE else values_of(x, torch.tensor([1.0 if s is None else s]).to(DEVICE)
                                                         if not isinstance(s, torch.Tensor) else s)
                    for x, s in ((k, k_scale), (v, v_scale))
                ]  # fmt: skip
                plain = [x.detach().requires_grad_(y.requires_grad) for x, y in zip((self.q, *dense), leaves)]
                o = attention(*plain, mask=causal)
                wanted = torch.autograd.grad((o * self.wanted).sum(), [x for x in plain if x.requires_grad])
                for one, other in zip(found, wanted):
                    close(one, other, 2e-4 if DEVICE == "cpu" else 5e-2)

    def test_gradient_of_packed_queries(self):
        """A scale for each sequence, in both layouts."""
        starts = torch.tensor([0, 4, 4, 11], dtype=torch.int32, device=DEVICE)
        scale = torch.tensor([[0.5, 1.0], [3.0, 2.0], [2.0, 0.25]], device=DEVICE)
        of_rows = scale[[0] * 4 + [2] * 7].unsqueeze(-1)  # [T, H, 1]
        q, k, v = (x[0].transpose(0, 1) for x in (self.q[:, :, :7], self.k, self.v))
        q, k8 = torch.cat([q, q])[:11].contiguous(), k.to(TYPES[0])
        options = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "mask": causal}
        other = q.clone().requires_grad_()
        attention(other, (k8.float() * of_rows).to(DTYPE), v, layout="thd", **options).square().sum().backward()
        for layout in ("thd", "bshd", "bhsd"):
            tensors = q, k8, v
            if layout != "thd":
                tensors = [x[None] if layout == "bshd" else x.transpose(0, 1)[None] for x in tensors]
            leaf = tensors[0].clone().requires_grad_()
            o = attention(leaf, *tensors[1:], k_scale=scale, layout=layout, **options)
            (found,) = torch.autograd.grad(o.square().sum(), leaf)
            if layout != "thd":
                found = found[0] if layout == "bshd" else found[0].transpose(0, 1)
            close(found, other.grad, 2e-4 if DEVICE == "cpu" else 5e-2)

    def test_queries_of_f8(self):
        """On the CPU, or on a GPU with products of f8; and on the model of one, whose probabilities are f8."""
        q8, q_scale = quantize(self.q[:, ::2], per="head")
        v8, v_scale = quantize(self.v, per="head")
        k8, k_scale = quantize(self.k, per="head")
        wanted = attention(values_of(q8, q_scale), values_of(k8, k_scale), values_of(v8, v_scale), mask=causal)
        scales = {"k_scale": k_scale * q_scale, "v_scale": v_scale}
        for out in (None, *(torch.empty_like(wanted, dtype=t) for t in (torch.float32, torch.float16))):
            for _ in range(2):  # with a plan, too
                found = attention(q8, k8, v8, mask=causal, out=out, **scales)
            self.assertEqual(found.dtype, torch.bfloat16 if out is None else out.dtype)
            close(found, wanted, 6e-2 if DEVICE != "cpu" else 1e-2)
        if DEVICE == "cpu":
            modelled = attention(q8, k8, v8, mask=causal, device="model:sm_90a", **scales)
            self.assertLess((modelled.float() - wanted).norm() / wanted.norm(), 0.04)
        rows_of = [x.transpose(1, 2) for x in (q8, k8, v8)]
        descales = {"k_descale": k_scale[..., 0, 0], "v_descale": v_scale[..., 0, 0]}
        o = fa3.flash_attn_func(*rows_of, causal=True, q_descale=q_scale[..., 0, 0], **descales)
        same_bits(o.transpose(1, 2).contiguous(), attention(q8, k8, v8, mask=causal, **scales))
        starts = [torch.tensor([0, n, 2 * n], dtype=torch.int32, device=DEVICE) for n in (7, 11)]
        packed = [x.flatten(0, 1) for x in rows_of]
        o = fa3.flash_attn_varlen_func(
            *packed, *starts, 7, 11, causal=True, q_descale=q_scale[..., 0, 0], **descales
        )  # fmt: skip
        close(o.unflatten(0, (2, 7)).transpose(1, 2), wanted, 6e-2 if DEVICE != "cpu" else 1e-2)

    def test_gradients_of_queries_of_f8(self):
        """attention_backward gives the gradients of the values, as autograd does of copies in 32 bits."""
        q8, k8, v8 = (x.to(TYPES[0]) for x in (self.q, self.k, self.v))
        k_scale, v_scale = (torch.rand(2, 2, 1, 1, device=DEVICE) for _ in "kv")
        copies = q8.to(DTYPE), *(values_of(x, scale) for x, scale in ((k8, k_scale), (v8, v_scale)))
        leaves = [x.requires_grad_() for x in copies]
        o, lse = attention(*leaves, mask=causal, return_lse=True)
        d_o = rows(*o.shape, seed=7)
        wanted = torch.autograd.grad(o, leaves, d_o)
        found = attention_backward(
            q8, k8, v8, o.detach(), lse.detach(), d_o, mask=causal, k_scale=k_scale, v_scale=v_scale[..., 0, 0]
        )
        for pair in zip(found, wanted):
            torch.testing.assert_close(*pair, rtol=0, atol=0 if DEVICE == "cpu" else 5e-2)

    def test_compiled_queries_of_f8(self):
        q8, q_scale = quantize(self.q[:, ::2], per="head")
        v8, v_scale = quantize(self.v, per="head")
        k8, k_scale = quantize(self.k, per="head")
        lengths = torch.tensor([11, 8], dtype=torch.int32, device=DEVICE)

        def both(q8, k8, v8, k_scale, v_scale):
            options = {"k_scale": k_scale, "v_scale": v_scale, "return_lse": True}
            return attention(q8, k8, v8, mask=causal, **options), decode(q8[:, :, :2], k8, v8, lengths, **options)

        given = q8, k8, v8, k_scale * q_scale, v_scale
        wanted = both(*given)
        self.assertEqual(wanted[1][0].dtype, torch.bfloat16)
        for found in (torch.compile(both, backend="aot_eager", fullgraph=True)(*given), both(*given)):
            for pair in zip(sum(found, ()), sum(wanted, ())):
                torch.testing.assert_close(*pair, rtol=0, atol=0)

    def test_gradients_that_would_be_lost(self):
        leaf = self.k8.clone().requires_grad_()
        found = attention(self.q, leaf, self.v8)
        same_bits(found.detach(), attention(self.q, self.k8, self.v8))
        with self.assertRaisesRegex(UnsupportedError, "expected no gradient of 'k' of f8E4M3FN but got it with"):
            found.sum().backward()
        rows_of = (x.transpose(1, 2) for x in (leaf, self.v8))
        found = fa3.flash_attn_func(self.q.transpose(1, 2), *rows_of, deterministic=True)
        with self.assertRaisesRegex(UnsupportedError, "expected no gradient of 'k' of f8E4M3FN but got it with"):
            found.sum().backward()
        # Queries of 8 bits stand beside sinks that have gradients.
        sinks, wide = (torch.ones(4, device=DEVICE, requires_grad=True) for _ in "ab")
        q8 = self.q.to(TYPES[0])
        for q, k, leaf in ((q8, self.k8, sinks), (q8.to(torch.bfloat16), self.k8, wide)):
            attention(q, k, self.v8, sink_logits=leaf).sum().backward()
        close(sinks.grad, wide.grad, 2e-2)
        for name, given in (("k_scale", self.k_scale), ("v_scale", self.v_scale)):
            options = {name: given.clone().requires_grad_()}
            with self.assertRaisesRegex(UnsupportedError, f"expected tensors without gradients but got '{name}'"):
                attention(self.q, self.k8, self.v8, **options)
        with self.assertRaisesRegex(UnsupportedError, "expected tensors without gradients but got 'x' with"):
            quantize(self.k.clone().requires_grad_())

    def test_compiled(self):
        compiled = torch.compile(self.attend, backend="eager", fullgraph=True)
        close(compiled(*self.given), self.wanted)
        for k_scale in (0.5, torch.tensor(0.5, device=DEVICE), torch.full((2, 2), 0.5, device=DEVICE)):
            given = self.q, self.k8, self.v8, k_scale, None
            close(compiled(*given), self.attend(*given))

        def quantized(q, k):
            k8, k_scale = quantize(k, per="row", columns=16)
            return attention(q, k8, k, k_scale=k_scale)

        close(torch.compile(quantized, backend="eager", fullgraph=True)(self.q, self.k), quantized(self.q, self.k))
        leaf = self.q.clone().requires_grad_()
        traced = torch.compile(self.attend, backend="aot_eager", fullgraph=True)
        traced(leaf, *self.given[1:]).sum().backward()
        other = self.q.clone().requires_grad_()
        self.attend(other, *self.given[1:]).sum().backward()
        close(leaf.grad, other.grad)

    def test_exported(self):
        class Layer(torch.nn.Module):
            def forward(self, q, k8, v8, k_scale, v_scale):
                return attention(q, k8, v8, k_scale=k_scale, v_scale=v_scale, mask=causal)

        program = torch.export.export(Layer(), self.given)
        close(program.module()(*self.given), self.wanted)

    def test_operator(self):
        op = torch.ops.flashattn.attention.default
        names = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
        given = dict(zip(("q", "k", "v", "k_scale", "v_scale"), self.given))
        given["q"] = self.q.clone().requires_grad_()
        # The check itself cannot compare elements of float8.
        given["k"], given["k_scale"] = quantize(self.k, "int8", per="row", columns=16)
        last = names.index("aux3") + 2
        torch.library.opcheck(op, tuple(map(given.get, names[:last])), {"mask": "#flashattn.causal"})

    def test_vmap(self):
        queries = torch.stack([self.q, 2 * self.q])
        scales = torch.stack([self.k_scale, 3 * self.k_scale])
        found = torch.vmap(self.attend, (0, None, None, 0, None))(queries, *self.given[1:3], scales, self.v_scale)
        for q, scale, one in zip(queries, scales, found):
            close(one, self.attend(q, self.k8, self.v8, scale, self.v_scale))
        one = torch.tensor([0.5, 2.0], device=DEVICE)
        found = torch.vmap(self.attend, (None, None, None, 0, None))(*self.given[:3], one, None)
        for scale, x in zip(one, found):
            close(x, self.attend(*self.given[:3], scale, None))

    def test_autocast(self):
        with torch.autocast(DEVICE, torch.bfloat16):
            found = self.attend(*self.given)
        self.assertEqual(found.dtype, torch.bfloat16)
        close(found, self.wanted, 3e-2)


class CacheTest(unittest.TestCase):
    """Caches of 8 bits to which rows are appended hold what `quantize` makes of all rows at once."""

    def setUp(self):
        torch.manual_seed(6)
        self.k, self.v = rows(3, 2, 12, 32, seed=4), 2 * rows(3, 2, 12, 16, seed=5)
        self.lengths = torch.tensor([12, 7, 3], dtype=torch.int32, device=DEVICE)

    def caches(self, shape, dtype):
        """Caches full of NaN."""
        return [torch.full((*shape, n), 0x7F, dtype=BYTES, device=DEVICE).view(dtype) for n in (32, 16)]

    def scales_of(self, kind, dtype):
        if kind == "none":
            return None, None
        if kind == "number":
            return 0.02, 0.03
        if kind == "pairs":
            return torch.rand(3, 2, device=DEVICE) / 9, torch.rand(1, 2, device=DEVICE) / 9
        return torch.rand(3, 1, 1, 2, device=DEVICE) / 9, torch.rand(1, 1, 1, 1, device=DEVICE) / 9

    def wanted(self, x, scale, dtype):
        scale = 1.0 if scale is None else scale
        if isinstance(scale, torch.Tensor):
            scale = scale[:, :, None, None] if scale.ndim == 2 else scale
            scale = scale.repeat_interleave(x.shape[-1] // scale.shape[-1], -1)
        scaled = x.float() / scale
        if dtype == torch.int8:
            return scaled.round().clamp(-127, 127).to(dtype)
        most = torch.finfo(dtype).max
        return scaled.clamp(-most, most).to(dtype)

    def test_given_scales(self):
        for dtype in TYPES:
            for kind in ("none", "number", "pairs", "sequences"):
                for layout in ("bhsd", "bshd"):
                    k_scale, v_scale = self.scales_of(kind, dtype)
                    k, v, options = self.k, self.v, {"k_scale": k_scale, "v_scale": v_scale, "layout": layout}
                    shape = (3, 2, 15)
                    if layout == "bshd":
                        k, v, shape = k.transpose(1, 2), v.transpose(1, 2), (3, 15, 2)
                        swap = lambda x: x.transpose(1, 2) if getattr(x, "ndim", 0) == 4 else x  # noqa: E731
                        options.update(k_scale=swap(k_scale), v_scale=swap(v_scale))
                    caches = self.caches(shape, dtype)
                    append(*caches, k, v, torch.full_like(self.lengths, 12), **options)
                    axis = 2 if layout == "bhsd" else 1
                    for cache, x, scale in zip(caches, (self.k, self.v), (k_scale, v_scale)):
                        own = cache.narrow(axis, 0, 12)
                        own = own if layout == "bhsd" else own.transpose(1, 2)
                        with self.subTest(dtype=dtype, kind=kind, layout=layout):
                            same_bits(own.contiguous(), self.wanted(x, scale, dtype))
                            self.assertTrue((cache.view(BYTES).narrow(axis, 12, 3) == 0x7F).all())

    def test_written_scales(self):
        """Scales of rows, in caches, pages and slots, one step after the other."""
        for dtype in TYPES:
            for blocks, heads in ((1, 2), (2, 2), (1, 1)):
                for place in ("dense", "pages", "slots"):
                    with self.subTest(dtype=dtype, blocks=blocks, heads=heads, place=place):
                        self.check_written(dtype, blocks, heads, place)

    def check_written(self, dtype, blocks, heads, place):
        table = torch.tensor([[4, 0, 6], [1, 2, 3], [5, 7, 8]], dtype=torch.int32, device=DEVICE)
        first, size = (3, 15) if place == "dense" else (10, 5)
        k_cache, v_cache = self.caches((first, size, 2), dtype)
        k_scale = torch.full((first, size, heads, blocks), torch.nan, device=DEVICE)
        v_scale = torch.full((first, size, heads, 1), torch.nan, device=DEVICE)
        k, v = self.k.transpose(1, 2), self.v.transpose(1, 2)
        for begin, end in ((0, 9), (9, 10), (10, 12)):
            options = {"k_scale": k_scale, "v_scale": v_scale}
            new = k[:, begin:end], v[:, begin:end]
            if place == "slots":
                index = torch.arange(begin, end, device=DEVICE)
                slots = table[:, index // size] * size + index % size
                packed = (x.flatten(0, 1) for x in new)
                append(k_cache, v_cache, *packed, slot_mapping=slots.flatten(), layout="thd", **options)
            else:
                options["page_table"] = table if place == "pages" else None
                append(k_cache, v_cache, *new, torch.full_like(self.lengths, end), layout="bshd", **options)
        wanted = []
        for x, columns in ((k, 32 // blocks), (v, 16)):
            given, columns = (x, columns) if heads == 2 else (x.reshape(3, 12, 1, -1), None)
            wanted.append(quantize(given, dtype, per="row", columns=columns, layout="bshd"))
        for cache, scale, (stored, factors) in zip((k_cache, v_cache), (k_scale, v_scale), wanted):
            pages = cache if place == "dense" else cache.view(BYTES)[table.long()].flatten(1, 2).view(dtype)
            found = scale if place == "dense" else scale[table.long()].flatten(1, 2)
            same_bits(pages[:, :12].contiguous(), stored.view(3, 12, 2, -1))
            torch.testing.assert_close(found[:, :12], factors, rtol=0, atol=0)
        q = rows(3, 2, 4, 32, seed=6)
        options = {"kv_len": self.lengths, "layout": "bshd", "mask": causal}
        (k8, k_factors), (v8, v_factors) = wanted
        dense = attention(
            q, k8.view(3, 12, 2, -1), v8.view(3, 12, 2, -1), k_scale=k_factors, v_scale=v_factors, **options
        )  # fmt: skip
        found = attention(
            q, k_cache, v_cache, k_scale=k_scale, v_scale=v_scale,
            page_table=None if place == "dense" else table, **options,
        )  # fmt: skip
        close(found, dense)

    def test_decode(self):
        for is_paged in (False, True):
            for kind in ("number", "pairs", "rows"):
                table = torch.arange(6, dtype=torch.int32, device=DEVICE).view(3, 2).flip(1) if is_paged else None
                shape = (6, 2, 8) if is_paged else (3, 2, 16)
                caches, new = self.caches(shape, TYPES[0]), (self.k[:, :, :3], self.v[:, :, :3])
                scales = [torch.full((*shape, 1), torch.nan, device=DEVICE) for _ in caches]
                if kind != "rows":
                    scales = self.scales_of(kind, TYPES[0])
                options = {"page_table": table, "k_scale": scales[0], "v_scale": scales[1]}
                twins = [x.view(BYTES).clone().view(x.dtype) for x in caches]
                others = [x.clone() if isinstance(x, torch.Tensor) else x for x in scales]
                length = torch.full_like(self.lengths, 3)
                q = rows(3, 4, 3, 32, seed=7)
                found = decode(q, *caches, length, *new, **options)
                append(*twins, *new, length, page_table=table, k_scale=others[0], v_scale=others[1])
                wanted = attention(
                    q, *twins, kv_len=length, mask=causal, page_table=table, k_scale=others[0], v_scale=others[1]
                )  # fmt: skip
                with self.subTest(is_paged=is_paged, kind=kind):
                    close(found, wanted)
                    compiled = torch.compile(decode, backend="aot_eager", fullgraph=True)
                    twins = [torch.zeros_like(x) for x in caches]
                    others = [torch.zeros_like(x) if kind == "rows" else x for x in scales]
                    traced = {**options, "k_scale": others[0], "v_scale": others[1]}
                    close(compiled(q, *twins, length, *new, **traced), wanted)
                    close(decode(q, *twins, length, **traced), wanted)

    def test_rows_of_8_bits_are_copied(self):
        k8, v8 = (quantize(x, "int8", per="head")[0] for x in (self.k, self.v))
        caches = self.caches((3, 2, 12), torch.int8)
        append(*caches, k8, v8, torch.full_like(self.lengths, 12))
        same_bits(caches[0], k8)
        same_bits(caches[1], v8)


class FlashAttention3Test(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        self.q = rows(2, 5, 4, 32)
        self.k, self.v = (rows(2, 9, 2, 32, seed=n).to(TYPES[0]) for n in (2, 3))
        self.descales = {f"{x}_descale": 0.25 + torch.rand(2, 2, device=DEVICE) for x in "kv"}
        self.dense = [
            (x.float() * scale[:, None, :, None]).to(DTYPE)
            for x, scale in zip((self.k, self.v), self.descales.values())
        ]

    def test_function(self):
        for is_causal in (False, True):
            found = fa3.flash_attn_func(self.q, self.k, self.v, causal=is_causal, **self.descales)
            close(found, fa3.flash_attn_func(self.q, *self.dense, causal=is_causal))
        expanded = {name: x[:1, :1].expand(2, 2) for name, x in self.descales.items()}
        one = {name: x[:1, :1] for name, x in self.descales.items()}
        given = self.q, self.k, self.v
        close(fa3.flash_attn_func(*given, **expanded), fa3.flash_attn_func(*given, **one))
        for is_deterministic in (False, True):
            grads = []
            for rows_of, options in (((self.k, self.v), self.descales), (self.dense, {})):
                leaf = self.q.clone().requires_grad_()
                found = fa3.flash_attn_func(leaf, *rows_of, deterministic=is_deterministic, **options)
                found.square().sum().backward()
                grads.append(leaf.grad)
            close(*grads, 1e-4 if DEVICE == "cpu" else 5e-2)

    def test_packed(self):
        starts = torch.tensor([0, 3, 10], dtype=torch.int32, device=DEVICE)
        keys = torch.tensor([0, 12, 18], dtype=torch.int32, device=DEVICE)
        q, k, v = (x.flatten(0, 1) for x in (self.q, self.k, self.v))
        found = fa3.flash_attn_varlen_func(q, k, v, starts, keys, 7, 12, causal=True, **self.descales)
        of_rows = [scale[[0] * 12 + [1] * 6][:, :, None] for scale in self.descales.values()]
        dense = [(x.float() * scale).to(DTYPE) for x, scale in zip((k, v), of_rows)]
        close(found, fa3.flash_attn_varlen_func(q, *dense, starts, keys, 7, 12, causal=True))

    def test_caches(self):
        """Without and with new rows, which are divided by the descales, a rotation, pages, and odd head dimensions."""
        lengths = torch.tensor([4, 6], dtype=torch.int32, device=DEVICE)
        new = rows(2, 2, 2, 32, seed=8), rows(2, 2, 2, 32, seed=9)
        cos, sin = torch.rand(16, 8, device=DEVICE), torch.rand(16, 8, device=DEVICE)
        for is_new in (False, True):
            for has_angles in (False, is_new):
                for width in (32, 28):
                    caches = [x[..., :width].clone() for x in (self.k, self.v)]
                    dense = [x[..., :width].clone() for x in self.dense]
                    own = [x[..., :width] for x in new] if is_new else [None, None]
                    options = {"rotary_cos": cos, "rotary_sin": sin} if has_angles else {}
                    q = self.q[:, :2, :, :width]
                    found = fa3.flash_attn_with_kvcache(
                        q, *caches, *own, cache_seqlens=lengths, causal=True, **self.descales, **options
                    )  # fmt: skip
                    wanted = fa3.flash_attn_with_kvcache(
                        q, *dense, *own, cache_seqlens=lengths, causal=True, **options
                    )  # fmt: skip
                    with self.subTest(is_new=is_new, has_angles=has_angles, width=width):
                        close(found, wanted, 0.2 if is_new else None)
                    if is_new and not has_angles:  # exactly what was written
                        for cache, x, scale in zip(caches, dense, self.descales.values()):
                            x.copy_(cache.float() * scale[:, None, :, None])
                        close(found, fa3.flash_attn_with_kvcache(q, *dense, cache_seqlens=lengths + 2, causal=True))
        table = torch.tensor([[1, 0], [3, 2]], dtype=torch.int32, device=DEVICE)
        pools = [x.view(BYTES)[:, :8].reshape(4, 4, 2, 32)[table.flatten().long()] for x in (self.k, self.v)]
        pools = [x.view(TYPES[0]) for x in pools]
        found = fa3.flash_attn_with_kvcache(
            self.q, *pools, cache_seqlens=lengths, causal=True, page_table=table, **self.descales
        )  # fmt: skip
        close(found, fa3.flash_attn_with_kvcache(self.q, *self.dense, cache_seqlens=lengths, causal=True))

    def test_rotated_rows_are_clamped(self):
        caches = [torch.zeros(1, 4, 1, 32, device=DEVICE).to(TYPES[0]) for _ in "kv"]
        new = torch.full((1, 1, 1, 32), 448.0, device=DEVICE).to(TYPES[0])
        angles = torch.full((4, 16), 0.5**0.5, device=DEVICE)
        lengths = torch.ones(1, dtype=torch.int32, device=DEVICE)
        append(*caches, new, new, lengths, rotary_cos=angles, rotary_sin=angles, layout="bshd")
        found = caches[0][0, 0, 0].float()  # 0, and 448 times the square root of 2
        self.assertEqual(found.tolist(), [0.0] * 16 + [448.0] * 16)

    def test_caches_of_f8_queries(self):
        """New rows of 8 bits are copied, and others divided by the descales of the cache alone."""
        lengths = torch.tensor([4, 6], dtype=torch.int32, device=DEVICE)
        cos, sin = torch.rand(16, 8, device=DEVICE), torch.rand(16, 8, device=DEVICE)
        q8, q_descale = self.q[:, :2].to(TYPES[0]), 0.5 + torch.rand(2, 2, device=DEVICE)
        q = (q8.float() * q_descale.repeat_interleave(2, 1)[:, None, :, None]).to(DTYPE)
        narrow = [rows(2, 2, 2, 32, seed=n).to(TYPES[0]) for n in (8, 9)]
        scales = [scale[:, None, :, None] for scale in self.descales.values()]
        wide = [(x.float() * scale).to(DTYPE) for x, scale in zip(narrow, scales)]
        bound = 2e-2 if DEVICE == "cpu" else 6e-2
        for new in (None, narrow, wide):
            for has_angles in (False, new is not None):
                options = {"rotary_cos": cos, "rotary_sin": sin} if has_angles else {}
                caches, dense = [x.clone() for x in (self.k, self.v)], [x.clone() for x in self.dense]
                given, expected = (new or (None, None)), (wide if new else (None, None))
                found = fa3.flash_attn_with_kvcache(
                    q8, *caches, *given, cache_seqlens=lengths, causal=True, q_descale=q_descale, **self.descales,
                    **options,
                )  # fmt: skip
                wanted = fa3.flash_attn_with_kvcache(
                    q, *dense, *expected, cache_seqlens=lengths, causal=True, **options
                )  # fmt: skip
                self.assertEqual(found.dtype, torch.bfloat16)
                close(found, wanted, 0.2 if has_angles else bound)  # rotated rows are rounded to f8
                if new is narrow and not has_angles:
                    same_bits(caches[0][0, 4:6], narrow[0][0])


if __name__ == "__main__":
    unittest.main()
