# What reaches the driver from CUDA tensors, and what of its errors comes back, without a GPU: a
# stand-in for the driver, whose kernels do nothing, and one for torch.
# REQUIRES: python-package, fakecuda
# RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda %flashattn_python %s

import ctypes
import itertools
import os
import struct
import subprocess
import sys
import types
import unittest
from unittest import mock

import flashattn
import numpy
from flashattn import _cache, _library, _module, causal

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
import stand_in_torch

SHAPE = (1, 2, 8, 64)
OUT = 0x90000000  # outputs share no memory with inputs
SCALE = _module.scale_bits(64**-0.5)


class Array:
    """Device memory that nobody reads, shown by __cuda_array_interface__."""

    def __init__(
        self, shape=SHAPE, at=0x10000, strides=None, stream=None, typestr="<f2", read_only=False
    ):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (at, read_only), "strides": strides, "version": 3,
            "stream": stream,
        }  # fmt: skip


def launch_stream():
    """The stream of this thread's last launch, as the driver was given it."""
    driver = ctypes.CDLL(os.environ["FLASHATTN_CUDA_DRIVER"])
    stream = ctypes.c_void_p()
    driver.fakeCUDALaunches(ctypes.byref(stream))
    return stream.value or 0


class FakeCUDATest(unittest.TestCase):
    def setUp(self):
        _cache.cache.clear()
        stand_in_torch.forget_plans()
        self.launches = []
        library = _library.get()
        original = library.launch

        def launch(packed):
            _, tensors, count, match, stream, *data = struct.unpack(f"{len(packed) // 8}P", packed)
            described = (_library.Tensor * count).from_address(tensors)
            strides = [tuple(t.strides)[: t.rank] for t in described]
            status = original(packed)
            self.launches.append((launch_stream(), match, data[:count], strides))
            return status

        library.launch = launch
        self.addCleanup(setattr, library, "launch", original)

    def rows(self):
        return [problem.rows for problem, _ in _cache.cache.kernels]

    def call_anew(self, arrays):
        """The rows and the kernel of a call without a plan. Kernels of earlier calls are there."""
        _cache.cache.plans.clear()
        _cache.cache.recent = []
        before = _cache.clock()
        flashattn.attention(arrays["q"], arrays["k"], arrays["v"], out=arrays["o"])
        used = [(problem.rows, kernel) for (problem, _), kernel in _cache.cache.kernels.items() if kernel._used > before]
        self.assertEqual(len(used), 1)
        return used[0]

    def test_dropped_kernels_are_unloaded(self):
        """Where no launch was captured: a graph holds what it was captured with."""
        driver = ctypes.CDLL(os.environ["FLASHATTN_CUDA_DRIVER"])

        def call(width, **variables):
            shape = (1, 2, 8, width)
            with mock.patch.dict(os.environ, variables):
                flashattn.attention(Array(shape), Array(shape), Array(shape), out=Array(shape, OUT))

        _cache.cache.set_limits(1, None)
        self.addCleanup(_cache.cache.set_limits, 256, None)
        call(64)
        before = driver.fakeCUDAUnloads()
        call(96)
        self.assertEqual(driver.fakeCUDAUnloads(), before + 1)
        call(128, FAKE_CUDA_CAPTURING="1")
        self.assertEqual(driver.fakeCUDAUnloads(), before + 2)
        call(192)
        self.assertEqual(driver.fakeCUDAUnloads(), before + 2)
        kernel = flashattn.compile(head_dim=256)
        _cache.cache.clear()
        self.assertEqual(driver.fakeCUDAUnloads(), before + 3)
        del kernel  # whose code was never loaded
        self.assertEqual(driver.fakeCUDAUnloads(), before + 3)

    def test_workspace_is_what_a_launch_allocates(self):
        driver = ctypes.CDLL(os.environ["FLASHATTN_CUDA_DRIVER"])
        driver.fakeCUDAPeakMemory.restype = ctypes.c_size_t
        kernel = flashattn.compile(head_dim=64, queries=1, offset=True)
        self.assertIsNone(kernel.workspace_bytes)
        found = []
        for keys in (64, 4096, 20000):
            q, k = Array((2, 4, 1, 64)), Array((2, 2, keys, 64))
            driver.fakeCUDAPeakMemory()
            before = driver.fakeCUDAPeakMemory()
            found.append(kernel.get_workspace_bytes(q, k, k, Array((2, 4, 1, 64), OUT), offset=-3))
            self.assertEqual(driver.fakeCUDAPeakMemory(), before)
            kernel.launch(q, k, k, Array((2, 4, 1, 64), OUT), offset=-3)
            self.assertEqual(driver.fakeCUDAPeakMemory(), before + found[-1])
        self.assertEqual(found[0], 0)
        self.assertGreater(found[1], 0)
        plain = flashattn.compile(head_dim=64)
        self.assertEqual(plain.workspace_bytes, 0)
        self.assertEqual(plain.get_workspace_bytes(Array(), Array(), Array(), Array()), 0)

    def test_loads_what_is_launched(self):
        """The driver loads a kernel for few queries, and its two kernels for many keys, when each is launched."""
        loads = ctypes.CDLL(os.environ["FLASHATTN_CUDA_DRIVER"]).fakeCUDALoads
        before = loads()
        kernel = flashattn.compile(head_dim=96, queries=1)
        self.assertEqual(kernel.ptx.count(".entry"), 3)
        self.assertEqual(loads(), before)
        for keys, loaded in ((64, 1), (64, 1), (20000, 3), (20000, 3)):
            q, k = Array((2, 4, 1, 96)), Array((2, 2, keys, 96))
            kernel.launch(q, k, k, Array((2, 4, 1, 96), OUT))
            self.assertEqual(loads(), before + loaded)

    def test_rows_by_address_and_strides(self):
        for first, rows in (
            (Array(), "dense"),
            (Array(at=0x10010), "dense"),
            (Array(at=0x10002), "strided"),
            (Array(strides=(4096, 2048, 256, 2)), "aligned"),
            (Array(strides=(4096, 2048, 130, 2)), "strided"),
        ):
            arrays = {"q": first, "k": Array(), "v": Array(), "o": Array(at=OUT)}
            self.assertEqual(self.call_anew(arrays)[0], rows)

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
            arrays = {n: Array() for n in "qkvo"}
            arrays["o"] = Array(at=OUT)
            arrays[name] = Array(at=at + OUT * (name == "o"), strides=strides)
            used, kernel = self.call_anew(arrays)
            what = f"{name} at {at:#x} with strides {strides}"
            self.assertEqual(used, rows, what)
            self.assertEqual("hopper" in kernel.schedule, has_roles, what)

    def test_interface_streams(self):
        for options, producer, expected in (
            ({}, None, 0),
            ({}, 7, 7),
            ({"stream": 9}, 7, 9),
            ({"stream": types.SimpleNamespace(cuda_stream=11)}, None, 11),
            ({"stream": types.SimpleNamespace(ptr=12)}, None, 12),
            ({"stream": types.SimpleNamespace(__cuda_stream__=lambda: (0, 13))}, None, 13),
        ):
            flashattn.attention(Array(stream=producer), Array(), Array(), out=Array(at=OUT), **options)
            self.assertEqual(self.launches[-1][0], expected)

    def test_torch(self):
        for exchange in (False, True):
            with self.subTest(exchange=exchange):
                _cache.cache.clear()
                self.check_torch(exchange)

    def check_torch(self, exchange):
        kind = stand_in_torch.install(self, exchange)
        make = lambda at=0x10000, **fields: kind(SHAPE, at, **fields)  # noqa: E731
        q, k, v = (make(at) for at in (0x10000, 0x20000, 0x30000))
        # The first one learns of torch, the second one makes the plan, the third finds it by its key.
        for turn in range(5):
            o, lse = flashattn.attention(q, k, v, mask=causal, return_lse=True)
            self.assertEqual((o.shape, lse.shape, lse.dtype), (SHAPE, SHAPE[:3], "torch.float32"))
            stream, match, data, strides = self.launches[-1]
            self.assertEqual(stream, 0x500)
            self.assertEqual(match > 0, exchange and turn > 2)
            inputs = [0, 0, 0] if match else [q.at, k.at, v.at]
            self.assertEqual(data, [*inputs, o.at, lse.at, SCALE])
            self.assertEqual(strides[0], (1024, 512, 64, 1))
        self.assertEqual(len(_cache.cache.plans), 1)
        moved, target = make(0x70000), make(0x80000)
        for turn in range(3):
            self.assertIs(flashattn.attention(moved, k, v, out=target, stream=33), target)
            stream, match, data, _ = self.launches[-1]
            self.assertEqual((stream, data), (33, [moved.at, k.at, v.at, target.at, SCALE]))
        self.assertIs(flashattn.attention(moved, k, v, out=target), target)
        stream, match, data, _ = self.launches[-1]
        self.assertEqual((stream, match > 0), (0x500, exchange))
        self.assertEqual(data, [*([0] * 4 if match else [moved.at, k.at, v.at, target.at]), SCALE])
        self.assertEqual(len(_cache.cache.plans), 2)
        # What differs from a plan does not find it.
        again = lambda q, k=k: flashattn.attention(q, k, v, mask=causal, return_lse=True)  # noqa: E731
        again(make(0x10002))
        self.assertEqual(self.rows()[-1], "strided")
        again(make(strides=(2048, 1024, 128, 1)))
        self.assertEqual(self.rows()[-1], "aligned")
        again(kind((1, 2, 16, 64), 0x10000))
        self.assertEqual(len(_cache.cache.plans), 5)
        bad = flashattn.ArgumentError
        message = "expected 'v' with element type f16 as in 'q', f8E4M3FN, f8E5M2 or i8 but got bf16"
        with self.assertRaisesRegex(bad, message):
            flashattn.attention(q, k, make(dtype="torch.bfloat16"), mask=causal, return_lse=True)
        with self.assertRaisesRegex(bad, "expected a CUDA stream or its address but got -1"):
            flashattn.attention(q, k, v, mask=causal, return_lse=True, stream=-1)
        with self.assertRaisesRegex(
            bad, "expected mask to be a flashattn mask or None but got list"
        ):
            flashattn.attention(q, k, v, mask=[causal], return_lse=True)
        q.requires_grad = True
        with self.assertRaisesRegex(
            flashattn.UnsupportedError, "expected tensors without gradients but got 'q'"
        ):
            flashattn.attention_backward(q, k, v, q, kind((1, 2, 8), 0x9000, "torch.float32"), q)
        q.requires_grad = False
        with self.assertRaisesRegex(bad, "expected 'k' on cuda:0 as 'q' but got cuda:1"):
            again(q, make(device=1))
        with self.assertRaisesRegex(bad, "expected 'k' on cuda:0 as 'q' but got the CPU"):
            again(q, numpy.zeros(SHAPE, numpy.float16))
        again(q)

    def test_o_in_f32(self):
        """The type of o chooses the kernel, of arrays and of torch's tensors, whatever calls were before."""

        def check(o_element, function, *inputs, **options):
            before = _cache.clock()
            function(*inputs, **options)
            used = [problem for (problem, _), kernel in _cache.cache.kernels.items() if kernel._used > before]
            self.assertEqual([(problem.o_element, problem.rows) for problem in used], [(o_element, "dense")])
            return self.launches[-1]

        typestrs = {None: "<f2", "f32": "<f4"}
        for _, (element, typestr) in itertools.product(range(2), typestrs.items()):
            o = Array(at=OUT, typestr=typestr)
            check(element, flashattn.attention, *(Array() for _ in range(3)), out=o)
            lse = Array(SHAPE[:3], 0x9000, typestr="<f4")
            gradients = tuple(Array(at=OUT + n * 0x10000) for n in range(1, 4))
            inputs = (*(Array() for _ in range(3)), Array(typestr=typestr), lse, Array())
            check(element, flashattn.attention_backward, *inputs, out=gradients)
        for name in ("f2", "i4", "f8"):  # of the inputs bf16
            kind = {"f2": "f16", "i4": "i32", "f8": "float64"}[name]
            inputs = [Array(typestr="<u2") for _ in range(3)]
            with self.assertRaisesRegex(
                flashattn.ArgumentError, f"^expected 'o' with element type bf16 or f32 but got {kind}$"
            ):
                flashattn.attention(*inputs, out=Array(at=OUT, typestr=f"<{name}"), dtype="bf16")
        for exchange in (False, True):
            _cache.cache.clear()
            kind = stand_in_torch.install(self, exchange)
            inputs = [kind(SHAPE, at, "torch.bfloat16") for at in (0x10000, 0x20000, 0x30000)]
            outs = {e: kind(SHAPE, OUT, f"torch.{dtype}") for e, dtype in ((None, "bfloat16"), ("f32", "float32"))}
            for turn, (element, out) in itertools.product(range(5), outs.items()):
                _, match, data, _ = check(element, flashattn.attention, *inputs, out=out)
                if turn == 4:
                    self.assertEqual(match > 0, exchange)
                self.assertEqual(data[3], 0 if match else OUT)
                check(None, lambda: self.assertEqual(flashattn.attention(*inputs).dtype, "torch.bfloat16"))
                lse = kind(SHAPE[:3], 0x9000, "torch.float32")
                check(element, flashattn.attention_backward, *inputs, out, lse, inputs[0])

    def test_packed_sequences(self):
        """Starts are addresses that the host does not read, and layout thd is a view of rank 4."""
        kind = stand_in_torch.install(self, exchange=True)
        q, k, v = kind((20, 4, 16), 0x10000), kind((30, 2, 16), 0x20000), kind((30, 2, 16), 0x30000)
        starts = [kind((4,), at, dtype="torch.int32") for at in (0x40000, 0x50004)]
        used = kind((3,), 0x60004, dtype="torch.int32")
        for _ in range(2):
            o, lse = flashattn.attention(
                q, k, v, layout="thd", cu_seqlens_q=starts[0], cu_seqlens_k=starts[1], q_len=used,
                return_lse=True,
            )  # fmt: skip
            self.assertEqual((o.shape, lse.shape), ((20, 4, 16), (4, 20)))
            _, match, data, strides = self.launches[-1]
            extras = [used.at, *(x.at for x in starts), 0x3E800000]
            self.assertEqual((match, data), (0, [q.at, k.at, v.at, o.at, lse.at, *extras]))
            rows = [(1280, 64, 16, 1), (960, 32, 16, 1), (960, 32, 16, 1), (1280, 64, 16, 1)]
            self.assertEqual(strides, [*rows, (80, 20, 1), (1,), (1,), (1,), ()])
        self.assertEqual(len(_cache.cache.plans), 1)
        ((problem, _),) = _cache.cache.kernels
        self.assertEqual((problem.layout, problem.rows, problem.queries), ("bshd", "dense", None))
        gradients = flashattn.attention_backward(
            q, k, v, o, lse, o, layout="thd", cu_seqlens_q=starts[0], cu_seqlens_k=starts[1]
        )
        self.assertEqual([x.shape for x in gradients], [x.shape for x in (q, k, v)])
        lengths = kind((3,), 0x70000, dtype="torch.int32")
        slots = kind((3, 64, 2, 16), 0x80000)
        o = flashattn.attention(q, slots, slots, layout="thd", cu_seqlens_q=starts[0], kv_len=lengths)
        self.assertEqual(self.launches[-1][2][:6], [q.at, slots.at, slots.at, o.at, lengths.at, starts[0].at])

    def test_operands(self):
        """Beyond q, k and v: rows that a GPU reads by several, plans by key, an offset for each call."""
        kind = stand_in_torch.install(self, exchange=True)
        q, k, v = (kind(SHAPE, at) for at in (0x10000, 0x20000, 0x30000))
        scores = (1, 2, 8, 8)
        bias = kind(scores, 0x40000, dtype="torch.bfloat16")
        attn_mask = kind((8, 8), 0x50001, dtype="torch.bool")
        sinks = kind((2,), 0x60004, dtype="torch.float32")
        lengths = kind((1,), 0x70004, dtype="torch.int32")
        for offset in (3, -2, 7):
            o, lse = flashattn.attention(
                q, k, v, bias=bias, attn_mask=attn_mask, sink_logits=sinks, kv_len=lengths, offset=offset,
                softcap=2, return_lse=True,
            )  # fmt: skip
            stream, match, data, strides = self.launches[-1]
            self.assertEqual((stream, match), (0x500, 0))
            extras = [bias.at, attn_mask.at, sinks.at, lengths.at, offset % (1 << 64), SCALE]
            self.assertEqual(data, [q.at, k.at, v.at, o.at, lse.at, *extras])
            self.assertEqual(strides[5:9], [(128, 64, 8, 1), (64, 64, 8, 1), (1,), (1,)])
        self.assertEqual(len(_cache.cache.plans), 1)
        self.assertEqual(len(_cache.cache.kernels), 1)
        ((problem, _),) = _cache.cache.kernels
        self.assertEqual(
            (problem.operand("bias").broadcast, problem.operand("bias").has_aligned_rows), ((True, False, False, False), True)
        )
        operand = "attn_mask", "i1", "BHNK", (True, True, False, False), False, 1
        self.assertEqual(problem.operand("attn_mask"), operand)
        (kernel,) = _cache.cache.kernels.values()
        self.assertIn("strided<[?, ?, ?, 1]>> {flashattn.aligned_rows}", kernel.mlir)
        for options, is_aligned in (
            ({"at": 0x40002}, False),
            ({"strides": (0, 100, 12, 1)}, False),
            ({"strides": (0, 128, 16, 1)}, True),
            ({"shape": (1, 2, 8, 1)}, False),
        ):
            _cache.cache.clear()
            fields = {"shape": scores, "at": 0x40000, "dtype": "torch.bfloat16", **options}
            flashattn.attention(q, k, v, bias=kind(**fields))
            ((problem, _),) = _cache.cache.kernels
            self.assertEqual(problem.operand("bias").has_aligned_rows, is_aligned, options)
        # A boolean takes a byte.
        for at, strides, is_aligned in (
            (0x50000, (32, 1), True),
            (0x50000, (8, 1), False),
            (0x50008, (32, 1), False),
        ):
            _cache.cache.clear()
            rows = kind((8, 8), at, dtype="torch.bool", strides=strides)
            flashattn.attention(q, k, v, attn_mask=rows)
            ((problem, _),) = _cache.cache.kernels
            self.assertEqual(problem.operand("attn_mask").has_aligned_rows, is_aligned, (at, strides))
        # A score modification is found by its text, and its plan as one without it.
        factor = 2.0
        for _ in range(4):
            flashattn.attention(q, k, v, softcap=3, score_mod=lambda s, b, h, p, k: s * factor)
        self.assertGreater(self.launches[-1][1], 0)
        bias.requires_grad = True
        with self.assertRaisesRegex(
            flashattn.UnsupportedError, "expected tensors without gradients but got 'bias'"
        ):
            lse = kind(q.shape[:3], 0x9000, "torch.float32")
            flashattn.attention_backward(q, k, v, q, lse, q, bias=bias)
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected 'attn_mask' on cuda:0 as 'q' but got cuda:1"
        ):
            flashattn.attention(q, k, v, attn_mask=kind((8, 8), 0x50001, dtype="torch.bool", device=1))

    def test_table_of_another_version(self):
        """What is laid out in a way not known here is not read."""
        kind = stand_in_torch.install(self, exchange=True, major=2)
        q = kind(SHAPE, 0x10000)
        for _ in range(3):
            flashattn.attention(q, q, q)
            self.assertEqual(self.launches[-1][1:3], (0, [q.at] * 3 + self.launches[-1][2][3:]))
        self.assertEqual(stand_in_torch.described, [])

    def test_recent_plans_are_few(self):
        kind = stand_in_torch.install(self, exchange=True)
        tensors = [kind((1, 2, n, 64), 0x10000) for n in range(1, 9)]
        for _ in range(3):
            for q in tensors:
                flashattn.attention(q, q, q)
                self.assertEqual(self.launches[-1][2][:3], [q.at] * 3)
        self.assertEqual(len(_cache.cache.recent), 4)
        for turn in range(6):
            flashattn.attention(*[tensors[turn % 2]] * 3)
        self.assertGreater(self.launches[-1][1], 0)
        self.assertEqual(len(set(map(id, _cache.cache.recent))), 4)

    def test_read_only_out(self):
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected 'o' to be writable but got a read-only tensor"
        ):
            flashattn.attention(Array(), Array(), Array(), out=Array(at=OUT, read_only=True))

    def fails(self, **environment):
        """The exception and its text in a process of its own, whose driver fails as told."""
        script = (
            "import sys; sys.path.insert(0, %r); from fake_cuda_test import Array; import flashattn\n"
            "try: flashattn.attention(Array(), Array(), Array(), out=Array(at=0x90000000))\n"
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
            r"^\w+Error .*expected chip 'cpu', 'sm_80', .* but got 'sm_75'",
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
