# What is refused of keys and values of 8 bits and their scales, with the message and the kind of exception, and what
# `quantize` makes.
# REQUIRES: python-package, torch, jax
# RUN: %flashattn_python %s

import sys
import tempfile
import unittest
from unittest import mock

import ml_dtypes
import numpy
import torch
import torch.distributed as dist
from errors_test import array
from flashattn import ArgumentError, FlashAttnError, UnsupportedError, attention, attention_backward, compile, quantize
from flashattn import flash_attn_interface as fa3
from flashattn.torch import append, context_parallel, decode

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
Q, K, K8 = array(2, 4, 5, 32), array(2, 4, 7, 32), array(2, 4, 7, 32).astype(E4M3)
STARTS = numpy.array([0, 3, 7], numpy.int32)
A, U = ArgumentError, UnsupportedError


def scaled(k=K8, **options):
    return lambda: attention(Q, k, k, **options)


def ones(*shape, dtype=numpy.float32):
    return numpy.ones(shape, dtype)


def launched(**options):
    kernel = compile(head_dim=32, chip="cpu", dtype="f32", k_dtype="int8", k_scale=(None, None, 1, 2))
    return lambda: kernel.launch(Q, options.pop("k", K8.astype(numpy.int8)), K, array(2, 4, 5, 32), **options)


def paged(**options):
    table = numpy.array([[0, 1], [2, 1]], numpy.int32)
    return lambda: attention(Q, K8[[0, 1, 0]], K8[[0, 1, 0]], page_table=table, kv_len=[7, 9], **options)


