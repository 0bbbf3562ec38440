# Kernels are compiled once for every length and stride, whichever thread asks; a repeated call is
# cheap.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import ctypes
import os
import sys
import threading
import time
import unittest

import flashattn
import numpy
from flashattn import _attention, _kernel, _library, causal, sink

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
import stand_in_torch

# Of the interpreter and the library on the smallest problem, microseconds. The bound on a quiet
# machine is a tenth of this; what the test must notice is a call that compiles or checks anew.
LIMIT = 150


def ones(*shape, dtype=numpy.float32):
    return numpy.ones(shape, dtype)


class CacheTest(unittest.TestCase):
    def setUp(self):
        _kernel._kernels.clear()
        stand_in_torch.forget_plans()

    def test_one_kernel_for_all_lengths_and_heads(self):
        for b, hq, hkv, nq, nk in (
            (1, 1, 1, 1, 1),
            (2, 4, 2, 17, 33),
            (1, 6, 1, 64, 3),
            (3, 2, 2, 5, 100),
        ):
            o = flashattn.attention(ones(b, hq, nq, 16), ones(b, hkv, nk, 16), ones(b, hkv, nk, 16))
            numpy.testing.assert_allclose(o, 1, rtol=1e-6)
        # On the CPU no schedule counts on how many heads share a key/value head.
        self.assertEqual(len(_kernel._kernels), 1)
        self.assertEqual(len(_attention._state.plans), 4)

    def test_one_kernel_for_all_strides(self):
        for pad in (0, 1, 5, 16):
            q = ones(2, 2, 8 + pad, 16)[:, :, :8]
            flashattn.attention(q, q, q)
        self.assertEqual(len(_kernel._kernels), 1 if pad == 0 else 2)  # dense, and strided

    def test_a_kernel_for_each_choice(self):
        q = ones(1, 1, 4, 16)
        half = q.astype(numpy.float16)
        calls = (
            lambda: flashattn.attention(q, q, q),
            lambda: flashattn.attention(q, q, q, mask=causal),
            lambda: flashattn.attention(q, q, q, mask=sink(1)),
            lambda: flashattn.attention(q, q, q, scale=0.5),
            lambda: flashattn.attention(q, q, q, align="top_left"),
            lambda: flashattn.attention(q, q, q, layout="bshd"),
            lambda: flashattn.attention(q, q, q, return_lse=True),
            lambda: flashattn.attention(q, q, q, schedule={"tile_m": 8, "tile_n": 16}),
            lambda: flashattn.attention(half, half, half),
            lambda: flashattn.attention(q, q, ones(1, 1, 4, 32)),
        )
        for count, call in enumerate(calls, 1):
            call()
            call()
            self.assertEqual(len(_kernel._kernels), count)

    def test_eight_threads_compile_once_and_agree(self):
        generator = numpy.random.default_rng(0)
        q = generator.standard_normal((2, 4, 40, 16), numpy.float32)
        library = _library.get()
        compiled, original = [], library.compile

        def counted(text, **options):
            compiled.append(text)
            return original(text, **options)

        results, start = [], threading.Barrier(8)

        def work():
            start.wait()
            results.extend(flashattn.attention(q, q, q, mask=causal) for _ in range(50))

        library.compile = counted
        try:
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            del library.compile
        self.assertEqual(len(compiled), 1)
        self.assertEqual(len(results), 400)
        for result in results:
            numpy.testing.assert_array_equal(result, results[0])

    def test_a_failure_is_not_kept(self):
        q = ones(1, 1, 4, 16)
        for _ in range(2):
            with self.assertRaises(flashattn.CompileError):
                flashattn.attention(q, q, q, mask=sink(-1))
        self.assertEqual(len(_kernel._kernels), 0)
        flashattn.attention(q, q, q)

    def test_tensors_compared_in_c(self):
        """Plans that C finds give what the others do, wherever the tensors lie."""
        kind = stand_in_torch.install(self, exchange=True)
        generator = numpy.random.default_rng(1)

        def make(array):
            strides = tuple(stride // 4 for stride in array.strides)
            return kind(array.shape, array.ctypes.data, "torch.float32", -1, strides, array)

        def read(tensor):
            floats = (ctypes.c_float * int(numpy.prod(tensor.shape))).from_address(tensor.at)
            return numpy.array(floats).reshape(tensor.shape)

        for turn in range(6):
            # The stride of the one batch is nobody's business.
            q, k, v = (
                generator.standard_normal((1, n, h, 16), numpy.float32).transpose(0, 2, 1, 3)
                for n, h in ((5, 4), (9, 2), (9, 2))
            )
            if turn % 2:
                q = numpy.ascontiguousarray(q)
            expected = flashattn.attention(q, k, v, mask=causal, return_lse=True)
            given = make(ones(1, 4, 5, 16)), make(ones(1, 4, 5))
            del stand_in_torch.described[:]
            tensors = make(q), make(k), make(v)
            found = flashattn.attention(*tensors, mask=causal, return_lse=True)
            flashattn.attention(*tensors, mask=causal, return_lse=True, out=given)
            for pair in (found, given):
                for tensor, array in zip(pair, expected):
                    numpy.testing.assert_array_equal(read(tensor), array)
        self.assertIn(given[1], stand_in_torch.described)

    def test_plans_do_not_pile_up(self):
        original, _attention._MAX_PLANS = _attention._MAX_PLANS, 8
        try:
            for n in range(1, 40):
                q = ones(1, 1, n, 16)
                flashattn.attention(q, q, q)
                self.assertLessEqual(len(_attention._state.plans), 8)
        finally:
            _attention._MAX_PLANS = original

    def test_no_memory_is_kept(self):
        q = ones(1, 2, 64, 16)
        flashattn.attention(q, q, q, return_lse=True)

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        for _ in range(500):
            flashattn.attention(q, q, q, return_lse=True)
        before = resident()
        for _ in range(10000):
            flashattn.attention(q, q, q, return_lse=True)
        self.assertLess(resident() - before, 4 << 20)

    def test_a_call_is_cheap(self):
        q = ones(1, 1, 1, 16)
        for name, options in (
            ("plain", {}),
            ("mask and lse", {"mask": causal, "return_lse": True}),
        ):
            times = []
            for _ in range(3000):
                start = time.perf_counter()
                flashattn.attention(q, q, q, **options)
                times.append(time.perf_counter() - start)
            median = sorted(times)[len(times) // 2] * 1e6
            print(f"{name}: {median:.1f} us a call")
            self.assertLess(median, LIMIT)


if __name__ == "__main__":
    unittest.main()
