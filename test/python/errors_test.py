# What is refused, with the message and the kind of exception.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
from flashattn import (
    ArgumentError,
    CompileError,
    FlashAttnError,
    KeywordError,
    UnsupportedError,
    _library,
    affine_set,
    attention,
    causal,
    compile,
    sink,
    window,
)


def array(*shape, dtype=numpy.float32):
    return numpy.zeros(shape, dtype)


Q, K = array(2, 4, 5, 16), array(2, 2, 7, 16)
BUFFER = array(1000)
SELF = BUFFER[:640].reshape(2, 4, 5, 16)


def read_only(*shape):
    result = array(*shape)
    result.flags.writeable = False
    return result


def launch(*tensors, dtype="f32", **options):
    """Launches a kernel with rows of 16 elements."""
    compile(head_dim=16, chip="cpu", dtype=dtype, **options).launch(*tensors)


class OnDevice:
    """A tensor that says it is elsewhere."""

    def __init__(self, kind, number=0):
        self.device = (kind, number)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        return K.__dlpack__()


class CUDAArray:
    __cuda_array_interface__ = {
        "shape": (2, 2, 7, 16),
        "typestr": "<f4",
        "data": (4096, False),
        "version": 3,
    }


# The call, the exception, its message.
CASES = [
    (
        lambda: attention(array(2, 5, 16), K, K),
        ArgumentError,
        "expected 'q' of rank 4 but got rank 3",
    ),
    (
        lambda: attention(Q, array(1, 2, 7, 16), K),
        ArgumentError,
        "expected batch size of 'k' to be 2 as in 'q' but got 1",
    ),
    (
        lambda: attention(Q, K, array(3, 2, 7, 16)),
        ArgumentError,
        "expected batch size of 'v' to be 2 as in 'q' but got 3",
    ),
    (
        lambda: attention(Q, K, array(2, 1, 7, 16)),
        ArgumentError,
        "expected head count of 'v' to be 2 as in 'k' but got 1",
    ),
    (
        lambda: attention(Q, K, array(2, 2, 8, 16)),
        ArgumentError,
        "expected key length of 'v' to be 7 as in 'k' but got 8",
    ),
    (
        lambda: attention(Q, array(2, 2, 7, 8), K),
        ArgumentError,
        "expected head dimension of 'k' to be 16 as in 'q' but got 8",
    ),
    (
        lambda: attention(array(2, 3, 5, 16), K, K),
        ArgumentError,
        "expected the query head count to be a multiple of the key/value head count, 2, but got 3",
    ),
    (
        lambda: attention(Q, array(2, 0, 7, 16), array(2, 0, 7, 16)),
        ArgumentError,
        "expected at least 1 key/value head but got 0",
    ),
    (
        lambda: attention(array(2, 4, 5, 0), array(2, 2, 7, 0), K),
        ArgumentError,
        "expected head dimensions of at least 1 but got 0 of 'q' and 16 of 'v'",
    ),
    (
        lambda: attention(*(x.astype(numpy.float64) for x in (Q, K, K))),
        UnsupportedError,
        "expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got float64",
    ),
    (
        lambda: attention(*(x.astype(numpy.uint16) for x in (Q, K, K))),
        UnsupportedError,
        "expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got uint16; pass dtype='bf16' if",
    ),
    (
        lambda: attention(Q, K.astype(numpy.float16), K),
        ArgumentError,
        "expected 'k' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16",
    ),
    (
        lambda: attention(Q, K, K, dtype="f64"),
        ArgumentError,
        "expected dtype bf16 or None but got 'f64'",
    ),
    (
        lambda: attention(Q[..., ::2], K[..., ::2], K),
        ArgumentError,
        "expected unit stride in the last dimension of 'q' but got 2; copy it, as with .contiguous()",
    ),
    (
        lambda: attention(Q[:, :, ::-1], K, K),
        ArgumentError,
        "expected strides of at least 0 of 'q' but got",
    ),
    (
        lambda: attention(Q.astype(">f4"), K, K),
        ArgumentError,
        "expected 'q' in the byte order of this machine but got >f4",
    ),
    (
        lambda: attention(
            numpy.zeros(2 * 4 * 5 * 16 * 4 + 1, numpy.uint8)[1:]
            .view(numpy.float32)
            .reshape(Q.shape),
            K,
            K,
        ),
        ArgumentError,
        "expected 'q' at an address that is a multiple of 4 bytes but got 0x",
    ),
    (
        lambda: attention([[1.0]], K, K),
        ArgumentError,
        "expected 'q' to be an array of numpy, a tensor of torch",
    ),
    (
        lambda: attention(Q, CUDAArray(), K),
        ArgumentError,
        "expected 'k' on the CPU as 'q' but got cuda:0",
    ),
    (
        lambda: attention(Q, OnDevice(10), K),
        ArgumentError,
        "expected 'k' on the CPU or a CUDA device but got DLPack device type 10",
    ),
    (
        lambda: attention(Q, K, K, mask="causal"),
        ArgumentError,
        "expected mask to be a flashattn mask or None but got str",
    ),
    (
        lambda: attention(Q, K, K, mask=array(5, 7, dtype=bool)),
        ArgumentError,
        "expected mask to be a flashattn mask or None but got ndarray; attn_mask= takes a Boolean array",
    ),
    (
        lambda: attention(Q, K, K, is_causal=True),
        KeywordError,
        "attention() got an unexpected keyword argument 'is_causal'; expected mask=flashattn.causal",
    ),
    *((lambda name=name: attention(Q, K, K, **{name: 1}), KeywordError, f"'{name}'; expected {expected}")
      for name, expected in (("softmax_scale", "scale="), ("keep", "attn_mask="), ("seqused_q", "q_len="),
                             ("block_table", "page_table="), ("cache_leftpad", "leftpad_k="),
                             ("deterministic", "torch."), ("cache_seqlens", "kv_len=, or"), ("return_attn_probs", "return_lse="),
                             ("max_seqlen_k", "none: the"), ("num_splits", "none: "))),  # fmt: skip
    (
        lambda: attention(Q, K, K, ouf=Q),
        KeywordError,
        "unexpected keyword argument 'ouf'; expected out=",
    ),
    (
        lambda: attention(Q, K, K, dropout_p=0.5),
        KeywordError,
        "attention() got an unexpected keyword argument 'dropout_p'; expected none: nothing is dropped out",
    ),
    (
        lambda: compile(head_dim=16, causal=True),
        KeywordError,
        "compile() got an unexpected keyword argument 'causal'; expected mask=flashattn.causal",
    ),
    (
        lambda: attention(SELF, SELF, SELF, out=SELF),
        ArgumentError,
        "expected the output argument 3 ('o') to share no memory with argument 0 ('q') but got "
        "addresses 0x",
    ),
    (
        lambda: attention(Q, SELF, Q, out=SELF),
        ArgumentError,
        "expected the output argument 3 ('o') to share no memory with argument 1 ('k')",
    ),
    (
        lambda: attention(Q, Q, SELF, out=SELF),
        ArgumentError,
        "expected the output argument 3 ('o') to share no memory with argument 2 ('v')",
    ),
    (
        lambda: attention(Q, K, K, bias=BUFFER[:140].reshape(4, 5, 7), out=SELF),
        ArgumentError,
        "expected the output argument 3 ('o') to share no memory with argument 4 ('bias')",
    ),
    (
        lambda: attention(Q, K, K, return_lse=True, out=(SELF, BUFFER[639:679].reshape(2, 4, 5))),
        ArgumentError,
        "expected the output argument 4 ('lse') to share no memory with argument 3 ('o')",
    ),
    (
        lambda: launch(SELF, K, K, SELF),
        ArgumentError,
        "expected the output argument 3 ('o') to share no memory with argument 0 ('q')",
    ),
    (
        lambda: attention(Q, K, K, mask=[causal]),
        ArgumentError,
        "expected mask to be a flashattn mask or None but got list",
    ),
    (
        lambda: attention(Q, K, K, align="left"),
        ArgumentError,
        "expected align top_left or bottom_right but got 'left'",
    ),
    (
        lambda: attention(Q, K, K, layout="sbhd"),
        ArgumentError,
        "expected layout bhsd, bshd or thd but got 'sbhd'",
    ),
    (
        lambda: attention(Q, K, K, scale=0),
        ArgumentError,
        "expected a finite positive scale but got 0.0",
    ),
    (
        lambda: attention(Q, K, K, scale=float("nan")),
        ArgumentError,
        "expected a finite positive scale but got nan",
    ),
    (
        lambda: attention(Q, K, K, scale="big"),
        ArgumentError,
        "expected scale to be a number or None but got 'big'",
    ),
    (
        lambda: attention(Q, K, K, stream=object(), out=array(2, 4, 5, 16)),
        ArgumentError,
        "expected a CUDA stream or its address but got object",
    ),
    (
        lambda: attention(Q, K, K, out=array(2, 4, 7, 16)),
        ArgumentError,
        "expected shape [2, 4, 5, 16] of 'o' but got [2, 4, 7, 16]",
    ),
    (
        lambda: attention(Q, K, K, out=array(2, 4, 5, 16, dtype=numpy.float16)),
        ArgumentError,
        "expected 'o' with element type f32 but got f16",
    ),
    (
        lambda: attention(Q, K, K, out=read_only(2, 4, 5, 16)),
        ArgumentError,
        "expected 'o' to be writable but got a read-only tensor",
    ),
    (
        lambda: attention(
            Q,
            K,
            K,
            out=numpy.lib.stride_tricks.as_strided(array(1, 4, 5, 16), Q.shape, (0, 320, 64, 4)),
        ),
        ArgumentError,
        "expected distinct elements of 'o' but got strides [0, 80, 16, 1]",
    ),
    (
        lambda: attention(Q, K, K, out=(array(2, 4, 5, 16), array(2, 4, 5))),
        ArgumentError,
        "expected one tensor as out but got a pair; return_lse=True takes (o, lse)",
    ),
    (
        lambda: attention(Q, K, K, return_lse=True, out=array(2, 4, 5, 16)),
        ArgumentError,
        "expected out to be a pair (o, lse) with return_lse but got ndarray",
    ),
    (
        lambda: attention(Q, K, K, return_lse=True, out=(array(2, 4, 5, 16), array(2, 4, 6))),
        ArgumentError,
        "expected shape [2, 4, 5] of 'lse' but got [2, 4, 6]",
    ),
    (
        lambda: attention(
            Q, K, K, return_lse=True, out=(array(2, 4, 5, 16), array(2, 4, 10)[:, :, :5])
        ),
        ArgumentError,
        "expected a contiguous 'lse' but got strides [40, 10, 1]",
    ),
    (lambda: window(left=1.5), ArgumentError, "expected an integer left but got 1.5"),
    (lambda: sink("4"), ArgumentError, "expected an integer count but got '4'"),
    (lambda: affine_set(3), ArgumentError, "expected the text of an integer set but got 3"),
    (
        lambda: window(left=-1),
        ArgumentError,
        "expected left between 0 and 2147483648 but got -1",
    ),
    (
        lambda: window(right=(1 << 31) + 1),
        ArgumentError,
        "expected right between 0 and 2147483648 but got 2147483649",
    ),
    (
        lambda: sink(-2),
        ArgumentError,
        "expected count between 0 and 2147483648 but got -2",
    ),
    (
        lambda: affine_set("(p, k) : (p >= k"),
        ArgumentError,
        'expected an integer set such as "(p, k)[nq, nk] : (p - k >= 0)" but got',
    ),
    (
        lambda: affine_set("(p)[nq, nk] : (p >= 0)"),
        ArgumentError,
        "expected an affine_set over the 2 dimensions (p, k) and 2 to 26 symbols [nq, nk, ...] but got 1 dimensions",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_m": 5000}),
        UnsupportedError,
        "no schedule with tile_m = 5000 fits: expected schedule field 'tile_m' between 1 and 1024 but got 5000",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_m": 8, "tile_n": 16, "depth": 2}),
        ArgumentError,
        "expected schedule fields tile_m, tile_n, stages, dot_type, pack, splits, min_split_tiles, dq_tile_m, algorithm, mapping but got depth",
    ),
    (
        lambda: attention(Q, K, K, schedule=[]),
        ArgumentError,
        "expected schedule to be a mapping, a text or None but got list",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_n": 16, "hopper": 3}),
        ArgumentError,
        "expected schedule field hopper to be a mapping or a text in <> but got 3",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_n": 16, "hopper": {"along": "head"}}),
        ArgumentError,
        "expected hopper field consumers but got along",
    ),
    (
        lambda: attention(Q, K, K, schedule="tile_n = 16, mapping = hopper<consumers = 2, depth = 2>"),
        ArgumentError,
        "expected hopper fields consumers, cooperative, along, registers, producer_registers, rescale_threshold, l2_head_group, blocks_per_sm, small_blocks_per_sm, q_stages, lazy_rescale, dynamic_scheduler, dq_reduce_stages, compact_kv, prefetch_kib_per_sm, q_register_columns but got depth",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_n": 16, "hopper": {"consumers": "two"}}),
        ArgumentError,
        "expected an integer as hopper field consumers but got 'two'",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_n": 16, "hopper": {"consumers": 2}}),
        UnsupportedError,
        "expected mapping cpu on the CPU but got hopper",
    ),
    (
        lambda: compile(
            head_dim=64, chip="sm_90a", rows="strided", schedule={"tile_n": 64, "hopper": {"consumers": 2}}
        ),
        UnsupportedError,
        "expected rows of q that begin at multiples of 16 bytes, which tensor copies require",
    ),
    (
        lambda: attention(Q, K, K, schedule="tile_m = 8, tile_n = wide"),
        ArgumentError,
        "expected an integer as schedule field tile_n but got 'wide'",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_m": 8, "tile_n": 16, "warps": 4}),
        ArgumentError,
        "dq_tile_m, algorithm, mapping but got warps; warps is now mapping = mma_sync<warps = ...>",
    ),
    (
        lambda: attention(Q, K, K, schedule={"tile_m": 8, "tile_n": 4096}),
        FlashAttnError,
        "expected schedule field 'tile_n' between 1 and 1024 but got 4096",
    ),
    (
        lambda: compile(head_dim=0),
        ArgumentError,
        "expected head_dim to be an integer of at least 1 but got 0",
    ),
    (
        lambda: compile(head_dim=16, value_dim="8"),
        ArgumentError,
        "expected value_dim to be an integer of at least 1 but got '8'",
    ),
    (
        lambda: compile(head_dim=16, dtype="f64"),
        UnsupportedError,
        "expected dtype f16, bf16, f32, f8E4M3FN or f8E5M2 but got f64",
    ),
    (
        lambda: compile(head_dim=16, rows="packed"),
        ArgumentError,
        "expected rows dense, aligned, strided but got 'packed'",
    ),
    (
        lambda: compile(head_dim=20, chip="sm_90"),
        UnsupportedError,
        "expected D to be a multiple of 8 up to 256 but got 20",
    ),
    (
        lambda: compile(head_dim=16, chip="sm_70"),
        FlashAttnError,
        "but got 'sm_70'",
    ),
    (
        lambda: compile(head_dim=16, chip="gfx90a"),
        FlashAttnError,
        "'sm_90', 'sm_90a', 'sm_100'",
    ),
    (
        lambda: compile(head_dim=16, chip="cpu").ptx,
        UnsupportedError,
        "expected a kernel for a GPU but got one for cpu",
    ),
    (
        lambda: compile(head_dim=16, chip="cpu").ir("cubin"),
        ArgumentError,
        "expected one of the stages mlir, schedule, tiled, lowered but got 'cubin'",
    ),
    (
        lambda: launch(*(array(1, 1, 2, d) for d in (32, 32, 16, 16))),
        ArgumentError,
        "expected D to be 16, as compiled, but got 32",
    ),
    (
        lambda: compile(head_dim=16, queries=0),
        ArgumentError,
        "expected queries to be an integer of at least 1 but got 0",
    ),
    (
        lambda: launch(*[array(1, 1, 2, 16)] * 3, array(1, 1, 2, 16), queries=3),
        ArgumentError,
        "expected Nq to be 3, as compiled, but got 2",
    ),
    (
        lambda: launch(Q, K, K, array(2, 4, 5, 16), dtype="f16"),
        ArgumentError,
        "expected element type f16, as compiled, but got f32",
    ),
    (
        lambda: launch(Q, K, K, array(2, 4, 5, 16), return_lse=True),
        ArgumentError,
        "expected lse for a kernel with return_lse but got None",
    ),
    (
        lambda: launch(Q, K, K, array(2, 4, 5, 16), array(2, 4, 5)),
        ArgumentError,
        "expected no lse for a kernel without return_lse but got one",
    ),
    (
        lambda: launch(array(2, 5, 4, 16).swapaxes(1, 2), K, K, array(2, 4, 5, 16)),
        ArgumentError,
        "expected dense rows, as compiled, but got strided rows",
    ),
]


