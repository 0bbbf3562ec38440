# flashattn.flash_attn: FlashAttention's functions of three generations. Names and defaults of their
# arguments; values and gradients against attention in float64; and what is refused.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import inspect
import math
import unittest
from unittest import mock

import flashattn
import torch
from flashattn import ArgumentError, FlashAttnError, TraceError, UnsupportedError, _reference
from flashattn import flash_attn as fa2
from flashattn import flash_attn_interface as fa3
from flashattn.flash_attn import _core, bert_padding, cute
from flashattn.flash_attn.layers import rotary

BOUNDS = {torch.float32: _reference.FROBENIUS["f32"], torch.bfloat16: _reference.FROBENIUS["bf16"]}

#: The arguments of each function, as FlashAttention has them.
TWO = "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, " \
    "alibi_slopes=None, deterministic=False, return_attn_probs=False"  # fmt: skip
STARTS = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
DESCALES = "q_descale=None, k_descale=None, v_descale=None"
SIGNATURES = {
    (fa2, "flash_attn_func"): f"q, k, v, {TWO}",
    (fa2, "flash_attn_kvpacked_func"): f"q, kv, {TWO}",
    (fa2, "flash_attn_qkvpacked_func"): f"qkv, {TWO}",
    (fa2, "flash_attn_varlen_func"): f"q, k, v, {STARTS}, {TWO}, block_table=None",
    (fa2, "flash_attn_varlen_kvpacked_func"): f"q, kv, {STARTS}, {TWO}",
    (fa2, "flash_attn_varlen_qkvpacked_func"): f"qkv, cu_seqlens, max_seqlen, {TWO}",
    (fa2, "flash_attn_with_kvcache"): "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, "
    "rotary_sin=None, cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, "
    "block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
    "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False",
    (fa3, "flash_attn_func"): f"q, k, v, softmax_scale=None, causal=False, qv=None, {DESCALES}, "
    "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, "
    "deterministic=False, sm_margin=0, return_attn_probs=False",
    (fa3, "flash_attn_qkvpacked_func"): f"qkv, softmax_scale=None, causal=False, {DESCALES}, "
    "window_size=(-1, -1), attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None, "
    "sm_margin=0, return_attn_probs=False",
    (fa3, "flash_attn_varlen_func"): f"q, k, v, {STARTS}, seqused_q=None, seqused_k=None, "
    f"softmax_scale=None, causal=False, qv=None, {DESCALES}, window_size=(-1, -1), "
    "attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, "
    "sm_margin=0, return_attn_probs=False",
    (fa3, "flash_attn_combine"): "out_partial, lse_partial, out=None, out_dtype=None",
    (fa3, "flash_attn_with_kvcache"): "q, k_cache, v_cache, k=None, v=None, qv=None, "
    "rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None, "
    "cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, "
    f"max_seqlen_q=None, rotary_seqlens=None, {DESCALES}, softmax_scale=None, causal=False, "
    "window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True, "
    "scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False",
    (fa3, "get_scheduler_metadata"): "batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, "
    "num_heads_kv, headdim, cache_seqlens, qkv_dtype=torch.bfloat16, headdim_v=None, "
    "cu_seqlens_q=None, cu_seqlens_k_new=None, cache_leftpad=None, page_size=None, "
    "max_seqlen_k_new=0, causal=False, window_size=(-1, -1), attention_chunk=0, "
    "has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0",
    (cute, "flash_attn_func"): "q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, "
    "causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, "
    "pack_gqa=None, deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None, "
    "aux_tensors=None, aux_scalars=None, block_sparse_tensors=None, "
    "block_sparse_tensors_bwd=None, return_lse=False",
    (cute, "flash_attn_varlen_func"): "q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, "
    "max_seqlen_q=None, max_seqlen_k=None, min_seqlen_k=None, seqused_q=None, seqused_k=None, "
    "gather_kv_indices=None, page_table=None, softmax_scale=None, causal=False, "
    "window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None, "
    "deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None, "
    "block_sparse_tensors=None, aux_tensors=None, aux_scalars=None, return_lse=False, "
    "scheduler_metadata=None, seqlen_k_per_split=None, disable_scheduler_metadata=False",
    (bert_padding, "unpad_input"): "hidden_states, attention_mask, unused_mask=None",
    (bert_padding, "pad_input"): "hidden_states, indices, batch, seqlen",
    (rotary, "apply_rotary_emb"): "x, cos, sin, interleaved=False, inplace=False, "
    "seqlen_offsets=0, cu_seqlens=None, max_seqlen=None",
}  # fmt: skip


