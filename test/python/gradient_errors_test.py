# What is refused of a call for gradients, with the message and the kind of exception.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import inspect
import unittest

import numpy
from errors_test import K, Q, array
from flashattn import (
    ArgumentError,
    FlashAttnError,
    KeywordError,
    TraceError,
    UnsupportedError,
    _features,
    attention,
    attention_backward,
    causal,
)
from operand_errors_test import Foreign, OnCUDA

LSE, BIAS, SINKS = array(2, 4, 5), array(4, 5, 7), array(4)
DV = array(2, 2, 7, 16)
HALVES = tuple(x.astype(numpy.float16) for x in (Q, K, K))


def call(q=Q, k=K, v=K, o=Q, lse=LSE, do=Q, **options):
    return lambda: attention_backward(q, k, v, o, lse, do, **options)


def read_only(*shape):
    found = array(*shape)
    found.flags.writeable = False
    return found


def like(*tensors):
    return tuple(numpy.empty_like(x) for x in tensors)


# The call, the exception, its message.
CASES = [
    (call(q=array(2, 5, 16)), ArgumentError, "expected 'q' of rank 4 but got rank 3"),
    (
        call(k=array(2, 2, 7, 8)),
        ArgumentError,
        "expected head dimension of 'k' to be 16 as in 'q' but got 8",
    ),
    (call(o=array(2, 4, 16)), ArgumentError, "expected 'o' of rank 4 but got rank 3"),
    (
        call(o=array(2, 4, 6, 16)),
        ArgumentError,
        "expected query length of 'o' to be 5 as in 'q' but got 6",
    ),
    (
        call(o=array(2, 4, 5, 8)),
        ArgumentError,
        "expected head dimension of 'o' to be 16 as in 'v' but got 8",
    ),
    (
        call(o=Q.astype(numpy.float16)),
        ArgumentError,
        "expected 'o' with element type f32 as in 'q' but got f16",
    ),
    (
        call(*HALVES, o=Q.astype(numpy.uint16), do=HALVES[0], dtype="bf16"),
        ArgumentError,
        "expected 'o' with element type f16 as in 'q' or f32 but got bf16",
    ),
    (
        call(*HALVES, o=Q, do=Q),
        ArgumentError,
        "expected 'd_o' with element type f16 as in 'q' but got f32",
    ),
    (call(o=None), ArgumentError, "expected 'o' to be an array of numpy, a tensor of torch"),
    (
        call(o=OnCUDA("<f4", 2, 4, 5, 16)),
        ArgumentError,
        "expected 'o' on the CPU as 'q' but got cuda:0",
    ),
    (
        call(lse=None),
        ArgumentError,
        "expected 'lse' to be an array of numpy, a tensor of torch, or an object with",
    ),
    (call(lse=array(2, 4, 5, 1)), ArgumentError, "expected 'lse' of rank 3 but got rank 4"),
    (
        call(lse=array(2, 5, 4)),
        ArgumentError,
        "expected head count of 'lse' to be 4 as in 'q' but got 5",
    ),
    (
        call(lse=LSE.astype(numpy.float64)),
        ArgumentError,
        "expected 'lse' with element type f32 but got float64; convert it",
    ),
    (
        call(lse=array(2, 5, 4).swapaxes(1, 2)),
        ArgumentError,
        "expected unit stride in the last dimension of 'lse' but got 4",
    ),
    (
        call(lse=array(2, 4, 10)[:, :, :5]),
        ArgumentError,
        "expected a contiguous 'lse' but got strides [40, 10, 1]",
    ),
    (
        call(do=array(2, 2, 5, 16)),
        ArgumentError,
        "expected head count of 'd_o' to be 4 as in 'q' but got 2",
    ),
    (
        call(do=Q.astype(numpy.float16)),
        ArgumentError,
        "expected 'd_o' with element type f32 as in 'q' but got f16",
    ),
    (
        call(do=numpy.broadcast_to(array(1), Q.shape)),
        ArgumentError,
        "expected unit stride in the last dimension of 'd_o' but got 0",
    ),
    (call(d_lse=array(4, 5)), ArgumentError, "expected 'd_lse' of rank 3 but got rank 2"),
    (
        call(d_lse=array(2, 4, 6)),
        ArgumentError,
        "expected query length of 'd_lse' to be 5 as in 'q' but got 6",
    ),
    (
        call(d_lse=numpy.broadcast_to(array(5), (2, 4, 5))),
        ArgumentError,
        "expected a contiguous 'd_lse' but got strides [0, 0, 1]",
    ),
    (
        call(bias=array(6, 7)),
        ArgumentError,
        "expected query length of 'bias' to be 1 or 5 but got 6",
    ),
    (
        call(bias=numpy.broadcast_to(array(5, 1), (5, 7)), return_d_bias=True),
        ArgumentError,
        "expected unit stride in the last dimension of 'bias' but got 0",
    ),
    (
        call(return_d_bias=True),
        ArgumentError,
        "expected bias for return_d_bias but got None",
    ),
    (
        call(bias=BIAS, return_d_sink_logits=True),
        ArgumentError,
        "expected sink_logits for return_d_sink_logits but got None",
    ),
    (
        call(out=array(2, 4, 5, 16)),
        ArgumentError,
        "expected out to be a tuple (dq, dk, dv) but got ndarray",
    ),
    (
        call(out=like(Q, K)),
        ArgumentError,
        "expected out to be a tuple (dq, dk, dv) but got 2 elements",
    ),
    (
        call(bias=BIAS, return_d_bias=True, out=like(Q, K, K)),
        ArgumentError,
        "expected out to be a tuple (dq, dk, dv, d_bias) but got 3 elements",
    ),
    (
        call(out=like(Q, Q, K)),
        ArgumentError,
        "expected shape [2, 2, 7, 16] of 'dk' but got [2, 4, 5, 16]",
    ),
    (
        call(out=(*like(Q, K), K.astype(numpy.float16))),
        ArgumentError,
        "expected 'dv' with element type f32 but got f16",
    ),
    (
        call(out=(*like(Q, K), read_only(2, 2, 7, 16))),
        ArgumentError,
        "expected 'dv' to be writable but got a read-only tensor",
    ),
    (
        call(bias=BIAS, return_d_bias=True, out=like(Q, K, K, array(1, 4, 5, 7))),
        ArgumentError,
        "expected shape [4, 5, 7] of 'd_bias' but got [1, 4, 5, 7]",
    ),
    (
        call(bias=BIAS, return_d_bias=True, out=like(Q, K, K, BIAS.astype(numpy.float16))),
        ArgumentError,
        "expected 'd_bias' with element type f32 but got f16",
    ),
    (
        call(sink_logits=SINKS, return_d_sink_logits=True, out=(*like(Q, K, K), array(8)[::2])),
        ArgumentError,
        "expected unit stride in the last dimension of 'd_sink_logits' but got 2",
    ),
    (
        call(out=(*like(Q), DV, DV)),
        ArgumentError,
        "('dv') to share no memory with argument 7 ('dk')",
    ),
    (
        call(out=(Q, *like(K, K))),
        ArgumentError,
        "expected the output argument 6 ('dq') to share no memory with argument",
    ),
    (
        call(*(Foreign(x.astype(numpy.float64)) for x in (Q, K, K, Q, LSE, Q))),
        UnsupportedError,
        "expected 'q' with element type f16, bf16 or f32 but got f64",
    ),
    (
        call(mask="causal"),
        ArgumentError,
        "expected mask to be a flashattn mask or None but got str",
    ),
    (call(align="left"), ArgumentError, "expected align top_left or bottom_right but got 'left'"),
    (call(scale=-1), ArgumentError, "expected a finite positive scale but got -1.0"),
    (call(softcap=0), ArgumentError, "expected a finite positive softcap but got 0.0"),
    (call(dtype="f16"), ArgumentError, "expected dtype bf16 or None but got 'f16'"),
    (call(stream="main"), ArgumentError, "expected a CUDA stream or its address but got str"),
    (call(score_mod=lambda s: s), TraceError, "expected score_mod to take (score, b, h, p, k)"),
    (
        call(return_lse=True),
        KeywordError,
        "attention_backward() got an unexpected keyword argument 'return_lse'",
    ),
    (
        call(dout=Q),
        KeywordError,
        "unexpected keyword argument 'dout'; expected do, the sixth argument,",
    ),
]


