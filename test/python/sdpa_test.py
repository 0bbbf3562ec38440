# flashattn.torch.sdpa against torch's own attention in float64, values and gradients; what puts it in its
# place; and what is refused.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import itertools
import unittest
import unittest.mock

import torch
from flashattn import ArgumentError, UnsupportedError, _reference
from flashattn import torch as ft
from flashattn.torch import _hook, _sdpa
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as own

BOUNDS = {getattr(torch, name): _reference.FROBENIUS[short] for name, short in
          (("float32", "f32"), ("float16", "f16"), ("bfloat16", "bf16"))}  # fmt: skip


def mask_of(kind, shape):
    if kind == "bool":
        mask = torch.rand(shape) > 0.3
        mask[..., 0] = True  # torch's own math gives NaN where nothing is seen
        return mask
    return None if kind is None else torch.randn(shape)


class SdpaTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def compare(self, q, k, v, mask=None, **options):
        """Values and gradients against float64 of the same numbers."""
        results = []
        for wide in (False, True):
            call = own if wide else ft.sdpa
            leaves = [x.detach().double() if wide else x.detach() for x in (q, k, v)]
            if mask is not None and mask.is_floating_point():
                leaves.append(mask.detach().double() if wide else mask.detach())
            leaves = [x.requires_grad_() for x in leaves]
            given = leaves if mask is None or len(leaves) == 4 else [*leaves, mask]
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                o = call(*given, **options)
            weigh = torch.linspace(-1, 1, o.numel()).reshape(o.shape).to(o.dtype)
            results.append((o, *torch.autograd.grad(o, leaves, weigh)))
        for found, wanted in zip(*results):
            self.assertEqual(found.shape, wanted.shape)
            bound = BOUNDS[q.dtype] * 1.5 + (0 if found is results[0][0] else BOUNDS[q.dtype])
            error = (found.double() - wanted).detach().norm()
            self.assertLessEqual(float(error), bound * float(wanted.detach().norm()) + 1e-5)
        if mask is not None and mask.shape != (2, 1, q.shape[2], k.shape[2]):
            return
        with torch.no_grad():
            # Without lse another kernel of the same numbers.
            o = ft.sdpa(*[x.detach() for x in (q, k, v)], mask, **options)
        self.assertLessEqual(
            float((o.double() - results[1][0].detach()).norm()),
            1.5 * BOUNDS[q.dtype] * float(o.double().norm()) + 1e-6,
        )

    def test_grid(self):
        for dtype, kind, (nq, nk), is_causal in itertools.product(
            BOUNDS, (None, "bool", "float"), ((7, 7), (5, 19), (19, 5), (1, 33)), (False, True)
        ):
            if kind is not None and (is_causal or nq == nk):
                continue
            if dtype is torch.float16 and (nq == 1 or kind is not None):
                continue
            q, k, v = (torch.randn(2, 4, n, 16, dtype=dtype) for n in (nq, nk, nk))
            with self.subTest(dtype=dtype, mask=kind, lengths=(nq, nk), is_causal=is_causal):
                mask = mask_of(kind, (2, 1, nq, nk))
                mask = mask.to(dtype) if kind == "float" else mask
                self.compare(q, k, v, mask, is_causal=is_causal)

    def test_transposed(self):
        for batch, mask in ((2, None), (3, torch.rand(1, 1, 5, 7) > 0.3)):
            q, k, v = (
                torch.randn(batch, n, h, 16).transpose(1, 2) for n, h in ((5, 4), (7, 2), (7, 2))
            )
            self.compare(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            o = ft.sdpa(*leaves, mask, is_causal=mask is None, enable_gqa=True)
            grads = torch.autograd.grad(o.sum(), leaves)
            for found, like in zip((o, *grads), (q, q, k, v)):
                self.assertEqual(found.stride(), like.stride())
        expanded = torch.randn(2, 1, 5, 16).expand(2, 4, 5, 16)
        self.assertTrue(ft.sdpa(expanded, expanded, expanded).is_contiguous())

    def test_masks_broadcast(self):
        q, k, v = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 24)
        shapes = (9,), (5, 1), (4, 1, 9), (2, 1, 1, 9), (2, 4, 5, 9)
        for kind, shape in zip(itertools.cycle(("bool", "float")), shapes):
            with self.subTest(kind=kind, shape=shape):
                self.compare(q, k, v, mask_of(kind, shape))
        self.compare(q, k, v, torch.randn(9, 5).mT)

    def test_heads_and_ranks(self):
        make = torch.randn
        self.compare(
            make(2, 6, 5, 16), make(2, 2, 9, 16), make(2, 2, 9, 16), enable_gqa=True, scale=0.3
        )
        self.compare(make(3, 5, 16), make(3, 9, 16), make(3, 9, 16), make(3, 5, 9))
        self.compare(make(5, 16), make(9, 16), make(9, 16), is_causal=True)
        self.compare(
            make(2, 3, 4, 5, 16), make(2, 3, 4, 9, 16), make(2, 3, 4, 9, 16), make(3, 1, 5, 9)
        )
        self.compare(make(2, 4, 5, 16), make(1, 1, 9, 16), make(2, 1, 9, 16))
        self.compare(make(1, 4, 5, 16), make(4, 9, 16), make(2, 4, 9, 16))
        self.compare(
            make(2, 5, 4, 16).transpose(1, 2),
            make(2, 4, 16, 9).mT,
            make(2, 4, 9, 1).expand(2, 4, 9, 16),
        )

    def test_rows_that_see_nothing(self):
        q, k, v = (torch.randn(1, 2, n, 16, requires_grad=True) for n in (4, 9, 9))
        seen = torch.ones(4, 9, dtype=torch.bool)
        seen[2] = False
        for mask in (seen, torch.zeros(4, 9).masked_fill(~seen, -torch.inf)):
            o = ft.sdpa(q, k, v, mask)
            self.assertTrue((o[:, :, 2] == 0).all())
            torch.testing.assert_close(o, own(q, k, v, mask), rtol=1e-4, atol=1e-5)
            found = torch.autograd.grad(o.square().sum(), (q, k, v))
            self.assertTrue(all(x.isfinite().all() for x in found))
            self.assertTrue((found[0][:, :, 2] == 0).all())

    def test_masks_of_finite_numbers(self):
        """The lowest number of a type hides keys; a row of it alone is the mean of the values, as torch has it."""
        seen = torch.ones(4, 9, dtype=torch.bool)
        seen[:, :5] = seen[2] = False
        for dtype in BOUNDS:
            for number in (torch.finfo(dtype).min, -1e4):
                q, k, v = (torch.randn(1, 2, n, 16).to(dtype).requires_grad_() for n in (4, 9, 9))
                mask = torch.zeros(4, 9, dtype=dtype).masked_fill(~seen, number)
                with self.subTest(dtype=dtype, number=number):
                    # Step by step: torch's own takes a row's weights against a rounded log-sum-exp.
                    scores = q.double() @ k.double().mT / 4 + mask.double()
                    found, exact = ft.sdpa(q, k, v, mask), scores.softmax(-1) @ v.double()
                    gradients, wanted = (torch.autograd.grad(o.square().sum(), (q, k, v)) for o in (found, exact))
                    for x, y in zip((found, *gradients), (exact, *wanted)):
                        torch.testing.assert_close(x.double(), y.double(), rtol=3e-2, atol=3e-2)

    def test_empty(self):
        for shape in ((0, 4, 5, 16), (2, 4, 0, 16)):
            q = torch.randn(shape, requires_grad=True)
            o = ft.sdpa(q, q, q)
            self.assertEqual(o.shape, shape)
            o.sum().backward()
            self.assertEqual(q.grad.shape, shape)

    def test_in_place_of_torchs_own(self):
        q, k, v = (torch.randn(2, 4, n, 16, requires_grad=True) for n in (5, 9, 9))
        with ft.replace_sdpa():
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            with self.assertRaisesRegex(ArgumentError, "expected dropout_p 0 but got 0.5"):
                own(q, k, v, dropout_p=0.5)
        self.assertIn("_AttentionBackward", str(o.grad_fn))
        self.assertNotIn("_AttentionBackward", str(own(q, k, v).grad_fn))
        torch.testing.assert_close(o, own(q, k, v, is_causal=True), rtol=1e-4, atol=1e-5)

        def layer(q, k, v):
            with ft.replace_sdpa():
                return own(q, k, v, is_causal=True)

        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(q, k, v), o, rtol=1e-4, atol=1e-5)

    def test_modules_of_torch(self):
        """They reach it eager and compiled, in training and evaluation, where torch has ways around its own
        function too; one that is compiled outside is replaced when it is called within."""
        x, memory = torch.randn(2, 7, 32), torch.randn(2, 5, 32)
        hidden = torch.zeros(2, 7, dtype=torch.bool)
        hidden[1, 4:] = True
        causal = torch.nn.Transformer.generate_square_subsequent_mask(7)
        layer = {"dim_feedforward": 16, "dropout": 0.0, "batch_first": True}
        heads = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, **layer), 2)
        decoder = torch.nn.TransformerDecoderLayer(32, 4, **layer)
        calls = []

        def counted(*args, **kwargs):
            calls.append(None)
            return attention(*args, **kwargs)

        attention = _sdpa.attention
        for count, module, call in (
            (1, heads, lambda: heads(x, x, x, need_weights=False)[0]),
            (2, encoder, lambda: encoder(x, src_key_padding_mask=hidden)),
            (2, decoder, lambda: decoder(x, memory, tgt_mask=causal, tgt_is_causal=True)),
        ):
            for training, is_compiled in ((False, False), (True, False), (module is decoder, True)):
                torch._dynamo.reset()
                module.train(training)
                run = torch.compile(call, backend="aot_eager") if is_compiled else call
                with self.subTest(type(module).__name__, training=training, is_compiled=is_compiled):
                    wanted = call()
                    with unittest.mock.patch.object(_sdpa, "attention", counted), ft.replace_sdpa():
                        calls.clear()
                        found = run()
                        self.assertEqual(len(calls), count)
                    seen = ~hidden if module is encoder else slice(None)
                    torch.testing.assert_close(found[seen], wanted[seen], rtol=1e-4, atol=1e-5)
        heads.dropout = 0.5
        with ft.replace_sdpa(), self.assertRaisesRegex(ArgumentError, "expected dropout_p 0 but got 0.5"):
            heads.train()(x, x, x, need_weights=False)
        self.assertIs(torch.nn.functional.multi_head_attention_forward.__globals__[own.__name__], own)

    def test_causal_biases_of_torch(self):
        q, k, v = (torch.randn(1, 2, n, 16, requires_grad=True) for n in (5, 9, 9))
        for make in (causal_lower_right, causal_upper_left):
            bias = make(5, 9)
            with ft.replace_sdpa():
                o = own(q, k, v, bias)
            torch.testing.assert_close(o, own(q, k, v, bias), rtol=1e-4, atol=1e-5)
            with self.assertRaisesRegex(ArgumentError, "expected attn_mask or is_causal but got both"):
                ft.sdpa(q, k, v, bias, is_causal=True)

    def test_hook_of_torch(self):
        ft.register()
        ft.register()
        self.assertIn("flashattn", torch.nn.attention.list_flash_attention_impls())
        q, k, v = (torch.randn(2, n, 4, 16, requires_grad=True) for n in (5, 9, 9))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2).contiguous(), v.transpose(1, 2)
        few, bias = (x[:, :2] for x in (k, v)), torch.randn(5, 9)
        cases = (
            ((q, k, v), {"is_causal": True}), ((q, k, v), {"attn_mask": bias, "scale": 0.3}),
            ((q, k, v), {"attn_mask": bias > 0}), ((q, *few), {"enable_gqa": True}),
            ([x.bfloat16() for x in (q, k, v)], {}),
        )  # fmt: skip

        def run(call=own):
            return [
                (o, *torch.autograd.grad(o.float().square().sum(), given))
                for given, o in ((given, call(*given, **options)) for given, options in cases)
            ]

        wanted = run()
        torch.nn.attention.activate_flash_attention_impl("flashattn")
        try:
            with torch.profiler.profile() as profile:
                found = run()
            compiled = run(torch.compile(own, backend="aot_eager", fullgraph=True))
            with self.assertRaisesRegex(UnsupportedError, "expected .* with element type .* but got float64"):
                own(*(x.double() for x in (q, k, v)))
        finally:
            torch.nn.attention.restore_flash_attention_impl()
        names = {event.key for event in profile.key_averages()}
        self.assertIn("aten::_scaled_dot_product_flash_attention_for_cpu_backward", names)
        self.assertTrue(all(torch.equal(x, y) for x, y in zip(wanted[0], run()[0])))
        for case in zip(found, compiled, wanted):
            for mine, traced, other in zip(*case):
                self.assertEqual(mine.stride(), traced.stride())
                bound = {"rtol": 2e-2, "atol": 2e-2} if mine.dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
                torch.testing.assert_close(mine, other, **bound)
                torch.testing.assert_close(traced, mine)
        self.assertFalse(all(torch.equal(x, y) for x, y in zip(found[0], wanted[0])))

    def test_hook_of_gpus(self):
        """What torch calls on a GPU, on tensors of the host."""
        aten = torch.ops.aten
        q, k, v = (torch.randn(2, n, 4, 16).transpose(1, 2) for n in (5, 9, 9))
        o, lse, *rest = _hook._forward_cuda(q, k, v, 0.0, True, scale=0.3)
        other, lse_of_cpu = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=0.3)
        torch.testing.assert_close((o, lse), (other, lse_of_cpu), rtol=1e-4, atol=1e-5)
        self.assertEqual(o.stride(), torch.empty_like(q).stride())
        self.assertEqual((rest[:4], rest[-1].numel()), ([None, None, 5, 9], 0))
        found = _hook._backward_cuda(o, q, k, v, o, lse, *rest[:4], 0.0, True, *rest[4:6], scale=0.3)
        wanted = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            o, q, k, v, o, lse_of_cpu, 0.0, True, scale=0.3
        )
        torch.testing.assert_close(found, tuple(wanted), rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(UnsupportedError, "expected return_debug_mask False but got True"):
            _hook._forward_cuda(q, k, v, 0.0, True, True)
        with self.assertRaisesRegex(ArgumentError, "expected dropout_p 0 but got 0.5; pass 0.0"):
            _hook._forward_cuda(q, k, v, 0.5)

    def test_hook_that_torch_lacks(self):
        with unittest.mock.patch.object(torch.nn, "attention", object()), self.assertRaisesRegex(
            UnsupportedError, "expected a torch with .*register_flash_attention_impl but got 2.*; .*replace_sdpa"
        ):
            ft.register()

    def test_refusals(self):
        q = torch.randn(2, 4, 5, 16)
        for arguments, options, kind, message in (
            ((q, q, q), {"dropout_p": 0.1}, ArgumentError, "expected dropout_p 0 but got 0.1; pass 0.0"),
            ((q, q, q, torch.ones(5, 5).bool()), {"is_causal": True}, ArgumentError,
             "expected attn_mask or is_causal but got both"),
            ((q, q, q, torch.ones(5, 5, dtype=torch.int64)), {}, ArgumentError,
             r"expected attn_mask of a Boolean or .* but got torch.int64; convert it"),
            ((q, q, q, [1]), {}, ArgumentError, "expected attn_mask to be a tensor .* but got list"),
            ((q, q, q, torch.randn(5, 5).double()), {}, UnsupportedError,
             "expected 'bias' with element type f16, bf16 or f32 but got float64"),
            ((q, q, q, torch.randn(3, 5)), {}, ArgumentError,
             "expected query length of 'bias' to be 1 or 5 but got 3"),
            ((q, q[:, :2], q[:, :2]), {}, ArgumentError,
             r"that broadcast but got \[2, 4, 5, 16\], \[2, 2, 5, 16\], .*; enable_gqa=True shares"),
            ((q, q[:, :3], q[:, :3]), {"enable_gqa": True}, ArgumentError,
             "expected the query head count to be a multiple of the key/value head count, 3, but got 4"),
            ((q, q[..., :8], q), {}, ArgumentError, "expected head dimension of 'k' to be 16 .* but got 8"),
            ((q, q[:, :, :3], q), {}, ArgumentError, "expected key length of 'v' to be 3 .* but got 5"),
            ((q, q.half(), q), {}, ArgumentError, "expected 'k' with element type f32 as in 'q', .* but got f16"),
            ((q.double(),) * 3, {}, UnsupportedError, "expected .* with element type .* but got float64"),
            ((q, None, q), {}, ArgumentError, "expected 'key' to be a tensor of torch but got NoneType"),
            ((q[0, 0, 0], q, q), {}, ArgumentError, "expected 'query' of rank 2 at least but got rank 1"),
            ((q, q.to("meta"), q), {}, ArgumentError, "expected 'k' on .* but got"),
            ((q, q, q), {"scale": -1.0}, ArgumentError, "expected a finite positive scale but got -1.0"),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                ft.sdpa(*arguments, **options)


if __name__ == "__main__":
    unittest.main()
