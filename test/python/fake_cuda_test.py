# What reaches the driver from CUDA tensors, and what of its errors comes back, without a GPU: a
# stand-in for the driver, whose kernels do nothing, and one for torch.
# REQUIRES: python-package, fakecuda
# RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda %flashattn_python %s

import os
import subprocess
import sys
import types
import unittest

import flashattn
import numpy
from flashattn import _attention, _kernel, _library, _tensors, causal

SHAPE = (1, 2, 8, 64)


class Array:
    """Device memory that nobody reads, shown by __cuda_array_interface__."""

    def __init__(
        self, shape=SHAPE, at=0x10000, strides=None, stream=None, typestr="<f2", read_only=False
    ):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (at, read_only), "strides": strides, "version": 3,
            "stream": stream,
        }  # fmt: skip


class Device:
    def __init__(self, kind, index):
        self.type, self.index = kind, index

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))


class Tensor:
    """As much of torch.Tensor as is asked for."""

    made = 0x900000

    def __init__(self, shape=SHAPE, at=0x10000, dtype="torch.float16", device=0, strides=None):
        self.shape, self.at, self.dtype, self.device = (
            tuple(shape),
            at,
            dtype,
            Device("cuda", device),
        )
        self.strides, self.requires_grad = strides or _tensors._dense_strides(self.shape), False

    def stride(self):
        return self.strides

    def data_ptr(self):
        return self.at

    @property
    def is_cuda(self):
        return True

    def get_device(self):
        return self.device.index

    def new_empty(self, shape):
        Tensor.made += 0x1000
        return Tensor(
            (shape,) if isinstance(shape, int) else shape,
            Tensor.made,
            self.dtype,
            self.device.index,
        )


def make_torch():
    torch = types.ModuleType("torch")
    torch.Tensor, torch.float32 = Tensor, "torch.float32"
    torch.empty = lambda shape, dtype, device: Tensor((1,), 0, dtype, device.index).new_empty(shape)
    torch.empty_like = lambda tensor: tensor.new_empty(tensor.shape)
    torch.is_grad_enabled = lambda: True
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0x500 + device)
    return torch