class GradientErrorsTest(unittest.TestCase):
    def test_messages(self):
        for number, (run, kind, message) in enumerate(CASES):
            with self.subTest(number=number, message=message):
                with self.assertRaises(kind) as caught:
                    run()
                self.assertIn(message, str(caught.exception))
                self.assertIsInstance(caught.exception, FlashAttnError)

    def test_keywords_are_the_operands_of_the_op(self):
        """And what shapes the scores is called as it is in attention."""
        parameters = inspect.signature(attention_backward).parameters
        for role in _features.roles("attention_backward"):
            name = "offset" if role.name == "offsets" else role.name
            self.assertIs(parameters[name].default, None)
            self.assertIn(name, attention_backward.__doc__)
        of_forward = {"return_lse", "page_table", "leftpad_k", "k_scale", "v_scale", "max_seqlen_q", "invariant"}
        forward = set(inspect.signature(attention).parameters) - of_forward
        self.assertEqual(forward - set(parameters), set())
        for name in parameters:
            self.assertIn(
                name, attention_backward.__doc__.replace("**unknown", "unknown") + "unknown"
            )

    def test_a_refused_call_writes_nothing(self):
        outs = tuple(numpy.full(x.shape, numpy.nan, numpy.float32) for x in (Q, K, K))
        with self.assertRaises(ArgumentError):
            attention_backward(Q, K, K, Q, LSE, Q, mask=causal, out=(*outs[:2], outs[1]))
        self.assertTrue(all(numpy.isnan(out).all() for out in outs))


if __name__ == "__main__":
    unittest.main()
