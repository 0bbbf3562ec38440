# What is refused of the operands beyond q, k and v, with the message and the kind of exception.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import inspect
import unittest

import numpy
from errors_test import K, Q, array
from flashattn import (
    ArgumentError,
    FlashAttnError,
    TraceError,
    UnsupportedError,
    _features,
    affine_set,
    attention,
    compile,
    window,
)


class OnCUDA:
    """A tensor of any shape that says it is on a GPU."""

    def __init__(self, typestr, *shape):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (4096, False),
            "version": 3,
        }


INTERFACE = {"shape": (2, 4, 5, 16), "typestr": "<f2", "data": (4096, False), "version": 3}


class Shown:
    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


class Exchanged:
    def __init__(self, device, capsule):
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        return self.capsule


class Foreign:
    """An array of another library on the CPU."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


def with_operands(**operands):
    return lambda: attention(Q, K, K, **operands)


def compiled(launched=(), **options):
    """A launch of a kernel that was compiled with `options`."""
    kernel = compile(head_dim=16, chip="cpu", dtype="f32", **options)
    kernel.launch(Q, K, K, array(2, 4, 5, 16), **dict(launched))


# The call, the exception, its message; scores are [2, 4, 5, 7].
CASES = [
    (
        with_operands(bias=array(1, 1, 1, 5, 7)),
        ArgumentError,
        "expected 'bias' of rank 4 at most but got rank 5",
    ),
    (
        with_operands(bias=array(3, 1, 5, 7)),
        ArgumentError,
        "expected batch size of 'bias' to be 1 or 2 but got 3",
    ),
    (
        with_operands(bias=array(2, 5, 7)),
        ArgumentError,
        "expected head count of 'bias' to be 1 or 4 but got 2",
    ),
    (
        with_operands(bias=array(6, 7)),
        ArgumentError,
        "expected query length of 'bias' to be 1 or 5 but got 6",
    ),
    (
        with_operands(bias=array(5, 6)),
        ArgumentError,
        "expected key length of 'bias' to be 1 or 7 but got 6",
    ),
    (
        with_operands(bias=array(5, 0)),
        ArgumentError,
        "expected key length of 'bias' to be 1 or 7 but got 0",
    ),
    (
        with_operands(bias=array(5, 7, dtype=numpy.float64)),
        UnsupportedError,
        "expected 'bias' with element type f16, bf16 or f32 but got float64; convert it, as with",
    ),
    (
        with_operands(bias=array(5, 7, dtype=bool)),
        UnsupportedError,
        "expected 'bias' with element type f16, bf16 or f32 but got i1",
    ),
    (
        with_operands(bias=array(5, 14)[:, ::2]),
        ArgumentError,
        "expected unit stride in the last dimension of 'bias' but got 2",
    ),
    (
        with_operands(bias=array(5, 7)[::-1]),
        ArgumentError,
        "expected strides of at least 0 of 'bias' but got (-7, 1)",
    ),
    (
        with_operands(bias=1.5),
        ArgumentError,
        "expected 'bias' to be an array of numpy, a tensor of torch",
    ),
    (
        with_operands(bias=OnCUDA("<f4", 5, 7)),
        ArgumentError,
        "expected 'bias' on the CPU as 'q' but got cuda:0",
    ),
    (
        with_operands(attn_mask=array(5, 7)),
        ArgumentError,
        "expected 'attn_mask' with element type bool but got f32; bias= takes numbers",
    ),
    (
        with_operands(attn_mask=array(5, 7, dtype=numpy.int8)),
        ArgumentError,
        "expected 'attn_mask' with element type bool but got i8",
    ),
    (
        with_operands(attn_mask=array(2, 5, dtype=bool)),
        ArgumentError,
        "expected query length of 'attn_mask' to be 1 or 5 but got 2",
    ),
    (
        with_operands(attn_mask=array(4, 4, 5, 7, dtype=bool)),
        ArgumentError,
        "expected batch size of 'attn_mask' to be 1 or 2 but got 4",
    ),
    (
        with_operands(attn_mask=array(7, 5, dtype=bool).T),
        ArgumentError,
        "expected unit stride in the last dimension of 'attn_mask' but got 5",
    ),
    (
        with_operands(attn_mask=OnCUDA("|b1", 5, 7)),
        ArgumentError,
        "expected 'attn_mask' on the CPU as 'q' but got cuda:0",
    ),
    (
        with_operands(sink_logits=array(1, 4)),
        ArgumentError,
        "expected 'sink_logits' of rank 1 but got rank 2",
    ),
    (
        with_operands(sink_logits=array(2)),
        ArgumentError,
        "expected head count of 'sink_logits' to be 4 as in 'q' but got 2",
    ),
    (
        with_operands(sink_logits=array(4, dtype=complex)),
        ArgumentError,
        "expected 'sink_logits' with element type f32 but got complex128; convert it, as with "
        '.astype("float32") or .to(torch.float32)',
    ),
    (
        with_operands(sink_logits=array(8)[::2]),
        ArgumentError,
        "expected unit stride in the last dimension of 'sink_logits' but got 2",
    ),
    (
        with_operands(kv_len=7),
        ArgumentError,
        "expected 'kv_len' to be an array of numpy, a tensor of torch",
    ),
    (
        with_operands(kv_len=array(dtype=numpy.int32)),
        ArgumentError,
        "expected 'kv_len' of rank 1 but got rank 0",
    ),
    (
        with_operands(kv_len=array(4, dtype=numpy.int32)),
        ArgumentError,
        "expected batch size of 'kv_len' to be 2 as in 'q' but got 4",
    ),
    (
        with_operands(kv_len=numpy.array([3, 1 << 31])),
        ArgumentError,
        "expected 'kv_len' from -2147483648 to 2147483647 but got 3 to 2147483648",
    ),
    (
        with_operands(kv_len=[3, -1 << 31, 1]),
        ArgumentError,
        "expected batch size of 'kv_len' to be 2 as in 'q' but got 3",
    ),
    (
        with_operands(kv_len=[2.0, 3.0]),
        ArgumentError,
        "expected 'kv_len' with element type i32 but got float64; convert it, as with .astype(",
    ),
    (
        with_operands(kv_len=[[1], [2, 3]]),
        ArgumentError,
        "expected 'kv_len' to be an array but got lists of different lengths",
    ),
    (
        with_operands(attn_mask=[1, 0, 1, 1, 0, 1, 1]),
        ArgumentError,
        "expected 'attn_mask' with element type bool but got int64",
    ),
    (
        with_operands(kv_len=Foreign(array(2, dtype=numpy.int64))),
        ArgumentError,
        "expected 'kv_len' with element type i32 but got i64; convert it, as with "
        '.astype("int32") or .to(torch.int32)',
    ),
    (
        with_operands(kv_len=OnCUDA("<i4", 2)),
        ArgumentError,
        "expected 'kv_len' on the CPU as 'q' but got cuda:0",
    ),
    (with_operands(offset=1.5), ArgumentError, "expected an integer offset but got 1.5"),
    (with_operands(offset=True), ArgumentError, "expected an integer offset but got True"),
    (
        with_operands(offset=array(2, 2, dtype=numpy.int32)),
        ArgumentError,
        "expected 'offsets' of rank 1 but got rank 2",
    ),
    (
        with_operands(offset=1 << 31),
        ArgumentError,
        "expected an offset from -2147483648 to 2147483647 but got 2147483648",
    ),
    (with_operands(softcap=0), ArgumentError, "expected a finite positive softcap but got 0.0"),
    (
        with_operands(softcap=float("inf")),
        ArgumentError,
        "expected a finite positive softcap but got inf",
    ),
    (
        with_operands(softcap=1e-300),
        ArgumentError,
        "expected softcap from 1e-18 to 1e18 but got 1e-300",
    ),
    (with_operands(scale=1e300), ArgumentError, "expected scale from 1e-18 to 1e18 but got 1e+300"),
    (
        with_operands(softcap=1j),
        ArgumentError,
        "expected softcap to be a number or None but got 1j",
    ),
    (
        with_operands(attn_mask=True),
        ArgumentError,
        "expected 'attn_mask' to be an array of numpy, a tensor of torch",
    ),
    (
        with_operands(bias=array(5, 7).astype(">f4")),
        ArgumentError,
        "expected 'bias' in the byte order of this machine but got >f4",
    ),
    (
        with_operands(kv_len=array(2, dtype=bool)),
        ArgumentError,
        "expected 'kv_len' with element type i32 but got i1",
    ),
    (
        with_operands(kv_len=array(2, dtype=numpy.int32)[::-1]),
        ArgumentError,
        "expected unit stride in the last dimension of 'kv_len' but got -1",
    ),
    (with_operands(offset="3"), ArgumentError, "expected an integer offset but got '3'"),
    (
        with_operands(bias=array(1, 4, 1, 7), schedule={"tile_m": 16, "tile_n": 16, "pack": 2}),
        UnsupportedError,
        "expected pack 1 with bias but got 2",
    ),
    (
        with_operands(schedule={"tile_m": 16, "tile_n": 16, "splits": 257}),
        FlashAttnError,
        "expected schedule field 'splits' between 1 and 256 but got 257",
    ),
    (
        with_operands(schedule={"tile_m": 1, "tile_n": 16}),
        UnsupportedError,
        "expected tile_m to be at least 2 on the CPU but got 1",
    ),
    (
        lambda: compiled({"offset": 1 << 40}, offset=True),
        ArgumentError,
        "expected an offset from -2147483648 to 2147483647 but got 1099511627776",
    ),
    (
        with_operands(softcap="50 K"),
        ArgumentError,
        "expected softcap to be a number or None but got '50 K'",
    ),
    (
        with_operands(score_mod=3),
        TraceError,
        "expected score_mod to be a function or None but got int",
    ),
    (
        lambda: compile(head_dim=16, bias="f32"),
        ArgumentError,
        "expected bias to be a pair (dtype, shape) but got 'f32'",
    ),
    (
        lambda: compile(head_dim=16, bias=("f64", (1, 1, 1, 1))),
        UnsupportedError,
        "expected bias with dtype f16, bf16 or f32 but got f64",
    ),
    (
        lambda: compile(head_dim=16, bias=("f32", (1, 1, None))),
        ArgumentError,
        "expected a shape of 4 sizes, each 1 or None, for bias but got (1, 1, None)",
    ),
    (
        lambda: compile(head_dim=16, attn_mask=(1, 1, 5, None)),
        ArgumentError,
        "expected a shape of 4 sizes, each 1 or None, for attn_mask but got (1, 1, 5, None)",
    ),
    (
        lambda: compiled(kv_len=True),
        ArgumentError,
        "expected kv_len, with which the kernel was compiled, but got None",
    ),
    (
        lambda: compiled({"offset": 3}),
        ArgumentError,
        "expected no offset, without which the kernel was compiled, but got one",
    ),
    (
        lambda: compiled(
            {"bias": array(5, 7, dtype=numpy.float16)}, bias=("f32", (1, 1, None, None))
        ),
        ArgumentError,
        "expected 'bias' with element type f32, as compiled, but got f16",
    ),
    (
        lambda: compiled({"bias": array(4, 5, 7)}, bias=("f32", (1, 1, None, None))),
        ArgumentError,
        "expected size 1 in dimension 1 of argument 4 ('bias') but got 4",
    ),
    (
        lambda: compiled({"bias": array(1, 7)}, bias=("f32", (1, 1, None, None))),
        ArgumentError,
        "expected query length of argument 4 ('bias') to be 5 as in argument 0 ('q') but got 1",
    ),
    # Numbers that no float holds, or that are longer than Python prints.
    (
        lambda: attention(Q, K, K, scale=10**400),
        ArgumentError,
        "expected scale from 1e-18 to 1e18 but got an integer of 1329 bits",
    ),
    (
        lambda: attention(Q, K, K, scale=-(10**400)),
        ArgumentError,
        "expected scale from 1e-18 to 1e18 but got an integer of 1329 bits",
    ),
    (
        with_operands(softcap=10**5000),
        ArgumentError,
        "expected softcap from 1e-18 to 1e18 but got an integer of 16610 bits",
    ),
    (
        with_operands(offset=10**5000),
        ArgumentError,
        "expected an offset from -2147483648 to 2147483647 but got an integer of 16610 bits",
    ),
    (
        lambda: window(left=10**5000),
        ArgumentError,
        "expected left between 0 and 2147483648 but got an integer of 16610 bits",
    ),
    (
        lambda: compile(head_dim=-(10**5000)),
        ArgumentError,
        "expected head_dim to be an integer of at least 1 but got an integer of 16610 bits",
    ),
    (
        lambda: compile(head_dim=16, value_dim=10**5000),
        ArgumentError,
        "expected value_dim below 2147483648 but got an integer of 16610 bits",
    ),
    # Texts that are none.
    (
        lambda: affine_set("(p, k)[nq, nk] : (p - k >= \ud800)"),
        ArgumentError,
        "expected an integer set to be Unicode but got a lone surrogate: '(p, k)[nq, nk] : (p - k >= "
        "\\ud800)'",
    ),
    (
        lambda: compile(head_dim=16, schedule="tile_m = \udfff"),
        ArgumentError,
        "expected schedule to be Unicode but got a lone surrogate: 'tile_m = \\udfff'",
    ),
    (
        lambda: compile(head_dim=16, chip="sm_80\0"),
        ArgumentError,
        "expected chip without zero bytes but got 'sm_80\\x00'",
    ),
    # What says that it is a tensor.
    *(
        (
            lambda interface=interface: attention(Shown(interface), K, K),
            ArgumentError,
            "expected 'q' to have a typestr, shape, strides and data in its __cuda_array_interface__ "
            f"but got {interface!r}",
        )
        for interface in (
            {**INTERFACE, "typestr": "junk"},
            {**INTERFACE, "typestr": "|V0"},
            {**INTERFACE, "typestr": "f4,(f4"},
            {**INTERFACE, "shape": (2, -4, 5, 16)},
            {**INTERFACE, "shape": (2, 4, 5, "16")},
            {**INTERFACE, "strides": (64,)},
            {**INTERFACE, "data": 4096},
            {**INTERFACE, "data": ("4096", False)},
            {"version": 3},
            None,
        )
    ),
    (
        lambda: attention(Shown({**INTERFACE, "typestr": ">f2"}), K, K),
        ArgumentError,
        "expected 'q' in the byte order of this machine but got >f2",
    ),
    (
        lambda: attention(Q, Exchanged((1, 0), "no capsule"), K),
        ArgumentError,
        "expected 'k' to return a DLPack capsule but got 'no capsule'",
    ),
    (
        lambda: attention(Q, Exchanged("here", None), K),
        ArgumentError,
        "expected 'k' to return its DLPack device, a type and a number, but got another value",
    ),
]


class OperandErrorsTest(unittest.TestCase):
    def test_keywords_are_the_operands_of_the_op(self):
        keywords = [
            name
            for name, parameter in inspect.signature(attention).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        ]
        # The keyword offset is one of two operands.
        names = [role.name for role in _features.roles() if role.name != "offsets"]
        self.assertIn("kv_len", names)
        self.assertEqual([name for name in keywords if name in names], names)
        for name in names:
            self.assertIn(f"\n      {name}: ", attention.__doc__)
        kernel = compile(head_dim=16, chip="cpu", dtype="f32")
        for call in (
            lambda: compile(head_dim=16, biases=None),
            lambda: kernel.launch(Q, K, K, array(2, 4, 5, 16), biases=array(5, 7)),
        ):
            with self.assertRaisesRegex(TypeError, "got an unexpected keyword argument 'biases'"):
                call()

    def test_messages(self):
        for number, (call, kind, message) in enumerate(CASES):
            with self.subTest(number=number, message=message):
                with self.assertRaises(kind) as caught:
                    call()
                self.assertIn(message, str(caught.exception))
                self.assertIsInstance(caught.exception, FlashAttnError)


if __name__ == "__main__":
    unittest.main()
