# What torch's users may do wrong: each case is refused, with what was expected and what was found, and neither
# computed in silence nor by another's error.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import unittest
import warnings

import torch
import torch.autograd.forward_ad as forward_ad
from flashattn import ArgumentError, TraceError, UnsupportedError, attention, attention_backward
from flashattn import torch as ft
from flashattn._options import OPERANDS
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask
from torch.nn.functional import scaled_dot_product_attention

op = torch.ops.flashattn.attention.default
append_op = torch.ops.flashattn.decode.append
backward_op = torch.ops.flashattn.attention_backward.default
NOTHING = (None,) * len(OPERANDS)

torch.manual_seed(3)
q, k, wide = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 7, 16), torch.randn(2, 4, 5, 16)
#: The same with a graph: other checks would come first.
g = q.clone().requires_grad_()
lse = torch.zeros(2, 4, 5)
number = torch.tensor(0.5, requires_grad=True)
kinds = {"no graph": q, "graph": g}


def meta(*shape):
    return torch.empty(shape, device="meta")


def dual(x):
    return forward_ad.make_dual(x, torch.ones_like(x))


def tangent(call):
    def run():
        with forward_ad.dual_level():
            call()
    return run


def nested(layout=torch.jagged):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own: nested tensors are a prototype
        return torch.nested.nested_tensor([torch.randn(4, n, 16) for n in (5, 3)], layout=layout)


def second(x):
    return torch.func.grad(lambda y: torch.func.grad(lambda z: attention(z, k, k).sum())(y).sum())(x)


def replaced(*tensors, **options):
    with ft.replace_sdpa():
        return scaled_dot_product_attention(*tensors, **options)


def autocast(*tensors, **options):
    with torch.autocast("cpu", torch.float16):
        return attention(*tensors, **options)


def whole(function):
    """A call of it compiled in one graph."""
    return lambda: torch.compile(function, backend="eager", fullgraph=True)(q)


def decode(new=(), **changes):
    """Decodes two queries with caches for eight keys, and with the changed arguments."""
    given = {"q": q[:, :, :2], "k_cache": torch.zeros(2, 2, 8, 16), "v_cache": torch.zeros(2, 2, 8, 16),
             "kv_len": torch.tensor([2, 8]), **dict(zip("kv", new)), **changes}  # fmt: skip
    return lambda: ft.decode(**given)


def flex(score_mod=None, **options):
    return lambda *_: ft.flex_attention(q, wide, wide, score_mod, **options)