class FakeCUDATest(unittest.TestCase):
    def setUp(self):
        _kernel._kernels.clear()
        _attention._state.plans.clear()
        self.launches = []
        library = _library.get()
        original = library.launch

        def launch(kernel, stream, address, count):
            tensors = (_library.Tensor * count).from_address(address)
            self.launches.append((stream, [(t.data, tuple(t.strides)[: t.rank]) for t in tensors]))
            return original(kernel, stream, address, count)

        library.launch = launch
        self.addCleanup(setattr, library, "launch", original)

    def rows(self):
        return [problem.rows for problem, _ in _kernel._kernels]

    def test_rows_by_address_and_strides(self):
        out = Array()
        for first, rows in (
            (Array(), "dense"),
            (Array(at=0x10010), "dense"),
            (Array(at=0x10002), "strided"),
            (Array(strides=(4096, 2048, 256, 2)), "aligned"),
            (Array(strides=(4096, 2048, 130, 2)), "strided"),
        ):
            _kernel._kernels.clear()
            flashattn.attention(first, Array(), Array(), out=out)
            self.assertEqual(self.rows(), [rows])

    def test_hopper_takes_rows_at_16_bytes(self):
        """Tensor copies where the address and every stride of all operands allow them, otherwise
        mma.sync."""
        dense = (2048, 1024, 128, 2)  # bytes
        cases = [("dense", "k", 0x10000, dense, True)]
        for name in "qkvo":
            cases.append(("strided", name, 0x10008, dense, False))
            cases.append(("aligned", name, 0x10000, (8192, 256, 512, 2), True))
            cases += [
                ("strided", name, 0x10000, tuple(8 * (d == odd) + 4 * n for d, n in enumerate(dense[:3])) + (2,), False)
                for odd in (1, 2)
            ]  # fmt: skip
            if name != "o":
                cases.append(("aligned", name, 0x10000, (2048, 0, 128, 2), True))
                cases.append(("aligned", name, 0x10000, (2048, 0, 0, 2), True))
        for rows, name, at, strides, has_roles in cases:
            _kernel._kernels.clear()
            arrays = {n: Array() for n in "qkvo"}
            arrays[name] = Array(at=at, strides=strides)
            flashattn.attention(arrays["q"], arrays["k"], arrays["v"], out=arrays["o"])
            ((_, kernel),) = [(p, k) for (p, _), k in _kernel._kernels.items()]
            what = f"{name} at {at:#x} with strides {strides}"
            self.assertEqual(self.rows(), [rows], what)
            self.assertEqual("roles" in kernel.schedule, has_roles, what)

    def test_interface_streams(self):
        for options, producer, expected in (
            ({}, None, 0),
            ({}, 7, 7),
            ({"stream": 9}, 7, 9),
            ({"stream": types.SimpleNamespace(cuda_stream=11)}, None, 11),
            ({"stream": types.SimpleNamespace(ptr=12)}, None, 12),
            ({"stream": types.SimpleNamespace(__cuda_stream__=lambda: (0, 13))}, None, 13),
        ):
            flashattn.attention(Array(stream=producer), Array(), Array(), out=Array(), **options)
            self.assertEqual(self.launches[-1][0], expected)

    def test_torch(self):
        sys.modules["torch"] = make_torch()
        self.addCleanup(sys.modules.pop, "torch")
        self.addCleanup(setattr, _attention, "_Tensor", None)
        q, k, v = (Tensor(at=at) for at in (0x10000, 0x20000, 0x30000))
        for turn in range(3):  # the first one makes the plan
            o, lse = flashattn.attention(q, k, v, mask=causal, return_lse=True)
            self.assertEqual((o.shape, lse.shape, lse.dtype), (SHAPE, SHAPE[:3], "torch.float32"))
            stream, tensors = self.launches[-1]
            self.assertEqual(stream, 0x500)
            self.assertEqual([at for at, _ in tensors], [q.at, k.at, v.at, o.at, lse.at])
            self.assertEqual(tensors[0][1], (1024, 512, 64, 1))
        self.assertEqual(len(_attention._state.plans), 1)
        moved = Tensor(at=0x70000)
        target = Tensor(at=0x80000)
        for turn in range(2):
            self.assertIs(flashattn.attention(moved, k, v, out=target, stream=33), target)
            self.assertEqual(self.launches[-1][0], 33)
            self.assertEqual(
                [at for at, _ in self.launches[-1][1]], [moved.at, k.at, v.at, target.at]
            )
        self.assertEqual(len(_attention._state.plans), 2)
        # What differs from a plan does not find it.
        flashattn.attention(Tensor(at=0x10002), k, v, mask=causal, return_lse=True)
        self.assertEqual(self.rows()[-1], "strided")
        q.requires_grad = True
        with self.assertRaisesRegex(
            flashattn.UnsupportedError, "expected tensors without gradients but got 'q'"
        ):
            flashattn.attention(q, k, v, mask=causal, return_lse=True)
        q.requires_grad = False
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected 'k' on cuda:0 as 'q' but got cuda:1"
        ):
            flashattn.attention(q, Tensor(device=1), v, mask=causal, return_lse=True)
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected 'k' on cuda:0 as 'q' but got the CPU"
        ):
            flashattn.attention(q, numpy.zeros(SHAPE, numpy.float16), v)

    def test_read_only_out(self):
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected 'o' that can be written but got a read-only one"
        ):
            flashattn.attention(Array(), Array(), Array(), out=Array(read_only=True))

    def fails(self, **environment):
        """The exception and its text in a process of its own, whose driver fails as told."""
        script = (
            "import sys; sys.path.insert(0, %r); from fake_cuda_test import Array; import flashattn\n"
            "try: flashattn.attention(Array(), Array(), Array(), out=Array())\n"
            "except flashattn.FlashAttnError as e: print(type(e).__name__, e)"
        ) % os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() or done.stderr

    def test_errors_of_the_driver(self):
        self.assertRegex(self.fails(FAKE_CUDA_DEVICES="0"), r"^DeviceError .*device")
        self.assertRegex(self.fails(FAKE_CUDA_DRIVER_VERSION="11000"), r"^DeviceError .*PTX")
        self.assertRegex(
            self.fails(FAKE_CUDA_CAPABILITY="75"),
            r"^\w+Error .*expected chip sm_80 or newer but got 'sm_75'",
        )
        self.assertRegex(
            self.fails(FAKE_CUDA_FAIL="cuLaunchKernel=700"),
            r"^DeviceError .*CUDA_ERROR_ILLEGAL_ADDRESS",
        )
        log = self.fails(FAKE_CUDA_FAIL="cuModuleLoadDataEx=218", FAKE_CUDA_LOG="line 7 is bad")
        self.assertRegex(log, r"^DeviceError (?s:.*)line 7 is bad")

    def test_devices(self):
        with self.assertRaisesRegex(
            flashattn.DeviceError, "expected a CUDA device number below 1 but got 3"
        ):
            flashattn.compile(head_dim=64, device=3)
        kernel = flashattn.compile(head_dim=64)
        self.assertEqual(kernel.chip, "sm_90a")
        self.assertEqual(_library.get().device(0).chip, "sm_90a")
        self.assertEqual(kernel.tuning_key, "sm_90a/64/64/f16/full")
        self.assertTrue(kernel.is_launchable)
        q = numpy.zeros(SHAPE, numpy.float16)
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected tensors on cuda:0, as compiled, but got the CPU"
        ):
            kernel.launch(q, q, q, q)


if __name__ == "__main__":
    unittest.main()
