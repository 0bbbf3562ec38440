# The operators of torch: what opcheck asks of them, and calls that torch traces, batches, casts, exports or
# computes again.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import io
import os
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

import torch
from flashattn import (
    ArgumentError,
    FlashAttnError,
    UnsupportedError,
    _module,
    _torch,
    attention,
    attention_backward,
    causal,
    window,
)
from flashattn import torch as ft
from flashattn._options import OPERANDS
from torch._dynamo.testing import CompileCounterWithBackend
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "Inputs"))
import break_out  # noqa: E402

op = torch.ops.flashattn.attention.default
backward = torch.ops.flashattn.attention_backward.default
NOTHING = (None,) * len(OPERANDS)
#: q_len, the starts, offsets and the auxiliary tensors
UNPACKED = (None,) * 12


def inputs(nq=5, nk=7, hq=4, hkv=2, batch=2, grad=False, **options):
    made = [torch.randn(batch, h, n, 8, **options) for h, n in ((hq, nq), (hkv, nk), (hkv, nk))]
    return [x.requires_grad_(grad) for x in made]


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


class Layer(torch.nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v, mask=causal, softcap=9.0) * 2


class OperatorTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        torch._dynamo.reset()

    def test_opcheck(self):
        nothing = NOTHING
        bias, attn_mask = torch.randn(4, 1, 7, requires_grad=True), torch.rand(5, 7) > 0.3
        sinks = torch.randn(4, requires_grad=True)
        lengths = torch.tensor([4, 7], dtype=torch.int32)
        for grad in (False, True):
            torch.library.opcheck(op, (*inputs(grad=grad), *nothing), {"mask": "#flashattn.causal"})
        torch.library.opcheck(op, (*inputs(grad=True), bias, attn_mask, sinks, lengths, *UNPACKED, 1))
        swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs()]
        torch.library.opcheck(op, (*swapped, *nothing))
        q, k, v = inputs()
        for operands, options in (
            (nothing, {"mask": "#flashattn.causal"}),
            ((bias.detach(), attn_mask, sinks.detach(), lengths, *UNPACKED, 1),
             {"needs_bias": True, "needs_sink_logits": True}),
        ):  # fmt: skip
            o, lse = op(q, k, v, *operands)
            torch.library.opcheck(
                backward, (torch.randn_like(o), None, q, k, v, o, lse, *operands), options
            )
        torch.library.opcheck(backward, (o, lse, q, k, v, o, lse, *nothing))

    def test_texts_are_parsed_alone(self):
        """An option of an operator is a text, which a program that was stored brings."""
        inputs_of = {op: inputs(), backward: (lambda q, k, v: (q, None, q, k, v, q, torch.zeros(2, 4, 5)))(*inputs())}
        with tempfile.TemporaryDirectory() as folder:
            marker = os.path.join(folder, "marker")
            code = break_out.codes(marker)["a function of LLVM's dialect"]
            for operator, given in inputs_of.items():
                for options in (
                    {"mask": break_out.put(break_out.MASK, code), "align": "top_left"},
                    {"score_mod": break_out.put(break_out.SCORE_MOD, code), "align": "top_left"},
                    {"align": break_out.put("top_left", code)},
                    {"layout": "bhsd) {} llvm.func @f()"},
                    {"model": "model:sm_80'} llvm.func @f()"},
                    {"mask": "#flashattn.causal\0"},
                    *([{"schedule": "tile_m = 8>) {} llvm.func @f()"}] if operator is op else []),
                ):
                    with self.subTest(operator=operator, options=options):
                        with self.assertRaises(FlashAttnError):
                            operator(*given, *NOTHING, **options)
                        self.assertFalse(os.path.exists(marker))
            q, k, v = inputs(nq=2)
            lengths = torch.full((2,), 7, dtype=torch.int32)
            with self.assertRaises(FlashAttnError):
                torch.ops.flashattn.decode(q, k, v, lengths, None, mask=break_out.put(break_out.MASK, code))
            self.assertFalse(os.path.exists(marker))

    def test_stored_programs_are_no_code(self):
        """One whose mask was changed where it lay is an error of its first call."""
        program = torch.export.export(Layer(), tuple(inputs()))
        with tempfile.TemporaryDirectory() as folder:
            marker, path = os.path.join(folder, "marker"), os.path.join(folder, "program.pt2")
            torch.export.save(program, path)
            problem = break_out.PROBLEM._replace(d=8, dv=8, align="bottom_right", score_mod=None, softcap=9.0)
            text = break_out.put(
                break_out.MASK, break_out.codes(marker)["a function of LLVM's dialect"],
                _module.make_module(problem._replace(lse=True)),
            )  # fmt: skip
            changed, count = os.path.join(folder, "changed.pt2"), 0
            with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
                for name in old.namelist():
                    contents = old.read(name)
                    if name.endswith("model.json"):
                        count += contents.count(break_out.MASK.encode())
                        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                        contents = contents.replace(break_out.MASK.encode(), escaped.encode())
                    new.writestr(name, contents)
            self.assertGreater(count, 0)
            given = inputs()
            close(torch.export.load(path).module()(*given), Layer()(*given))
            with self.assertRaisesRegex(FlashAttnError, "trailing|expected"):
                torch.export.load(changed).module()(*given)
            self.assertFalse(os.path.exists(marker))

    def test_gradcheck(self):
        q, k, v = inputs(3, 4, grad=True)
        sinks = torch.randn(4, requires_grad=True)
        with self.assertWarnsRegex(UserWarning, "double precision"):
            self.assertTrue(torch.autograd.gradcheck(
                lambda *x: attention(*x[:3], sink_logits=x[3], return_lse=True),
                (q, k, v, sinks), eps=1e-2, atol=2e-2, rtol=2e-2, nondet_tol=1e-5,
            ))  # fmt: skip

    def test_strides_are_those_of_any_tensor(self):
        """Without gradients as with them: what has other strides, or lengths of 64 bits, is copied."""
        q, k, v = inputs()
        wide = [x.mT.contiguous().mT for x in (q, k, v)]
        bias = torch.randn(5, 7, 4).permute(2, 0, 1)[None]
        attn_mask = torch.rand(7, 5).mT > 0.3
        sinks, lengths = torch.randn(8)[::2], torch.tensor([4, 9, 7])[::2]
        given = {"bias": bias, "attn_mask": attn_mask, "sink_logits": sinks, "kv_len": lengths}
        dense = {name: x.contiguous() for name, x in given.items()}
        dense["kv_len"] = dense["kv_len"].int()
        wanted = attention(q, k, v, **dense)
        for requires_grad in (False, True):
            for _ in range(2):
                rows = [x.detach().requires_grad_(requires_grad) for x in wide]
                self.assertTrue(torch.equal(attention(*rows, **given), wanted))
        out = torch.empty_like(wanted)
        o, lse = attention(*wide, **given, return_lse=True)
        self.assertIs(attention(*wide, **given, out=out), out)
        self.assertTrue(torch.equal(out, wanted))
        self.assertTrue(torch.equal(attention(q, k, v, kv_len=torch.tensor([1 << 40, 7])), attention(q, k, v)))
        found, exact = (
            attention_backward(*rows, d_o, lse=l, do=d_o, return_d_bias=True, deterministic=True, **options)
            for rows, d_o, l, options in (
                (wide, o.mT.contiguous().mT, lse.mT.contiguous().mT, given), ((q, k, v), o, lse, dense),
            )
        )  # fmt: skip
        self.assertTrue(all(map(torch.equal, found, exact)))

    def test_flops_are_counted(self):
        """As many as of torch's own attention, in both layouts, of gradients too."""
        q, k, v = inputs(grad=True, hkv=4)
        counts = []
        for call in (
            lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v), lambda: attention(q, k, v),
            lambda: attention(*(x.transpose(1, 2) for x in (q, k, v)), layout="bshd", mask=causal),
        ):  # fmt: skip
            with FlopCounterMode(display=False) as counter:
                o = call()
                forward = counter.get_total_flops()
                o.sum().backward()
            counts.append((forward, counter.get_total_flops()))
        self.assertEqual(counts[1:], [(2 * 2 * 4 * 5 * 7 * 16, 7 * 2 * 4 * 5 * 7 * 16)] * 2)
        self.assertEqual(counts[0][0], counts[1][0])

    def test_profilers_see_calls(self):
        """Each call once by its operator's name, with the shapes: called directly or through the operator."""
        q, k, v = inputs()
        g, bias = q.clone().requires_grad_(), torch.zeros(5, 7)
        o, lse = attention(q, k, v, return_lse=True)
        forward, gradients = "flashattn::attention", "flashattn::attention_backward"
        for call, expected in (
            (lambda: attention(q, k, v), [forward]),
            (lambda: attention(q, k, v, bias=bias, out=torch.empty_like(q)), [forward]),
            (lambda: ft.sdpa(q, k, v, enable_gqa=True), [forward]),
            (lambda: op(q, k, v, *NOTHING), [forward]),
            (lambda: torch.vmap(lambda x: attention(x, k, v))(q[None]), [forward]),
            (lambda: attention(g, k, v).sum().backward(), [forward, gradients]),
            (lambda: attention(g, k, v, bias=bias).sum().backward(), [forward, gradients]),
            (lambda: attention_backward(q, k, v, o, lse, o), [gradients]),
            (lambda: ft.decode(q[:, :, :1], k, v, torch.tensor([3, 7])), ["flashattn::decode"]),
        ):  # fmt: skip
            for _ in range(2):  # with a plan to make, and with one at hand
                with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
                    call()
                found = [event for event in seen.events() if event.name.startswith("flashattn::")]
                # A transform's rule calls the operator again.
                found = [event for event in found if not event.cpu_parent or event.cpu_parent.name != event.name]
                self.assertEqual([event.name for event in found], expected)
                self.assertEqual([len(event.input_shapes[0]) for event in found], [4] * len(found))
        # Nothing is recorded, nor left behind, where none runs.
        with unittest.mock.patch.object(_torch, "event", side_effect=AssertionError):
            attention(g, k, v).sum().backward()

    def test_traced_by_jit(self):
        """The operator is recorded, also once a kernel is known."""
        q, k, v = inputs()
        for function in (
            lambda q, k, v: attention(q, k, v, mask=causal) * 2, lambda q, k, v: ft.sdpa(q, v, v, enable_gqa=True),
            lambda q, k, v: ft.decode(q[:, :, :1].detach(), k.detach(), v.detach(), torch.tensor([3, 7])),
        ):  # fmt: skip
            for grad in (True, False):
                traced = torch.jit.trace(function, inputs(grad=grad), check_trace=False)
                self.assertIn("flashattn::", str(traced.graph))
                close(traced(q, k, v), function(q, k, v))
        module = Layer()
        with self.assertRaisesRegex(Exception, "flashattn::attention"):
            torch.onnx.export(module, (q, k, v), io.BytesIO(), dynamo=False)

    def test_compiles_once_for_all_lengths(self):
        def layer(q, k, v):
            q, k, v = (x * 2 for x in (q, k, v))
            return ft.sdpa(q, k, v, is_causal=True, enable_gqa=True) + attention(
                q, k, v, mask=causal
            )

        for grad in (False, True):
            with self.subTest(grad=grad):
                torch._dynamo.reset()
                counter, counts = CompileCounterWithBackend("aot_eager"), []
                compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
                # Sizes that are the same in the first call are one symbol to torch.
                for nq, nk, batch in ((5, 7, 3), (9, 9, 2), (4, 30, 3), (33, 17, 5)):
                    given = inputs(nq, nk, batch=batch, grad=grad)
                    found, wanted = compiled(*given), layer(*given)
                    close(found, wanted)
                    if grad:
                        close(
                            *(torch.autograd.grad(o.square().sum(), given) for o in (found, wanted))
                        )
                    counts.append(counter.frame_count)
                self.assertEqual(counts, counts[:1] * 4)

    def test_every_operand_is_traced(self):
        def layer(q, k, v, bias, sinks, lengths):
            return attention(
                q, k, v, mask=window(left=3, right=0), bias=bias, sink_logits=sinks, kv_len=lengths,
                offset=2, scale=0.3, return_lse=True,
            )  # fmt: skip

        given = (
            *inputs(grad=True), torch.randn(5, 7, requires_grad=True),
            torch.randn(4, requires_grad=True), torch.tensor([4, 7], dtype=torch.int32),
        )  # fmt: skip
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
        results = []
        for one in (compiled, layer):
            o, lse = one(*given)
            results.append((o, lse, *torch.autograd.grad(o.sum() + lse.sum(), given[:5])))
        close(*results)

    def test_export(self):
        lengths = torch.export.Dim("n", min=2, max=4096)
        given = inputs(6, 6)
        program = torch.export.export(Layer(), tuple(given), dynamic_shapes=({2: lengths},) * 3)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        buffer.seek(0)
        again = torch.export.load(buffer).module()
        for n in (6, 31):
            given = inputs(n, n)
            close(again(*given), Layer()(*given))

    def test_meta_and_fake(self):
        q, k, v = (x.to("meta") for x in inputs())
        o, lse = attention(q, k, v, return_lse=True)
        self.assertEqual((o.device.type, o.shape, lse.shape), ("meta", (2, 4, 5, 8), (2, 4, 5)))
        wide = torch.randn(2, 5, 4, 8, device="meta")
        self.assertEqual(
            attention(wide, wide, wide, layout="bshd", return_lse=True)[1].shape, (2, 4, 5)
        )
        self.assertEqual(ft.sdpa(q, k, v, enable_gqa=True).shape, (2, 4, 5, 8))
        with torch._subclasses.FakeTensorMode() as mode:
            q, k, v = (mode.from_tensor(x) for x in inputs(grad=True))
            attention(q, k, v).sum().backward()
            self.assertEqual(k.grad.shape, k.shape)
        with self.assertRaisesRegex(ArgumentError, "expected 'k' of rank 4 but got rank 3"):
            attention(wide, wide[0], wide)
        with self.assertRaisesRegex(
            ArgumentError, "expected 'v' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16"
        ):
            attention(wide, wide, wide.half())
        with self.assertRaisesRegex(ArgumentError, "expected 'k' on meta as 'q' but got cpu"):
            attention(wide, torch.randn(2, 5, 4, 8), wide)
        with self.assertRaisesRegex(
            UnsupportedError, "expected 'q' with element type f16, .* but got float64"
        ):
            attention(*(wide.double(),) * 3)

    def test_autocast(self):
        given = inputs(grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            o = attention(*given, bias=torch.full((5, 7), -1e9))
            self.assertEqual(o.dtype, torch.bfloat16)
            with torch.no_grad():
                self.assertEqual(attention(*given).dtype, torch.bfloat16)
                self.assertEqual(ft.sdpa(*given, enable_gqa=True).dtype, torch.bfloat16)
        plain = [x.detach() for x in given]
        with torch.autocast("cpu", torch.bfloat16):
            found = attention(*plain)
        self.assertEqual(found.dtype, torch.bfloat16)
        torch.testing.assert_close(found, attention(*(x.bfloat16() for x in plain)), rtol=0, atol=0)
        o.float().sum().backward()
        self.assertEqual(given[0].grad.dtype, torch.float32)

    def test_checkpoint(self):
        given = inputs(grad=True)
        results = [
            torch.autograd.grad(o.square().sum(), given)
            for o in (checkpoint(attention, *given, use_reentrant=False), attention(*given))
        ]
        close(*results)

    def test_strides(self):
        q, k, v = inputs(hkv=4, grad=True)
        close(ft.sdpa(q.mT.contiguous().mT, k, v), ft.sdpa(q, k, v))
        one = torch.randn(1, 1, 7, 8)
        with torch.no_grad():
            close(ft.sdpa(q, one.expand(2, 4, 7, 8), v), ft.sdpa(q, one.repeat(2, 4, 1, 1), v))
        narrow = torch.randn(2, 4, 7, 1, requires_grad=True)
        for o in (
            ft.sdpa(q, narrow.expand(2, 4, 7, 8), v),
            ft.sdpa(q, narrow.repeat(1, 1, 1, 8), v),
        ):
            (narrow.grad,) = torch.autograd.grad(o.sum() + 0 * narrow.sum(), narrow)
            self.assertEqual(narrow.grad.shape, narrow.shape)

    def test_vmap(self):
        q, k, v = (torch.stack([x, x * 0.5, -x]) for x in inputs())
        bias = torch.randn(3, 4, 1, 7)
        lengths = torch.randint(1, 7, (3, 2), dtype=torch.int32)
        sinks, attn_mask = torch.randn(3, 4), torch.eye(5, 7).bool()
        for dims, last, call in (
            ((0, 0, 0), (), lambda q, k, v: attention(q, k, v, mask=causal)),
            ((0, None, None), (), attention),
            ((0, 0, 0, 0), (bias,), lambda q, k, v, x: attention(q, k, v, bias=x)),
            ((None, 0, 0, 0), (lengths,), lambda q, k, v, x: attention(q, k, v, kv_len=x)),
            ((0, 0, 0, 0), (sinks,), lambda q, k, v, x: attention(q, k, v, sink_logits=x)),
            ((0, 0, 0), (), lambda q, k, v: ft.sdpa(q, k, v, attn_mask, enable_gqa=True)),
        ):
            given = [x[0] if d is None else x for x, d in zip((q, k, v, *last), dims)]
            wanted = torch.stack(
                [call(*(x if d is None else x[i] for x, d in zip(given, dims))) for i in range(3)]
            )
            close(torch.vmap(call, dims)(*given), wanted)

    def test_vmap_of_gradients(self):
        q, k, v = (torch.stack([x, x * 0.5, -x]) for x in inputs())
        sinks = torch.randn(4)
        call = torch.func.grad(
            lambda q, k, v, s: attention(q, k, v, mask=causal, sink_logits=s).square().sum(),
            (0, 1, 2, 3),
        )
        found = torch.vmap(call, (0, 0, 0, None))(q, k, v, sinks)
        wanted = zip(*(call(q[i], k[i], v[i], sinks) for i in range(3)))
        for mine, other in zip(found, wanted):
            close(mine, torch.stack(other))


if __name__ == "__main__":
    unittest.main()