class ErrorsTest(unittest.TestCase):
    def test_messages(self):
        for number, (call, kind, message) in enumerate(CASES):
            with self.subTest(number=number, message=message):
                with self.assertRaises(kind) as caught:
                    call()
                self.assertIn(message, str(caught.exception))
                self.assertIsInstance(caught.exception, FlashAttnError)

    def test_kinds_that_python_has(self):
        with self.assertRaises(ValueError):
            attention(Q, K, K, align="left")
        with self.assertRaises(TypeError):
            attention(Q, K, K, is_causal=True)

    def test_outputs_between_other_tensors(self):
        """What lies in the same array without sharing an element is right, through a plan too."""
        generator = numpy.random.default_rng(0)
        packed = generator.standard_normal((2, 7, 4, 3, 16), numpy.float32)
        q, k, v, o = (packed[:, :, i].transpose(0, 2, 1, 3) for i in range(4))
        before = packed.copy()
        expected = attention(q.copy(), k.copy(), v.copy())
        for _ in range(2):
            o[...] = 0
            self.assertIs(attention(q, k, v, out=o), o)
            numpy.testing.assert_array_equal(o, expected)
        numpy.testing.assert_array_equal(packed[:, :, :3], before[:, :, :3])
        heads = generator.standard_normal((2, 4, 7, 16), numpy.float32)
        expected = attention(heads[:, ::2].copy(), k[:, :1].copy(), v[:, :1].copy())
        attention(heads[:, ::2], k[:, :1], v[:, :1], out=heads[:, 1::2])
        numpy.testing.assert_array_equal(heads[:, 1::2], expected)
        with self.assertRaisesRegex(ArgumentError, "share no memory with argument 0"):
            attention(heads[:, :2], k[:, :1], v[:, :1], out=heads[:, 1:3])

    def test_numbers_are_no_tensors(self):
        """Also where what else there is would find a plan."""
        attention(Q, Q, Q)
        for given in ((Q, 3, Q), (Q, Q, 3)):
            with self.assertRaisesRegex(ArgumentError, "to be an array of numpy, a tensor of torch"):
                attention(*given, out=array(*Q.shape))

    def test_outputs_are_checked_where_a_plan_is_found(self):
        out = array(*Q.shape)
        kernel = compile(head_dim=16, chip="cpu", dtype="f32")
        for target in (out, SELF, out):
            for call in (
                lambda: attention(SELF, K, K, out=target),
                lambda: kernel.launch(SELF, K, K, target),
            ):
                if target is out:
                    call()
                    continue
                with self.assertRaisesRegex(ArgumentError, "share no memory with argument 0"):
                    call()

    def run_python(self, script, **environment):
        """What it prints."""
        command, environment = [sys.executable, "-c", script], {**os.environ, **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout

    def test_no_library(self):
        script = "import flashattn\ntry: flashattn.compile(head_dim=16)\nexcept flashattn.LibraryError as e: print(e)"
        text = self.run_python(script, FLASHATTN_LIBRARY="/nowhere/libFlashAttnC.so")
        self.assertIn("expected libFlashAttnC.so in /nowhere/libFlashAttnC.so but found none", text)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "libFlashAttnC.so")
            path.write_text("not a library")
            text = self.run_python(script, FLASHATTN_LIBRARY=str(path))
        self.assertIn(f"cannot load {path}", text)
        self.assertNotIn("LLVM", text)
        text = _library._explain_need("libMLIR.so.22.1: cannot open shared object file")
        self.assertIn("it needs the shared libraries of LLVM and MLIR 22.1 (Debian", text)
        text = self.run_python(script, FLASHATTN_LIBRARY="libc.so.6")
        self.assertIn("expected libFlashAttnC.so in libc.so.6 but found none", text)

    def test_no_device(self):
        script = (
            "import flashattn\n"
            "try: flashattn.compile(head_dim=16, device=0)\n"
            "except flashattn.DeviceError as e: print(e)"
        )
        text = self.run_python(script, FLASHATTN_CUDA_DRIVER="/nowhere/libcuda.so")
        self.assertIn("cannot open the CUDA driver library", text)

    def test_device_tensors_without_a_device(self):
        script = (
            "import flashattn\n"
            "class A: __cuda_array_interface__ = dict(shape=(1, 1, 1, 16), typestr='<f2', data=(4096, False), version=3)\n"
            "try: flashattn.attention(A(), A(), A(), out=A())\n"
            "except flashattn.DeviceError as e: print(e)\n"
            "try: flashattn.attention(A(), A(), A())\n"
            "except flashattn.UnsupportedError as e: print(e)"
        )
        text = self.run_python(script, FLASHATTN_CUDA_DRIVER="/nowhere/libcuda.so")
        self.assertIn("cannot open the CUDA driver library", text)
        self.assertIn("expected out= for 'o', because tensors of type A cannot be allocated here, but got None", text)


if __name__ == "__main__":
    unittest.main()
