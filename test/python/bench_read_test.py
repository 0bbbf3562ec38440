# The kernel whose rate is the benchmark's limit of what moves more than it computes: that it assembles, what reaches the
# driver, and on a GPU that it reads every byte.
# REQUIRES: python-package, fakecuda
# RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda %flashattn_python %s

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from flashattn.bench import _read
from flashattn.errors import DeviceError

try:
    import torch
except ImportError:
    torch = None

PTXAS = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")


class ReadTest(unittest.TestCase):
    def setUp(self):
        self.driver = ctypes.CDLL(os.environ["FLASHATTN_CUDA_DRIVER"])

    def push_context(self):
        context = ctypes.c_void_p()
        self.assertEqual(self.driver.cuInit(0), 0)
        self.assertEqual(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.driver.cuCtxPushCurrent_v2(context)
        self.addCleanup(self.driver.cuCtxPopCurrent_v2, ctypes.byref(ctypes.c_void_p()))

    @unittest.skipUnless(PTXAS, "ptxas is not installed")
    def test_assembles(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "read.ptx")
            path.write_text(_read.ptx())
            for chip in ("sm_80", "sm_90a"):
                done = subprocess.run(
                    [PTXAS, "-v", f"-arch={chip}", str(path), "-o", str(Path(folder, "cubin"))],
                    capture_output=True, text=True,
                )  # fmt: skip
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("0 bytes spill stores", done.stderr)
                # Room for every word, so that all loads are on their way together; 8 blocks fit a multiprocessor.
                registers = int(re.search(r"Used (\d+) registers", done.stderr)[1])
                self.assertTrue(4 * _read.LOADS < registers <= 32, registers)

    def test_what_reaches_the_driver(self):
        self.push_context()
        self.driver.fakeCUDAWatch.restype = ctypes.POINTER(ctypes.c_uint64)
        first = self.driver.fakeCUDAWatch(0, ctypes.c_size_t(8))
        stream = ctypes.c_void_p()
        before = self.driver.fakeCUDALaunches(ctypes.byref(stream))
        _read.ReadKernel().launch(0x123400, 3 * _read.BLOCK_BYTES, 0x70)
        self.assertEqual(self.driver.fakeCUDALaunches(ctypes.byref(stream)), before + 1)
        self.assertEqual((stream.value, first[0]), (0x70, 0x123400))

    def test_refusals(self):
        kernel = _read.ReadKernel()
        message = "^expected cuLaunchKernel of the read kernel to succeed but got error 201$"
        with self.assertRaisesRegex(DeviceError, message):  # no context
            kernel.launch(0x123400, _read.BLOCK_BYTES, 0)
        message = "^expected cuModuleLoadDataEx of the read kernel to succeed but got error 218$"
        with mock.patch.dict(os.environ, FAKE_CUDA_FAIL="cuModuleLoadDataEx=218"):
            with self.assertRaisesRegex(DeviceError, message):
                _read.ReadKernel()
        with mock.patch.dict(os.environ, FLASHATTN_CUDA_DRIVER="/nowhere/libcuda.so.1"):
            with self.assertRaisesRegex(
                DeviceError, "^expected the CUDA driver but got: .*No such file"
            ):
                _read.ReadKernel()

    @unittest.skipUnless(torch and torch.cuda.is_available(), "no GPU")
    def test_reads_every_word(self):
        """A thread that finds the mark says so, and any of its words may hold it."""
        words = 5 * _read.BLOCK_BYTES // 4
        mark = _read.MARK - (1 << 32)
        torch.cuda.synchronize()
        with mock.patch.dict(os.environ):
            del os.environ["FLASHATTN_CUDA_DRIVER"]
            kernel = _read.ReadKernel()
        # One word of each load of each warp, in the first block, an inner one and the last.
        for place in range(4, words, 4 * 31 + 1):
            x = torch.zeros(words, dtype=torch.int32, device="cuda")
            x[place] = mark
            kernel.launch(x.data_ptr(), 4 * words, torch.cuda.current_stream().cuda_stream)
            self.assertEqual(x[0].item(), mark, place)


if __name__ == "__main__":
    unittest.main()