CASES = [
    (scaled(k_scale=ones(2, 4, 7)), A, "expected 'k_scale' of rank 0, 2 or 4 but got rank 3"),
    (scaled(k_scale=ones(1, 2, 4, 7, 1)), A, "expected 'k_scale' of rank 0, 2 or 4 but got rank 5"),
    (scaled(k_scale=ones(3, 4)), A, "expected batch size of 'k_scale' to be 1 or 2 but got 3"),
    (scaled(v_scale=ones(2, 3)), A, "expected head count of 'v_scale' to be 1 or 4 but got 3"),
    (scaled(v_scale=ones(2, 4, 6, 1)), A, "expected key length of 'v_scale' to be 1 or 7 but got 6"),
    (scaled(k_scale=ones(2, 7, 4, 1)), A, "expected head count of 'k_scale' to be 1 or 4 but got 7"),
    (scaled(k_scale=ones(2, 4, 7, 4)), A,
     "expected 'k_scale' with one scale of a row of 32, or scales of blocks of a multiple of 16 elements, but got 4"),
    (scaled(k_scale=ones(1, 1, 1, 0)), A, "or scales of blocks of a multiple of 16 elements, but got 0 scales"),
    (scaled(k_scale=ones(2, 4, 7, 4)[..., ::2]), A,
     "expected unit stride in the last dimension of 'k_scale' but got 2; copy it"),
    (scaled(k_scale=ones(2, 4, 7, 1)[:, ::-1]), A, "expected strides of at least 0 of 'k_scale' but got"),
    (scaled(k_scale="1"), A, "expected 'k_scale' to be a number or a tensor but got str"),
    (scaled(k_scale=True), A, "expected 'k_scale' to be a number or a tensor but got bool"),
    (scaled(k_scale=[[1.0], [1.0, 2.0]]), A, "expected 'k_scale' to be an array but got lists of different lengths"),
    (scaled(v_scale=ones(2, 4, dtype=bool)), A, "expected 'v_scale' with element type f32 but got i1"),
    (scaled(K, k_scale=0.5), A, "expected no 'k_scale' with 'k' of f32 but got one"),
    (scaled(K, v_scale=0.5), A, "expected no 'v_scale' with 'v' of f32 but got one"),
    (scaled(K8.view(numpy.uint8)), U,
     "f32, f8E4M3FN, f8E5M2 or i8 but got uint8; view it, as with .view(torch.float8_e4m3fn), if it holds the bits"),
    (scaled(K8.astype(numpy.float16)), A, "as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16"),
    (scaled(K8.astype(ml_dtypes.float8_e4m3b11fnuz)), U, "f8E5M2 or i8 but got float8_e4m3b11fnuz; convert it"),
    (paged(k_scale=ones(2, 4, 7, 1)), A, "expected number of pages of 'k_scale' to be 3 but got 2"),
    (paged(k_scale=ones(3, 4, 1, 1)), A, "expected batch size of 'k_scale' to be 1 or 2 but got 3"),
    (paged(k_scale=ones(3, 4, 8, 1)), A, "expected page size of 'k_scale' to be 1 or 7 but got 8"),
    (lambda: attention(K[:1], K8[:1], K8[:1], cu_seqlens_q=STARTS, cu_seqlens_k=STARTS, k_scale=ones(2, 4, 7, 1)), A,
     "expected batch size of 'k_scale' to be 1, as its sequences are packed, but got 2"),
    (lambda: attention_backward(Q, K, K, Q, ones(2, 4, 5), Q, k_scale=1.0), A,
     "expected no 'k_scale' with 'k' of f32 but got one"),
    (lambda: attention_backward(Q, K8, K8, Q, ones(2, 4, 5), Q, v_scale=ones(2, 3)), A,
     "expected 'v_scale' of shape [1 or 2, 1 or 4, 1, …] but got [2, 3, 1, 1]"),
    (lambda: attention_backward(Q, K8, K8, Q, ones(2, 4, 5), Q, v_scale=ones(2, 4, 7, 3)), A,
     "expected 'v_scale' with one scale of a row of 32, or scales of blocks of a multiple of 16 elements, but got 3"),
    (lambda: attention_backward(Q, K8, K8, Q, ones(2, 4, 5), Q, k_scale=ones(2, 4).astype("f2")), A,
     "expected 'k_scale' with element type f32 but got f16"),
    (lambda: attention_backward(K8, K8, K8, Q, ones(2, 4, 7), Q.astype("f8")), U,
     "expected 'q' with element type f16, bf16 or f32 but got float64"),
    (lambda: attention(Q, K8, K8, k_descale=ones(2, 4)), TypeError, "'k_descale'; expected k_scale="),
    (launched(k_scale=ones(2, 4)), A,
     "expected 'k_scale' of shape (None, None, 1, 2), as compiled, but got (None, None, 1, 1)"),
    (launched(), A, "expected k_scale, with which the kernel was compiled, but got None"),
    (launched(k=K8, k_scale=ones(2, 4, 1, 2)), A, "expected 'k' with element type i8, as compiled, but got f8E4M3FN"),
    (lambda: compile(head_dim=32, k_dtype="f64"), U,
     "expected k_dtype float8_e4m3fn, float8_e5m2, int8 or None but got f64"),
    (lambda: compile(head_dim=32, k_scale=(1, 1, 1, 1)), A, "expected no 'k_scale' with 'k' of f16 but got one"),
    (lambda: compile(head_dim=32, v_dtype=E5M2, v_scale=(1, 2, 1, 1)), A,
     "expected a shape of 3 sizes, each 1 or None, and the number of scales of a row for v_scale but got (1, 2, 1, 1)"),
    (lambda: compile(head_dim=32, v_dtype=E5M2, v_scale=(1, 1, 1, 4)), A,
     "expected 'v_scale' with one scale of a row of 32, or scales of blocks of a multiple of 16 elements, but got 4"),
    (lambda: quantize(Q, "float16"), A, "expected dtype float8_e4m3fn, float8_e5m2, int8 but got f16"),
    (lambda: quantize(Q, per="batch"), A, "expected per tensor, head or row but got 'batch'"),
    (lambda: quantize(Q, columns=8), A, "expected columns that are a multiple of 16 and a divisor of 32 but got 8"),
    (lambda: quantize(Q, columns=48), A, "expected columns that are a multiple of 16 and a divisor of 32 but got 48"),
    (lambda: quantize(Q, layout="thd"), A, "expected 'x' of rank 3 but got rank 4"),
    (lambda: quantize([1.0]), A, "expected 'x' to be an array of numpy, torch or jax but got list"),
    (lambda: quantize(K8), U, "expected 'x' with element type f16, bf16 or f32 but got f8E4M3FN"),
]