A, U, T = ArgumentError, UnsupportedError, TraceError
#: Error, message, call. Those of attention itself run with and without a graph, and take q first.
OF_ATTENTION = (
    (A, "expected 'k' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16",
     lambda x: attention(x, k.half(), k)),
    (A, "expected 'k' on cpu as 'q' but got meta", lambda x: attention(x, k.to("meta"), k)),
    (A, "expected 'bias' on cpu as 'q' but got meta", lambda x: attention(x, k, k, bias=meta(5, 7))),
    (A, "expected 'kv_len' on cpu as 'q' but got meta",
     lambda x: attention(x, k, k, kv_len=meta(2).to(torch.int32))),
    (A, "expected 'k' to be a tensor with strides but got layout torch.sparse_coo; convert it",
     lambda x: attention(x, k.to_sparse(), k)),
    (A, "expected 'k' to be a tensor with strides but got a nested one; pass .to_padded_tensor\\(0\\), .* kv_len=",
     lambda x: attention(x, nested(), k)),
    (A, "expected 'bias' to be a tensor with strides but got a nested one",
     lambda x: attention(x, k, k, bias=nested(torch.strided))),
    (A, "expected 'attn_mask' with element type bool but got f32; bias= takes numbers",
     lambda x: attention(x, k, k, attn_mask=torch.rand(5, 7, requires_grad=True))),
    (U, "expected 'bias' with element type f16, bf16 or f32 but got float64; convert it",
     lambda x: attention(x, k, k, bias=torch.rand(5, 7).double().requires_grad_())),
    (A, "expected 'sink_logits' with element type f32 but got f16",
     lambda x: attention(x, k, k, sink_logits=torch.rand(4).half())),
    (A, "expected head count of 'sink_logits' to be 4 as in 'q' but got 2",
     lambda x: attention(x, k, k, sink_logits=torch.rand(2))),
    (A, "expected 'kv_len' with element type i32 but got f32",
     lambda x: attention(x, k, k, kv_len=torch.tensor([3.0, 4.0], requires_grad=True))),
    (A, "expected batch size of 'kv_len' to be 2 as in 'q' but got 1",
     lambda x: attention(x, k, k, kv_len=torch.tensor([3], dtype=torch.int32))),
    (A, "expected mask to be a flashattn mask or None but got Tensor; attn_mask= takes a Boolean array",
     lambda x: attention(x, k, k, mask=torch.ones(5, 7).bool())),
    (A, "expected a finite positive scale but got nan", lambda x: attention(x, k, k, scale=float("nan"))),
    (A, "expected device to be None or 'model:sm_XX' but got 'cuda'", lambda x: attention(x, k, k, device="cuda")),
    (A, "expected a CUDA stream or its address but got str", lambda x: attention(x, k, k, stream="x")),
    (A, "expected schedule fields tile_m, .* but got nonsense", lambda x: attention(x, k, k, schedule="nonsense")),
    (A, "expected dtype bf16 or None but got torch.float64", lambda x: attention(x, k, k, dtype=torch.float64)),
    (TypeError, "unexpected keyword argument 'dropout_p'", lambda x: attention(x, k, k, dropout_p=0.1)),
    (TraceError, "but got a traced value as condition",
     lambda x: attention(x, k, k, score_mod=lambda s, b, h, p, k: s if s > 0 else 0)),
    (U, "expected attention to be differentiated once but got a second derivative", second),
    (U, "expected gradients in reverse mode but got forward mode; use torch.func.grad or vjp",
     lambda x: torch.func.jvp(lambda y: attention(y, k, k), (x,), (x,))),
    (A, "expected 'q' of rank 4 but got rank 3", lambda x: torch.vmap(lambda y: attention(y, y, y))(x)),
    (U, "expected no out in a call that torch records, traces, batches or casts but got one",
     lambda x: torch.vmap(lambda y: attention(y, y, y, out=y))(x[None])),
    (U, "expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got float64", lambda x: autocast(*(x.double(),) * 3)),
    (U, "expected no out .* casts but got one", lambda x: autocast(x, k, k, out=torch.empty_like(q))),
)  # fmt: skip
OTHERS = (
    *((U, f"expected tensors without gradients but got '{name}' with requires_grad", call) for name, call in (
        ("scale", lambda: attention(q, k, k, scale=number)), ("scale", lambda: attention(g, k, k, scale=number)),
        ("scale", lambda: ft.sdpa(q, q, q, scale=number)), ("scale", decode(scale=number)),
        ("softcap", lambda: attention(g, k, k, softcap=number)), ("softcap", decode(softcap=number)),
        ("scale", lambda: torch.compile(attention, backend="eager")(g, k, k, scale=number)),
    )),
    *((U, "expected gradients in reverse mode but got forward mode; use torch.func.grad or vjp", call)
      for call in (
        tangent(lambda: attention(dual(q), k, k)), tangent(lambda: attention(q, k, k, bias=dual(torch.zeros(5, 1)))),
        tangent(lambda: ft.sdpa(wide, dual(q), wide)), tangent(lambda: op(q, dual(k), k, *NOTHING)),
        tangent(lambda: attention(q, k, k, scale=dual(torch.tensor(0.5)))),
        tangent(lambda: flex(lambda s, b, h, q, k: s + dual(wide)[b, h, q, k])()),
        tangent(lambda: decode(q=dual(q[:, :, :2]))()), tangent(lambda: attention(dual(g), k, k)),
        tangent(lambda: torch.autograd.grad(attention(g, k, k), g, dual(q))),
        tangent(lambda: attention_backward(q, wide, wide, wide, lse, dual(wide))),
    )),
    (U, "expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got int64; convert it, .* .to\\(torch.float32\\)",
     lambda: attention(*(wide.long(),) * 3)),
    (U, "but got f8E4M3FNUZ|but got float8_e4m3fnuz", lambda: attention(*(wide.to(torch.float8_e4m3fnuz),) * 3)),
    (U, "but got complex64", lambda: attention(*(wide.to(torch.complex64),) * 3)),
    (A, "expected 'q' to be a tensor with strides but got layout torch._mkldnn",
     lambda: attention(q.to_mkldnn(), k, k)),
    (A, "expected 'k' on meta as 'q' but got cpu", lambda: attention(q.to("meta"), k, k)),
    (A, "expected 'sink_logits' on meta as 'q' but got cpu",
     lambda: attention(*(meta(2, 4, 5, 16),) * 3, sink_logits=torch.rand(4))),
    (U, "expected no out in a call that torch records, .* make the call under torch.no_grad",
     lambda: attention(g, k, k, out=torch.empty_like(q))),
    (U, "expected tensors without gradients but got 'q' with requires_grad; make the call under torch.no_grad",
     lambda: attention_backward(g, wide, wide, wide, lse, wide)),
    (A, "expected query length of 'lse' to be 5 as in 'q' but got 4",
     lambda: attention_backward(q, wide, wide, wide, torch.zeros(2, 4, 4), wide)),
    (A, "expected 'd_o' with element type f32 as in 'q' but got f16",
     lambda: backward_op(q.half(), None, q, wide, wide, q, lse, *NOTHING)),
    (A, "expected the text of a mask but got '#flashattn.nonsense': unknown attribute `nonsense` in dialect",
     lambda: op(q, k, k, *NOTHING, mask="#flashattn.nonsense")),
    (A, "expected layout bhsd, bshd or thd but got 'sbhd'", lambda: op(q, k, k, *NOTHING, layout="sbhd")),
    (RuntimeError, "expected 'k' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16",
     lambda: torch.compile(lambda x: attention(x, x.half(), x), backend="eager", fullgraph=True)(q)),
    (A, "expected dropout_p 0 but got 0.1; pass 0.0, because dropout is not supported",
     lambda: ft.sdpa(q, q, q, dropout_p=0.1)),
    (A, "expected dropout_p 0 but got 0.3; pass 0.0", lambda: replaced(q, q, q, dropout_p=0.3)),
    (A, "expected attn_mask or is_causal but got both",
     lambda: replaced(q, q, q, torch.ones(5, 5, requires_grad=True), is_causal=True)),
    (A, "expected 'bias' on cpu as 'q' but got meta", lambda: ft.sdpa(q, q, q, meta(5, 5).requires_grad_())),
    *((A, f"expected '{name}' to be a tensor with strides but got a nested one", call)
      for layout in (torch.jagged, torch.strided) for name, call in (
        ("q", lambda x=nested(layout): attention(x, x, x)), ("query", lambda x=nested(layout): ft.sdpa(x, x, x)),
        ("key", lambda x=nested(layout): replaced(wide, x, x)), ("v_cache", decode(v_cache=nested(layout))),
        ("value", lambda x=nested(layout): ft.flex_attention(q, q, x)),
        ("lse", lambda x=nested(layout): attention_backward(q, wide, wide, wide, x, wide)),
    )),
    *((RuntimeError, "expected fullgraph=False for a score_mod or a block_mask, which flashattn reads itself", call)
      for call in (
        whole(lambda x: attention(x, k, k, score_mod=lambda s, b, h, p, k: s * 2)),
        whole(flex(lambda s, b, h, q, k: s + wide[0, h, q, k])),
        whole(lambda x: ft.flex_attention(x, x, x, block_mask=mask_beyond())),
    )),
    (A, "expected kernel_options to be a dict or None but got int", flex(kernel_options=3)),
    (A, "expected return_aux to be torch's AuxRequest or None but got bool", flex(return_aux=True)),
    (A, "expected return_lse or return_aux but got both", flex(return_lse=True, return_aux=AuxRequest())),
    (U, "expected max_scores False in return_aux but got True", flex(return_aux=AuxRequest(lse=True, max_scores=True))),
    (U, "expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got float64",
     lambda: ft.flex_attention(*(wide.double(),) * 3)),
    (A, "expected a captured tensor on cpu as 'query' but got meta", flex(lambda s, b, h, q, k: s + meta(4)[h])),
    (A, r"expected indices from -2 to 1 of a captured tensor of shape \[2\] but got 2",
     flex(lambda s, b, h, q, k: s + torch.zeros(2)[h])),
    (A, "expected a captured tensor on cpu as 'query' but got meta", flex(lambda s, b, h, q, k: s * meta(5)[k])),
    (A, r"expected indices from -2 to 1 of a captured tensor of shape \[2\] but got 2",
     flex(lambda s, b, h, q, k: s / torch.ones(2)[h])),
    (A, r"expected indices into a captured tensor of shape \[4, 2\] but got index 2 is out of bounds",
     flex(lambda s, b, h, q, k: s + torch.ones(4, 2)[h, 2])),
    (T, "expected a factor of the score that depends on the query or on the key but got one that depends on both",
     flex(lambda s, b, h, q, k: s * torch.ones(5, 5)[q, k])),
    (A, r"expected indices from -3 to 2 of a captured tensor of shape \[3\] but got 3",
     lambda: flex(block_mask=mask_beyond())()),
    (A, "expected a finite positive scale but got -1.0", flex(scale=-1)),
    (A, "expected 'k' and 'v' or neither but got 'k' alone", decode([k[:, :, :2]])),
    (A, "expected 'k' and 'v' or neither but got 'v' alone", decode(v=k[:, :, :2])),
    (A, "expected 'kv_len' to be a tensor of torch but got list", decode(kv_len=[2, 8])),
    (A, "expected 'sink_logits' to be a tensor of torch but got float", decode(sink_logits=0.5)),
    (A, "expected mask to be a flashattn mask or None but got str", decode(mask="causal")),
    (A, "expected layout bhsd or bshd but got 'sbhd'", decode(layout="sbhd")),
    (A, "expected layout bhsd or bshd but got 'sbhd'",
     lambda: append_op(q, k, k, torch.tensor([5, 5]), None, q[:, :2], q[:, :2], layout="sbhd")),
    (A, "expected a finite positive scale but got -1.0", decode(scale=-1)),
    (A, "expected a finite positive softcap but got -1.0", decode(softcap=-1)),
    (A, "expected 'k_cache' of rank 4 but got rank 3", decode(k_cache=k[0])),
    (A, "expected 'v_cache' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16",
     decode(v_cache=k.half())),
    (A, "expected 'k' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got bf16",
     decode([k[:, :, :2].bfloat16()] * 2)),
    (U, "expected 'q' with element type f16, bf16 or f32 but got float64",
     decode(q=q.double(), k_cache=k.double(), v_cache=k.double())),
    (A, "expected 'k_cache' on cpu as 'q' but got meta", decode(k_cache=meta(2, 2, 8, 16))),
    (A, "expected 'kv_len' on cpu as 'q' but got meta", decode(kv_len=meta(2).int())),
    (A, "expected 'sink_logits' on cpu as 'q' but got meta", decode(sink_logits=meta(4))),
    (A, "expected head count of 'sink_logits' to be 4 as in 'q' but got 2", decode(sink_logits=torch.zeros(2))),
    (A, "expected 'kv_len' with element type int32 or int64 but got float32", decode(kv_len=torch.ones(2))),
    (A, r"expected 'kv_len' of shape \[2\] but got \[1\]", decode(kv_len=torch.tensor([2]))),
    (A, "expected 'kv_len' from 0 to 8, the capacity of the caches, but got -1 to 8",
     decode(kv_len=torch.tensor([-1, 8]))),
    (A, "expected 'kv_len' from 0 to 8, the capacity of the caches, but got 2 to 9",
     decode(kv_len=torch.tensor([2, 9]))),
    (A, "expected 'kv_len' from 2 to 8, the capacity of the caches, but got 1 to 8",
     decode([k[:, :, :2]] * 2, kv_len=torch.tensor([1, 8]))),
    (A, r"expected 'k_cache' of shape \[2, 2, 7, 16\] but got \[1, 2, 7, 16\]", decode(k_cache=k[:1])),
    (A, r"expected 'v_cache' of shape \[2, 2, 8, 16\] but got \[2, 2, 7, 16\]", decode(v_cache=k)),
    (A, r"expected 'k' of shape \[2, 2, 2, 16\] but got \[2, 2, 7, 16\]", decode([k, k[:, :, :2]])),
    (A, r"expected 'v' of shape \[2, 2, 2, 16\] but got \[2, 1, 2, 16\]", decode([k[:, :, :2], k[:, :1, :2]])),
    (A, "expected heads of 'q' to be a multiple of 2, the heads of 'k_cache', but got 3", decode(q=q[:, :3, :2])),
    (A, r"expected a writable 'v_cache' but got an expanded tensor with strides \[0, 128, 16, 1\]",
     decode([k[:, :, :2]] * 2, v_cache=torch.zeros(1, 2, 8, 16).expand(2, 2, 8, 16))),
    (U, "expected tensors without gradients but got 'q' with requires_grad; make the call under torch.no_grad",
     decode(q=g[:, :, :2])),
    (U, "expected tensors without gradients but got 'v' with requires_grad",
     decode([k[:, :, :2], k[:, :, :2].clone().requires_grad_()])),
    (U, "expected tensors without gradients but got 'k' with requires_grad",
     lambda: append_op(q[:, :, :2], k, k, torch.tensor([5, 5]), None, g[:, :2, :2], k[:, :, :2])),
    (U, "expected decoding outside of vmap but got batched tensors; their first dimension is the batch",
     lambda: torch.vmap(lambda x: decode(q=x[:, :, :2])())(q[None])),
)  # fmt: skip


