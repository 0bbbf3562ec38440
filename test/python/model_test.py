# Models of GPUs as a device: numbers forward and backward by the bounds of the others, kernels compiled
# ahead, and what a model reports, as an exception.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import pickle
import unittest
from unittest import mock

import flashattn
import gradients_test
import numpy
import numbers_test
from flashattn import _library, attention, attention_backward
from flashattn.errors import ArgumentError, DeviceError, UnsupportedError

CHIPS = ("model:sm_80", "model:sm_90a")

#: Threads of two warps store to one word, with nothing between them.
RACE = """
func.func @race(%x: memref<?xf32>) {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c0 = arith.constant 0 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
             workgroup(%s : memref<1xf32, #gpu.address_space<workgroup>>) {
    %i = arith.index_cast %tx : index to i32
    %v = arith.sitofp %i : i32 to f32
    memref.store %v, %s[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
    memref.store %v, %x[%tx] : memref<?xf32>
    gpu.terminator
  }
  return
}
"""


class ModelTest(unittest.TestCase):
    def setUp(self):
        self.generator = numpy.random.default_rng(3)

    def inputs(self, element, nq=33, nk=70, heads=(2, 1), d=32):
        shapes = (1, heads[0], nq, d), (1, heads[1], nk, d), (1, heads[1], nk, d)
        return [numbers_test.make(self.generator, element, shape) for shape in shapes]

    def test_numbers(self):
        cases = (
            ("model:sm_80", "f16", "causal"),
            ("model:sm_80", "f32", "window"),
            ("model:sm_90a", "f16", "none"),
            ("model:sm_90a", "bf16", "causal"),
        )
        for device, element, name in cases:
            with self.subTest(device=device, element=element, mask=name):
                mask, given = numbers_test.MASKS[name], self.inputs(element)
                (q, k, v), values = zip(*given)
                dtype = "bf16" if element == "bf16" else None
                options = dict(mask=mask, return_lse=True, dtype=dtype, device=device)
                o, lse = attention(q, k, v, **options)
                wide = numbers_test.to_float(o, element)
                numbers_test.NumbersTest.compare(self, wide, lse, *values, mask, element)
                # The plan of the first call, the next interleaving: no arithmetic depends on it.
                again, _ = attention(q, k, v, **options)
                self.assertTrue((o == again).all())

    def test_gradients(self):
        for device, element in zip(CHIPS, ("f16", "bf16")):
            with self.subTest(device=device, element=element):
                checker = gradients_test.GradientsTest("check")
                checker.setUp()
                inputs = checker.inputs(element, 1, (2, 1), (33, 70), 32, 32)
                checker.check(element, inputs, mask=flashattn.causal, device=device)

    def test_kernel_and_operands(self):
        kernel = flashattn.compile(head_dim=32, bias=("f32", (1, 1, None, None)), device=CHIPS[1])
        self.assertEqual((kernel.device, kernel.chip), (CHIPS[1], "sm_90a"))
        self.assertTrue(kernel.is_launchable)
        self.assertNotIn("ptx", kernel.stages)
        with self.assertRaisesRegex(UnsupportedError, "but got one for model:sm_90a, which has no"):
            kernel.ptx
        kernel = pickle.loads(pickle.dumps(kernel))
        (q, k, v), values = zip(*self.inputs("f16"))
        bias, o = numpy.zeros((33, 70), numpy.float32), numpy.empty_like(q)
        bias[:, 69] = -numpy.inf
        self.assertEqual(kernel.get_workspace_bytes(q, k, v, o, bias=bias), 0)
        for _ in range(2):
            kernel.launch(q, k, v, o, bias=bias)
        seen = flashattn.affine_set("(p, k)[nq, nk] : (68 - k >= 0)")
        numbers_test.NumbersTest.compare(self, o.astype("f4"), None, *values, seen, "f16")

    def test_lists_and_views_of_one_array(self):
        packed = self.generator.standard_normal((1, 40, 4, 1, 32)).astype(numpy.float16)
        q, k, v, o = (packed[:, :, i] for i in range(4))
        flashattn.attention(q, k, v, out=o, layout="bshd", kv_len=[25], device=CHIPS[0])
        values = (x.swapaxes(1, 2).astype(numpy.float32) for x in (q, k[:, :25], v[:, :25]))
        numbers_test.NumbersTest.compare(
            self, o.swapaxes(1, 2).astype("f4"), None, *values, None, "f16"
        )

    def test_what_is_refused(self):
        q = numpy.zeros((1, 1, 4, 16), numpy.float16)
        for device, text in (
            ("model:sm_70", "expected chip .* but got 'sm_70'"),
            ("model:cpu", "expected a GPU's chip, .* but got 'cpu'"),
            ("sm_80", "expected device to be None or 'model:sm_XX' but got 'sm_80'"),
            (0, "expected device to be None or 'model:sm_XX' but got 0"),
        ):
            with self.assertRaisesRegex(ArgumentError, text):
                attention(q, q, q, device=device)
            with self.assertRaisesRegex(ArgumentError, text):
                lse = numpy.zeros((1, 1, 4), numpy.float32)
                attention_backward(q, q, q, q, lse, q, device=device)
        with self.assertRaisesRegex(ArgumentError, "expected chip 'sm_80' or None for model:sm_80"):
            flashattn.compile(head_dim=16, chip="sm_90a", device="model:sm_80")
        many = numpy.zeros((1, 65537, 1, 8), numpy.float16)
        with self.assertRaisesRegex(DeviceError, "expected at most 65536 blocks in a grid, .*65537"):
            attention(many, many, many, device="model:sm_80")

    def test_reports(self):
        library = _library.get()
        with mock.patch.object(library, "attention_only", False):
            kernel, _ = library.compile(
                RACE, chip="sm_80", device=_library.DEVICE_MODEL, schedule=None, tuned=False
            )
        x, tensors = numpy.zeros(64, numpy.float32), (_library.Tensor * 5)()
        tensors[0].rank, tensors[0].elementType = 1, _library.ELEMENT_TYPES["f32"]
        tensors[0].sizes[0], tensors[0].strides[0] = 64, 1
        head, (pack, _) = _library.launch_head(kernel, tensors, 1), _library.packers(3)
        with self.assertRaisesRegex(DeviceError, r"seed 1: race: .* at memref\.store \(input:11:5"):
            library.fail(library.launch(head + pack(0, 0, x.ctypes.data, 0, 0)))
        library.free(kernel)


if __name__ == "__main__":
    unittest.main()