q, k = torch.zeros(2, 4, 3, 32), torch.zeros(2, 4, 9, 32)
k8, lengths = k.to(torch.float8_e4m3fn), torch.tensor([3, 4])


def appended(cache=None, new=None, **options):
    cache, new = k8.clone() if cache is None else cache, q if new is None else new
    return lambda: append(cache, cache, new, new, options.pop("kv_len", lengths), **options)


TORCH_CASES = [
    (lambda: attention(q, k8, k8, k_scale=torch.ones(2, 4).double()), A,
     "expected 'k_scale' with element type f32 but got float64"),
    (lambda: decode(q, k, k, lengths, k_scale=1.0), A, "expected no 'k_scale' with 'k' of f32 but got one"),
    (lambda: decode(q, k8, k8.half(), lengths), A,
     "expected 'v_cache' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16"),
    (lambda: decode(q, k8, k8, lengths, q.half(), q.half()), A,
     "expected 'k' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16"),
    (appended(k, k_scale=1.0), A, "expected no 'k_scale' with 'k_cache' of f32 but got one"),
    (appended(new=k8[:, :, :3], v_scale=1.0), A,
     "expected no 'v_scale' with 'v' of f8E4M3FN, which is copied, but got one"),
    (appended(k8.to(torch.int8), new=k8[:, :, :3]), A,
     "expected 'k_cache' of type torch.float8_e4m3fn as 'k' but got torch.int8"),
    (appended(k_scale=torch.ones(2, 4, 8, 1)), A,
     "expected 'k_scale' of shape [2, 1 or 4, 9, 1] but got [2, 4, 8, 1]"),
    (appended(k_scale=torch.ones(3, 4)), A, "expected 'k_scale' of shape [1 or 2, 1 or 4, 1, 1] but got [3, 4, 1, 1]"),
    (appended(k_scale=torch.ones(2, 4, 9, 3)), A, "of blocks of a multiple of 16 elements, but got 3 scales"),
    (appended(k_scale=torch.ones(2, 4).half()), A, "expected 'k_scale' with element type f32 but got f16"),
    (appended(k_scale=numpy.ones((2, 4))), A, "expected 'k_scale' to be a number or a tensor of torch but got ndarray"),
    (appended(k_scale=torch.ones(1, 1, 1, 1).expand(2, 4, 9, 1)), A,
     "expected a writable 'k_scale' but got an expanded tensor with strides"),
    (appended(kv_len=None, k_scale=torch.ones(2, 4), slot_mapping=torch.zeros(2, 3).int()), A,
     "expected 'k_scale' of shape [1, 1 or 4, 1, 1] but got [2, 4, 1, 1]"),
    (lambda: fa3.flash_attn_func(q, q, q, k_descale=torch.ones(2, 4)), A,
     "expected no k_descale with 'k' of torch.float32 but got one; only elements of 8 bits have scales"),
    (lambda: fa3.flash_attn_func(q, k8[:, :, :3], q, k_descale=torch.ones(2)), A,
     "expected k_descale of rank 2 but got rank 1"),
    (lambda: fa3.flash_attn_func(q, k8, k8, q_descale=torch.ones(2, 4)), A,
     "expected no q_descale with 'q' of torch.float32 but got one; only elements of 8 bits have scales"),
    (lambda: fa3.flash_attn_with_kvcache(q, k8, k8, cache_seqlens=3, q_descale=torch.ones(2, 4)), A,
     "expected no q_descale with 'q' of torch.float32 but got one; only elements of 8 bits have scales"),
    (lambda: fa3.flash_attn_with_kvcache(k8, q, q, cache_seqlens=3), A,
     "expected 'k_cache' with element type f8E4M3FN, f8E5M2 or i8 but got f32"),
    (lambda: decode(k8.view(torch.int8)[:, :, :1], k8, k8, torch.tensor([3, 4]).int()), U,
     "expected 'q' with element type f16, bf16 or f32 but got i8"),
    (lambda: attention(k8, k8, q), A, "expected 'v' with element type f8E4M3FN as in 'q', f8E4M3FN, f8E5M2 or i8 but"),
    (lambda: attention(k8.view(torch.int8), k8, k8), U, "but got i8; only k and v may be int8"),
    (lambda: attention(k8.clone().requires_grad_(), k8, k8).sum().backward(), U,
     "expected no gradient of 'q' of f8E4M3FN but got it"),
    (lambda: attention(k8, k8, k8, out=torch.empty_like(k8)), A,
     "expected 'o' with element type bf16 or f16 or f32 but got f8E4M3FN"),
    (lambda: attention(k8, k8, k8, device="model:sm_80"), U, "expected q of f16, bf16 or f32 on sm_80 but got f8"),
    (lambda: compile(head_dim=64, dtype="int8"), U, "expected dtype f16, bf16, f32, f8E4M3FN or f8E5M2 but got i8"),
    (lambda: compile(head_dim=64, dtype="float8_e4m3fn", k_dtype="f16"), U,
     "expected k_dtype float8_e4m3fn, float8_e5m2, int8 or None but got f16"),
    (lambda: compile(head_dim=64, dtype="float8_e4m3fn", out_dtype="float8_e4m3fn"), U,
     "expected out_dtype f16, bf16, f32 or None but got f8E4M3FN"),
    (lambda: compile(head_dim=64, out_dtype="bf16"), U, "expected out_dtype f16, f32 or None but got bf16"),
    (lambda: compile(head_dim=64, dtype="f32", out_dtype="f16"), U, "expected out_dtype f32 or None but got f16"),
]  # fmt: skip