def mask_beyond():
    """A block mask whose function reads beyond what it captures, once it is asked again."""
    table = [torch.ones(5).bool()]
    block_mask = create_block_mask(lambda b, h, q, k: table[0][k], None, None, 5, 5, device="cpu")
    table[0] = torch.ones(3).bool()
    return block_mask


class ErrorsTest(unittest.TestCase):
    def test_attention(self):
        for kind, x in kinds.items():
            for error, message, call in OF_ATTENTION:
                with self.subTest(message, q=kind), self.assertRaisesRegex(error, message):
                    call(x)

    def test_others(self):
        for error, message, call in OTHERS:
            with self.subTest(message), self.assertRaisesRegex(error, message):
                call()

    def test_there_are_many(self):
        self.assertGreaterEqual(len(OF_ATTENTION) + len(OTHERS), 40)

    def test_overflow_under_autocast_is_not_hidden(self):
        """What f16 cannot hold is infinite, and what comes of it NaN, as by the definition."""
        big = torch.tensor([1.0, 3e4, 1e6]).repeat(2, 4, 2)[..., :5, None] * wide
        found = autocast(big, wide, wide)
        half, keys = big.half().float(), wide.half().float()
        wanted = (half @ keys.mT / 4).softmax(-1) @ keys
        self.assertTrue(wanted.isnan().any() and not wanted.isnan().all())
        self.assertTrue(torch.equal(found.isnan(), wanted.isnan()))
        seen = ~wanted.isnan()
        torch.testing.assert_close(found.float()[seen], wanted[seen], rtol=2e-3, atol=2e-3)


if __name__ == "__main__":
    unittest.main()