def in_double(q, k, v, seen, scale=None, softcap=0.0, sink=None, modify=None):
    """o and lse of `[N, H, D]` in float64. `seen` is Boolean, `[Nq, Nk]`."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if modify is not None:
        scores = modify(scores)
    scores = scores.masked_fill(~seen, -math.inf)
    if sink is not None:
        sink = sink.double()[:, None, None].expand(-1, scores.shape[1], 1)
        lse = torch.cat((scores, sink), -1).logsumexp(-1)
    else:
        lse = scores.logsumexp(-1)
    safe = lse.masked_fill(lse == -math.inf, 0)
    p = torch.exp(scores - safe[..., None])
    return (p @ v).transpose(0, 1), lse


def seen_by(nq, nk, causal=False, window_size=(-1, -1), attention_chunk=0):
    """The pairs that FlashAttention's arguments show, `[nq, nk]`."""
    left, right = (None if n == -1 else n for n in window_size)
    right = 0 if causal else right
    p, k = torch.arange(nq)[:, None] + nk - nq, torch.arange(nk)
    seen = torch.ones(nq, nk, dtype=torch.bool)
    if left is not None:
        seen &= k >= p - left
    if right is not None:
        seen &= k <= p + right
    if attention_chunk:
        seen &= p // attention_chunk == k // attention_chunk
    return seen


class FlashAttnTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def near(self, found, wanted, dtype=torch.float32):
        self.assertEqual(found.shape, wanted.shape)
        error = (found.double() - wanted).norm() / wanted.norm().clamp(min=1e-30)
        self.assertLess(error, BOUNDS[dtype])

    def rows(self, *shapes, dtype=torch.float32):
        return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]

    def check(self, leaves, found, wanted, dtype=torch.float32):
        """Values and gradients: `found` and `wanted` are o of the leaves."""
        self.near(found, wanted, dtype)
        self.assertEqual(found.dtype, dtype)
        d_o = torch.randn(wanted.shape).to(dtype)
        gradients = torch.autograd.grad(found, leaves, d_o, retain_graph=True)
        expected = torch.autograd.grad(wanted, leaves, d_o.double(), retain_graph=True)
        for one, other in zip(gradients, expected):
            self.near(one, other.double(), dtype)

    def batched(self, q, k, v, scale=None, softcap=0.0, sink=None, modify=None, **mask):
        seen = seen_by(q.shape[1], k.shape[1], **mask)
        found = [
            in_double(*rows, seen, scale, softcap, sink, modify) for rows in zip(q, k, v)
        ]
        return [torch.stack(x) for x in zip(*found)]

    def packed(self, q, k, v, spans, scale=None, softcap=0.0, sink=None, **mask):
        """`spans` are the rows of each sequence: (q0, q1, k0, k1)."""
        o = torch.zeros(*q.shape[:2], v.shape[2], dtype=torch.float64)
        lse = torch.full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float64)
        for q0, q1, k0, k1 in spans:
            if q0 < q1 and k0 < k1:
                seen = seen_by(q1 - q0, k1 - k0, **mask)
                part = in_double(q[q0:q1], k[k0:k1], v[k0:k1], seen, scale, softcap, sink)
                rows = torch.arange(q0, q1)
                o, lse = o.index_copy(0, rows, part[0]), lse.index_copy(1, rows, part[1])
        return o, lse

    def test_signatures(self):
        for (module, name), wanted in SIGNATURES.items():
            with self.subTest(module=module.__name__, name=name):
                parameters = inspect.signature(getattr(module, name)).parameters.values()
                found = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)
                self.assertEqual(found, wanted)
                self.assertIn(name, module.__all__)

    def test_batched(self):
        for shape, dtype, options in (
            ((2, 40, 40, 4, 2, 32, 32), torch.float32, {}),
            ((2, 40, 40, 4, 4, 32, 32), torch.float32, {"causal": True}),
            ((1, 24, 40, 4, 1, 32, 32), torch.float32, {"causal": True, "window_size": (9, -1)}),
            ((1, 40, 40, 2, 2, 32, 32), torch.bfloat16, {"window_size": (-1, 5)}),
            ((1, 24, 40, 4, 2, 32, 16), torch.float32, {"window_size": (7, 3)}),
            ((1, 24, 40, 2, 2, 19, 13), torch.float32, {"causal": True}),
            ((1, 40, 40, 4, 2, 32, 32), torch.bfloat16, {"causal": True, "softcap": 3.0}),
            ((1, 40, 40, 2, 2, 32, 32), torch.float32, {"scale": 0.4, "softcap": 2.0}),
        ):
            b, nq, nk, heads, shared, d, dv = shape
            shapes = (b, nq, heads, d), (b, nk, shared, d), (b, nk, shared, dv)
            leaves = self.rows(*shapes, dtype=dtype)
            wanted, wanted_lse = self.batched(*leaves, **options)
            given = {("softmax_scale" if k == "scale" else k): x for k, x in options.items()}
            bounds = [None if n < 0 else n for n in given.get("window_size", (-1, -1))]
            for module, more, count in (
                (fa2, {"return_attn_probs": True}, 3),
                (fa3, {"return_attn_probs": True, "num_splits": 2, "sm_margin": 4}, 2),
                (cute, {"return_lse": True, "pack_gqa": True, "window_size": bounds}, 2),
            ):
                with self.subTest(shape=shape, module=module.__name__, **options):
                    results = module.flash_attn_func(*leaves, **{**given, **more})
                    self.assertEqual(len(results), count)
                    self.check(leaves, results[0], wanted, dtype)
                    self.near(results[1], wanted_lse, dtype)
                    self.assertEqual(results[1].dtype, torch.float32)
                    self.assertTrue(all(x is None for x in results[2:]))

    def test_results_without_lse(self):
        q, k, v = (x.detach() for x in self.rows(*[(1, 9, 2, 16)] * 3))
        for module in (fa2, fa3):
            self.assertIsInstance(module.flash_attn_func(q, k, v), torch.Tensor)
        o, lse = cute.flash_attn_func(q, k, v)
        self.assertEqual((o.shape, lse), (q.shape, None))
        self.assertEqual(cute.flash_attn_func(q.requires_grad_(), k, v)[1].shape, (1, 2, 9))

    def test_lse_has_a_gradient(self):
        leaves = self.rows(*[(1, 20, 2, 16)] * 3)
        for deterministic in (False, True):
            _, lse, _ = fa2.flash_attn_func(
                *leaves, causal=True, return_attn_probs=True, deterministic=deterministic
            )
            _, wanted = self.batched(*leaves, causal=True)
            found = torch.autograd.grad(lse.square().sum(), leaves[:2])
            expected = torch.autograd.grad(wanted.square().sum(), leaves[:2])
            for one, other in zip(found, expected):
                self.near(one, other.double())

    def test_one_tensor_of_several(self):
        (qkv,) = self.rows((2, 20, 3, 4, 16))
        (q,), (kv,) = self.rows((2, 20, 4, 16)), self.rows((2, 20, 2, 2, 16))
        (grouped,) = self.rows((2, 20, 8, 16))
        starts = torch.tensor([0, 15, 40], dtype=torch.int32)
        options = {"causal": True, "softcap": 2.0}
        for leaves, found, parts in (
            ((qkv,), fa2.flash_attn_qkvpacked_func(qkv, **options), qkv.unbind(2)),
            ((qkv,), fa3.flash_attn_qkvpacked_func(qkv, **options), qkv.unbind(2)),
            ((q, kv), fa2.flash_attn_kvpacked_func(q, kv, **options), (q, *kv.unbind(2))),
            (
                (grouped,),
                fa3.flash_attn_qkvpacked_func(grouped, num_heads_q=4, **options),
                grouped.split([4, 2, 2], 2),
            ),
        ):
            self.check(leaves, found, self.batched(*parts, **options)[0])
        spans = [(0, 15, 0, 15), (15, 40, 15, 40)]
        rows, pairs, whole = (x.flatten(0, 1) for x in (q, kv, qkv))
        found = fa2.flash_attn_varlen_qkvpacked_func(whole, starts, 25, **options)
        self.check((qkv,), found, self.packed(*whole.unbind(1), spans, **options)[0])
        found = fa2.flash_attn_varlen_kvpacked_func(rows, pairs, starts, starts, 25, 25, **options)
        self.check((q, kv), found, self.packed(rows, *pairs.unbind(1), spans, **options)[0])
        for heads in (None, 7, 8):
            with self.assertRaisesRegex(ArgumentError, "^expected num_heads_q .* but got "):
                fa3.flash_attn_qkvpacked_func(grouped, num_heads_q=heads)

    def test_packed(self):
        # An empty sequence, one without keys, and rows of no sequence at the end.
        starts = torch.tensor([0, 11, 11, 30, 34, 50], dtype=torch.int32)
        key_starts = torch.tensor([0, 20, 27, 40, 40, 60], dtype=torch.int32)
        pairs = list(zip(starts.tolist(), starts[1:].tolist()))
        key_pairs = list(zip(key_starts.tolist(), key_starts[1:].tolist()))
        spans = [(*rows, *keys) for rows, keys in zip(pairs, key_pairs)]
        limits = starts, key_starts, 25, 20
        for dtype, options in (
            (torch.float32, {}),
            (torch.float32, {"causal": True}),
            (torch.bfloat16, {"causal": True, "window_size": (6, -1), "softcap": 3.0}),
        ):
            leaves = self.rows((53, 4, 16), (60, 2, 16), (60, 2, 16), dtype=dtype)
            wanted, wanted_lse = self.packed(*leaves, spans, **options)
            bounds = [None if n < 0 else n for n in options.get("window_size", (-1, -1))]
            named = dict(cu_seqlens_q=starts, cu_seqlens_k=key_starts, return_lse=True)
            for module, call in (
                (fa2, lambda f: f(*leaves, *limits, **options, return_attn_probs=True)),
                (fa3, lambda f: f(*leaves, *limits, **options, return_attn_probs=True)),
                (cute, lambda f: f(*leaves, **{**options, **named, "window_size": bounds})),
            ):
                with self.subTest(module=module.__name__, **options):
                    o, lse = call(module.flash_attn_varlen_func)[:2]
                    self.check(leaves, o, wanted, dtype)
                    self.assertTrue(torch.equal(lse.isinf(), wanted_lse.isinf()))
                    self.near(lse[lse.isfinite()], wanted_lse[lse.isfinite()], dtype)

    def test_lengths_in_use(self):
        starts = torch.tensor([0, 12, 30], dtype=torch.int32)
        used, keys_used = (torch.tensor(x, dtype=torch.int32) for x in ([8, 18], [9, 14]))
        spans = [(0, 8, 0, 9), (12, 30, 12, 26)]
        leaves = self.rows((30, 2, 16), (30, 2, 16), (30, 2, 16))
        wanted, _ = self.packed(*leaves, spans, causal=True)
        more = dict(seqused_q=used, seqused_k=keys_used, causal=True)
        found = fa3.flash_attn_varlen_func(*leaves, starts, starts, 18, 18, **more)
        self.check(leaves, found, wanted)
        found, _ = cute.flash_attn_varlen_func(
            *leaves, cu_seqlens_q=starts, cu_seqlens_k=starts, **more
        )
        self.check(leaves, found, wanted)

    def test_batches_beside_packed_rows(self):
        """FlashAttention-4 packs either side, or none."""
        starts = torch.tensor([0, 12, 30], dtype=torch.int32)
        used, keys_used = (torch.tensor(x, dtype=torch.int32) for x in ([8, 15], [9, 14]))
        q, k, v = self.rows((2, 15, 4, 16), (30, 2, 16), (30, 2, 16))
        o, lse = cute.flash_attn_varlen_func(
            q, k, v, cu_seqlens_k=starts, causal=True, return_lse=True
        )
        wanted, wanted_lse = self.packed(
            q.flatten(0, 1), k, v, [(0, 15, 0, 12), (15, 30, 12, 30)], causal=True
        )
        self.check((q, k, v), o, wanted.unflatten(0, (2, 15)))
        finite = wanted_lse.isfinite()
        lse = lse.transpose(0, 1).flatten(1)
        self.assertTrue(torch.equal(lse.isfinite(), finite))
        self.near(lse[finite], wanted_lse[finite])
        q, k, v = self.rows((30, 4, 16), (2, 20, 2, 16), (2, 20, 2, 16))
        o, _ = cute.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts, seqused_k=keys_used)
        flat = k.flatten(0, 1), v.flatten(0, 1)
        wanted, _ = self.packed(q, *flat, [(0, 12, 0, 9), (12, 30, 20, 34)])
        self.check((q, k, v), o, wanted)
        q, k, v = self.rows((2, 15, 4, 16), (2, 20, 2, 16), (2, 20, 2, 16))
        flat = [x.flatten(0, 1) for x in (q, k, v)]
        o, _ = cute.flash_attn_varlen_func(
            q, k, v, seqused_q=used, seqused_k=keys_used, causal=True
        )
        wanted, _ = self.packed(*flat, [(0, 8, 0, 9), (15, 30, 20, 34)], causal=True)
        self.check((q, k, v), o, wanted.unflatten(0, (2, 15)))
        o, _ = cute.flash_attn_varlen_func(q, k, v, seqused_k=keys_used)
        wanted, _ = self.packed(*flat, [(0, 15, 0, 9), (15, 30, 20, 34)])
        self.check((q, k, v), o, wanted.unflatten(0, (2, 15)))

    def test_chunks(self):
        for sizes, options in (
            ((40, 40), {"causal": True, "attention_chunk": 16}),
            ((30, 40), {"attention_chunk": 7}),
            ((30, 40), {"attention_chunk": 12, "window_size": (5, 2)}),
        ):
            with self.subTest(sizes=sizes, **options):
                leaves = self.rows(*((1, n, 2, 16) for n in (sizes[0], sizes[1], sizes[1])))
                found = fa3.flash_attn_func(*leaves, **options)
                self.check(leaves, found, self.batched(*leaves, **options)[0])

    def test_sinks(self):
        leaves = self.rows((2, 20, 4, 16), (2, 20, 2, 16), (2, 20, 2, 16))
        sink = torch.randn(4).bfloat16().requires_grad_()
        wanted, wanted_lse = self.batched(*leaves, sink=sink, causal=True, window_size=(5, None))
        for deterministic in (False, True):
            o, lse = cute.flash_attn_func(
                *leaves, causal=True, window_size=(5, None), learnable_sink=sink, return_lse=True,
                deterministic=deterministic,
            )  # fmt: skip
            self.check(leaves, o, wanted)
            self.near(lse, wanted_lse)
            d_o = torch.randn(o.shape)
            (found,) = torch.autograd.grad(o, sink, d_o, retain_graph=True)
            (expected,) = torch.autograd.grad(wanted, sink, d_o.double(), retain_graph=True)
            self.near(found, expected.double(), torch.bfloat16)

    def test_score_mods(self):
        def slopes(score, b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
            return score - 0.1 * (h + 1) * (q_idx - kv_idx)

        heads = torch.arange(2)[:, None, None]
        for nq, options in ((20, {}), (20, {"causal": True}), (12, {}), (12, {"causal": True})):
            with self.subTest(nq=nq, **options):
                leaves = self.rows((1, nq, 2, 16), (1, 20, 2, 16), (1, 20, 2, 16))
                distance = torch.arange(nq)[:, None] - torch.arange(20)
                wanted, _ = self.batched(
                    *leaves, modify=lambda s: s - 0.1 * (heads + 1) * distance, **options
                )
                found, _ = cute.flash_attn_func(*leaves, score_mod=slopes, **options)
                self.check(leaves, found, wanted)
        starts = torch.tensor([0, 12], dtype=torch.int32)
        rows = [x[0] for x in self.rows(*[(1, 12, 2, 16)] * 3)]
        distance = torch.arange(12)[:, None] - torch.arange(12)
        options = dict(cu_seqlens_q=starts, cu_seqlens_k=starts, score_mod=slopes)
        found, _ = cute.flash_attn_varlen_func(*rows, **options)
        wanted, _ = in_double(
            *rows, seen_by(12, 12), modify=lambda s: s - 0.1 * (heads + 1) * distance
        )
        self.near(found, wanted)
        with self.assertRaisesRegex(UnsupportedError, "^score_mod with causal or window_size is not supported"):
            cute.flash_attn_varlen_func(*rows, causal=True, **options)
        with self.assertRaises(TraceError):
            cute.flash_attn_func(
                *(x[None] for x in rows), score_mod=lambda s, b, h, **options: math.exp(s)
            )

    def test_mask_mods(self):
        def near(b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
            return (q_idx - kv_idx < 4) & (kv_idx - q_idx < 4)

        for nq in (20, 12):
            leaves = self.rows((1, nq, 2, 16), (1, 20, 2, 16), (1, 20, 2, 16))
            distance = torch.arange(nq)[:, None] - torch.arange(20)
            wanted, _ = in_double(*(x[0] for x in leaves), distance.abs() < 4)
            found, _ = cute.flash_attn_func(*leaves, mask_mod=near, causal=True)
            self.check(leaves, found, wanted[None])
        with self.assertRaises(TraceError):
            cute.flash_attn_func(*leaves, mask_mod=lambda b, h, q, k, info, aux: q * k > b)

    def test_bounds_of_the_fourth_generation(self):
        q, k, v = (x.detach() for x in self.rows(*[(1, 20, 2, 16)] * 3))
        for window, causal, wanted in (
            ((-1, -1), False, {}),
            ((-1, -1), True, {"causal": True}),
            ((None, 0), False, {"causal": True}),
            ((4, None), True, {"causal": True, "window_size": (4, -1)}),
            ((4, -1), True, {"causal": True, "window_size": (4, -1)}),
            ((-3, None), True, {"causal": True}),
            ((None, -3), False, {"window_size": (None, -3)}),
            ((-3, None), False, {"window_size": (-3, None)}),
            ((7, -3), False, {"window_size": (7, -3)}),
            ((-3, 7), False, {"window_size": (-3, 7)}),
        ):
            found, _ = cute.flash_attn_func(q, k, v, causal=causal, window_size=window)
            self.near(found, self.batched(q, k, v, **wanted)[0])

    def test_rows_that_see_nothing(self):
        leaves = self.rows((1, 12, 2, 16), (1, 5, 2, 16), (1, 5, 2, 16))
        for module in (fa2, fa3):
            o, lse = module.flash_attn_func(*leaves, causal=True, return_attn_probs=True)[:2]
            self.assertTrue((o[:, :7] == 0).all() and (lse[..., :7] == -math.inf).all())
            self.assertTrue(lse[..., 7:].isfinite().all())
            self.check(leaves, o, self.batched(*leaves, causal=True)[0])

    def test_deterministic(self):
        leaves = self.rows((1, 20, 4, 16), (1, 20, 2, 16), (1, 20, 2, 16))
        with mock.patch.object(
            _core, "attention_backward", wraps=_core.attention_backward
        ) as backward:
            for module in (fa2, fa3, cute):
                found = module.flash_attn_func(*leaves, causal=True, deterministic=True)
                found = found[0] if isinstance(found, tuple) else found
                self.check(leaves, found, self.batched(*leaves, causal=True)[0])
            self.assertEqual(backward.call_count, 3)
            self.assertTrue(all(call[1]["deterministic"] for call in backward.call_args_list))
            fa2.flash_attn_func(*leaves).sum().backward()
            with torch.no_grad():
                fa2.flash_attn_func(*leaves, deterministic=True)
            self.assertEqual(backward.call_count, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = fa2.flash_attn_func(*leaves, deterministic=True)
        wanted, _ = self.batched(*leaves)
        self.near(found, wanted, torch.bfloat16)
        for one, other in zip(
            torch.autograd.grad(found.sum(), leaves), torch.autograd.grad(wanted.sum(), leaves)
        ):
            self.assertEqual(one.dtype, torch.float32)
            self.near(one, other.double(), torch.bfloat16)

    def test_deterministic_packed(self):
        starts = torch.tensor([0, 12, 30], dtype=torch.int32)
        leaves = self.rows(*[(30, 2, 16)] * 3)
        found = fa2.flash_attn_varlen_func(
            *leaves, starts, starts, 18, 18, causal=True, deterministic=True
        )
        spans = [(0, 12, 0, 12), (12, 30, 12, 30)]
        self.check(leaves, found, self.packed(*leaves, spans, causal=True)[0])

    def test_combine(self):
        q, k, v = (x.detach() for x in self.rows(*[(2, 20, 2, 16)] * 3))
        wanted, wanted_lse = self.batched(q, k, v)
        parts = [
            fa3.flash_attn_func(q, k[:, i : i + 5], v[:, i : i + 5], return_attn_probs=True)
            for i in range(0, 20, 5)
        ]
        nothing = torch.full_like(q, math.nan), torch.full((2, 2, 20), -math.inf)
        outs, lses = map(torch.stack, zip(*parts, nothing))
        o, lse = fa3.flash_attn_combine(outs, lses.transpose(-1, -2))
        self.near(o, wanted)
        self.near(lse, wanted_lse.transpose(1, 2))
        out = torch.empty_like(q, dtype=torch.bfloat16)
        o, _ = fa3.flash_attn_combine(outs, lses.transpose(-1, -2), out, torch.bfloat16)
        self.assertIs(o, out)
        self.near(o, wanted, torch.bfloat16)
        o, lse = fa3.flash_attn_combine(*(x[None] for x in nothing[:1]), lses[-1:].mT)
        self.assertTrue((o == 0).all() and (lse == -math.inf).all())
        with self.assertRaisesRegex(ArgumentError, "^expected out of type"):
            fa3.flash_attn_combine(outs, lses.mT, out, torch.float32)

    def test_caches(self):
        q, k, v = (x.detach() for x in self.rows((2, 3, 4, 16), (2, 20, 2, 16), (2, 20, 2, 16)))
        lengths = torch.tensor([9, 14], dtype=torch.int32)
        spans = [(0, 3, 0, 12), (3, 6, 20, 37)]
        flat = [x.flatten(0, 1) for x in (q, k, v)]
        wanted, wanted_lse = self.packed(*flat, spans, causal=True)
        new = [torch.stack([x[b, n : n + 3] for b, n in enumerate(lengths)]) for x in (k, v)]
        for module in (fa2, fa3):
            caches = [x.clone() for x in (k, v)]
            for b, n in enumerate(lengths.tolist()):
                for cache in caches:
                    cache[b, n:] = math.nan
            o, lse = module.flash_attn_with_kvcache(
                q, *caches, *new, cache_seqlens=lengths, causal=True, return_softmax_lse=True
            )
            self.near(o.flatten(0, 1), wanted)
            self.near(lse.transpose(0, 1).flatten(1), wanted_lse)
            self.assertTrue(torch.equal(caches[0][1, 14:17], k[1, 14:17]))
            again = module.flash_attn_with_kvcache(
                q, *caches, cache_seqlens=lengths + 3, causal=True
            )
            self.assertTrue(torch.equal(again, o))
            whole = module.flash_attn_with_kvcache(q, k, v)
            self.near(whole, self.batched(q, k, v)[0])
            part = module.flash_attn_with_kvcache(q, k, v, cache_seqlens=7)
            self.near(part, self.batched(q, k[:, :7], v[:, :7])[0])

    def test_refused(self):
        q, k, v = (x.detach() for x in self.rows(*[(1, 9, 2, 16)] * 3))
        rows = [x[0] for x in (q, k, v)]
        starts = torch.tensor([0, 9], dtype=torch.int32)
        packed = *rows, starts, starts, 9, 9
        some = torch.ones(2)
        two = {"dropout_p": 0.1}
        three = {"qv": some}
        four = {
            name: some
            for name in ("qv", "gather_kv_indices", "score_mod_bwd", "block_sparse_tensors")
        }
        four.update(aux_tensors=[some], aux_scalars=(1,))
        qkv, kv = torch.stack((q, k, v), 2), torch.stack((k, v), 2)
        for module, name, given, refused in (
            (fa2, "flash_attn_func", (q, k, v), two),
            (fa2, "flash_attn_qkvpacked_func", (qkv,), two),
            (fa2, "flash_attn_kvpacked_func", (q, kv), two),
            (fa2, "flash_attn_varlen_func", packed, two),
            (fa2, "flash_attn_varlen_qkvpacked_func", (qkv[0], starts, 9), two),
            (fa2, "flash_attn_varlen_kvpacked_func", (q[0], kv[0], *packed[3:]), two),
            (fa3, "flash_attn_func", (q, k, v), three),
            (fa3, "flash_attn_varlen_func", packed, three),
            (fa3, "flash_attn_with_kvcache", (q, k, v), three),
            (cute, "flash_attn_func", (q, k, v), {**four, "block_sparse_tensors_bwd": some}),
            (cute, "flash_attn_varlen_func", (q, k, v), four),
        ):  # fmt: skip
            for argument, value in refused.items():
                with self.subTest(module=module.__name__, function=name, argument=argument):
                    with self.assertRaises(UnsupportedError) as caught:
                        getattr(module, name)(*given, **{argument: value})
                    wanted = f"^expected {argument} (0|None) but got "
                    self.assertRegex(str(caught.exception), wanted)
        with self.assertRaises(UnsupportedError) as caught:
            fa2.flash_attn_func(q, k, v, 0.1)
        self.assertEqual(
            str(caught.exception),
            "expected dropout_p 0 but got 0.1; pass 0.0, because dropout is not supported",
        )

    def test_invalid(self):
        q, k, v = (x.detach() for x in self.rows(*[(1, 9, 2, 16)] * 3))
        for call in (
            lambda: fa2.flash_attn_func(q.numpy(), k, v),
            lambda: fa2.flash_attn_func(q, k, v, window_size=(1, 2, 3)),
            lambda: fa2.flash_attn_func(q, k[:, :, :, :8], v),
            lambda: fa2.flash_attn_with_kvcache(q, k, v, k, v),
            lambda: cute.flash_attn_varlen_func(q[0], k, v, seqused_q=torch.ones(1).int()),
            lambda: fa2.install("5"),
        ):
            with self.assertRaisesRegex(FlashAttnError, "^expected .* but got "):
                call()

    def test_compiled(self):
        leaves = self.rows((1, 20, 4, 16), (1, 20, 2, 16), (1, 20, 2, 16))
        for module, whole, options in (
            (fa2, True, {"window_size": (5, -1)}),
            (fa3, True, {"window_size": (5, -1), "attention_chunk": 7}),
            (fa2, False, {"deterministic": True}),
        ):
            with self.subTest(module=module.__name__, **options):
                compiled = torch.compile(
                    lambda q, k, v: module.flash_attn_func(q, k, v, causal=True, **options) * 2,
                    backend="aot_eager", fullgraph=whole,
                )  # fmt: skip
                mask = {x: y for x, y in options.items() if x != "deterministic"}
                wanted, _ = self.batched(*leaves, causal=True, **mask)
                self.check(leaves, compiled(*leaves), wanted * 2)
        torch._dynamo.reset()
        message = "expected fullgraph=False for deterministic=True"
        with self.assertRaisesRegex(RuntimeError, message):
            torch.compile(
                lambda q, k, v: fa2.flash_attn_func(q, k, v, deterministic=True),
                backend="aot_eager", fullgraph=True,
            )(*leaves)  # fmt: skip

    def test_compiled_packed(self):
        starts = torch.tensor([0, 12, 30], dtype=torch.int32)
        leaves = self.rows((30, 4, 16), (30, 2, 16), (30, 2, 16))
        wanted, _ = self.packed(*leaves, [(0, 12, 0, 12), (12, 30, 12, 30)], causal=True)
        compiled = torch.compile(
            lambda *rows: fa2.flash_attn_varlen_func(*rows, starts, starts, 18, 18, causal=True),
            backend="aot_eager", fullgraph=True,
        )  # fmt: skip
        self.check(leaves, compiled(*leaves), wanted)


if __name__ == "__main__":
    unittest.main()