class MessagesTest(unittest.TestCase):
    def test_messages(self):
        for number, (call, kind, message) in enumerate(CASES + TORCH_CASES):
            with self.subTest(number=number, message=message):
                with self.assertRaises((FlashAttnError, TypeError)) as caught:
                    call()
                self.assertIsInstance(caught.exception, kind)
                self.assertIn(message, str(caught.exception))

    def test_traced_messages(self):
        traced = torch.compile(lambda q, k: attention(q, k, k, k_scale=2.0), backend="eager", fullgraph=True)
        with self.assertRaisesRegex(RuntimeError, "expected no 'k_scale' with 'k' of f32 but got one"):
            traced(q, k)

    def test_context_parallel(self):
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
            with self.assertRaisesRegex(A, "expected 'k' with element type f32 as in 'q' but got f8E4M3FN"):
                context_parallel(q, k8, k, mesh=dist.group.WORLD)
            dist.destroy_process_group()


class QuantizeTest(unittest.TestCase):
    def setUp(self):
        self.x = (3 * numpy.random.default_rng(1).standard_normal((2, 3, 5, 64))).astype(numpy.float32)

    def test_scales_and_values(self):
        for dtype, most, steps in (("float8_e4m3fn", 448, 2**-4), (E5M2, 57344, 2**-3), ("int8", 127, None)):
            for per, shape in (("tensor", (1, 1, 1)), ("head", (2, 3, 1)), ("row", (2, 3, 5))):
                for columns in (None, 16, 32):
                    with self.subTest(dtype=dtype, per=per, columns=columns):
                        blocks = 64 // (columns or 64)
                        found, scale = quantize(self.x, dtype, per=per, columns=columns)
                        self.assertEqual(scale.shape, (*shape, blocks))
                        axes = {"tensor": (0, 1, 2, 4), "head": (2, 4), "row": (4,)}[per]
                        split = self.x.reshape(2, 3, 5, blocks, -1)
                        greatest = numpy.abs(split).max(axes, keepdims=True)
                        numpy.testing.assert_allclose(scale[..., None], greatest / most, rtol=1e-6)
                        values = found.astype(numpy.float32).reshape(split.shape) * scale[..., None]
                        bound = 0.5 * scale[..., None] if steps is None else steps * numpy.abs(split) + 1e-6
                        self.assertTrue((numpy.abs(values - split) <= 1.001 * bound).all())

    def test_libraries_agree(self):
        for dtype in ("float8_e4m3fn", "float8_e5m2", "int8"):
            for x in (self.x, self.x.astype(numpy.float16), self.x.astype(ml_dtypes.bfloat16)):
                found, scale = quantize(x, dtype, per="row", columns=32)
                bits = x.view(numpy.uint16) if x.dtype.itemsize == 2 else x
                tensor = torch.from_numpy(bits).view(getattr(torch, x.dtype.name))
                other, scales = quantize(tensor, getattr(torch, dtype), per="row", columns=32)
                numpy.testing.assert_array_equal(found.view(numpy.uint8), other.view(torch.uint8).numpy())
                numpy.testing.assert_array_equal(scale, scales.numpy())

    def test_layouts(self):
        found, scale = quantize(self.x, per="head", columns=16)
        other, others = quantize(self.x.swapaxes(1, 2), per="head", columns=16, layout="bshd")
        numpy.testing.assert_array_equal(scale.swapaxes(1, 2), others)
        numpy.testing.assert_array_equal(found.swapaxes(1, 2).view(numpy.uint8), other.view(numpy.uint8))
        _, packed = quantize(self.x[0].swapaxes(0, 1), per="row", layout="thd")
        numpy.testing.assert_array_equal(packed, quantize(self.x[:1], per="row")[1][0].swapaxes(0, 1))

    def test_special_blocks(self):
        self.x[0, 0, 0], self.x[0, 0, 1, 3], self.x[0, 0, 2, 4] = 0, numpy.nan, numpy.inf
        self.x[0, 0, 3], self.x[0, 0, 3, 0] = 0, 1e-44  # less than a scale can be
        for dtype in ("float8_e4m3fn", "float8_e5m2", "int8"):
            for x in (self.x, torch.from_numpy(self.x)):
                found, scale = (numpy.asarray(y.float() if isinstance(y, torch.Tensor) else y, numpy.float32)
                                for y in quantize(x, dtype, per="row"))  # fmt: skip
                with numpy.errstate(invalid="ignore"):
                    values = found * scale
                self.assertEqual(scale[0, 0, 0], 1)
                self.assertEqual(numpy.abs(values[0, 0, [0, 3]]).max(), 0)
                self.assertTrue(numpy.isnan(values[0, 0, 1]).all())
                self.assertTrue(numpy.isnan(values[0, 0, 2]).all())
                self.assertTrue(numpy.isfinite(values[0, 1:]).all())
        empty, scale = quantize(self.x[:, :, :0])
        self.assertEqual((empty.shape, scale.shape, scale.item()), ((2, 3, 0, 64), (1, 1, 1, 1), 1))
        self.assertEqual(quantize(torch.zeros(2, 3, 0, 64), per="row")[1].shape, (2, 3, 0, 1))

    def test_without_ml_dtypes(self):
        with mock.patch.dict(sys.modules, ml_dtypes=None):
            with self.assertRaisesRegex(U, "expected the package ml_dtypes, which has float8_e4m3fn for NumPy, but"):
                quantize(self.x)
            quantize(self.x, "int8")


if __name__ == "__main__":
    unittest.main()
