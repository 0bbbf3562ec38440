# What ONNX's Attention refuses, by flashattn.onnx: every message, with what was expected and what was found.
# REQUIRES: python-package, onnx
# RUN: %flashattn_python -W ignore %s

import os
import pathlib
import tempfile
import unittest
from unittest import mock

import ml_dtypes
import numpy
from flashattn import ArgumentError, DeviceError, LibraryError, UnsupportedError
from flashattn import onnx as fo
from onnx import helper

NAMES = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")


def zeros(*shape, dtype="float32"):
    return numpy.zeros(shape, dtype)


def lengths(*values):
    return numpy.array(values, "int64")


#: Q has 4 heads, K and V 2; 3 queries, 5 keys, 8 elements.
FEEDS = {"Q": zeros(2, 4, 3, 8), "K": zeros(2, 2, 5, 8), "V": zeros(2, 2, 5, 6)}
PACKED = {"Q": zeros(2, 3, 32), "K": zeros(2, 5, 16), "V": zeros(2, 5, 12)}
PAST = {"past_key": zeros(2, 2, 7, 8), "past_value": zeros(2, 2, 7, 6)}
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}


def attend(feeds, outputs=("Y",), domain="flashattn", **attributes):
    """The custom op's, whose attributes and missing inputs onnx's checker does not know."""
    inputs = [name if name in feeds else "" for name in NAMES]
    node = helper.make_node("Attention", inputs, outputs, domain=domain, **attributes)
    return fo.run_node(node, [feeds[name] for name in NAMES if name in feeds])


class ErrorsTest(unittest.TestCase):
    def refuses(self, message, changes=(), base=FEEDS, error=ArgumentError, **attributes):
        feeds = {**base, **dict(changes)}
        for name in [name for name, value in feeds.items() if value is None]:
            del feeds[name]
        with self.assertRaises(error) as raised:
            attend(feeds, **attributes)
        self.assertEqual(str(raised.exception), message)

    def test_attributes(self):
        for message, attributes in (
            ("expected is_causal 0 or 1 but got 2", {"is_causal": 2}),
            ("expected left_window_size of -1 or more but got -2", {"left_window_size": -2}),
            ("expected right_window_size of -1 or more but got -5", {"right_window_size": -5}),
            (
                "expected qk_matmul_output_mode from 0 to 3 but got 4",
                {"qk_matmul_output_mode": 4},
            ),
            (
                "expected softmax_precision 1 (float), 10 (float16), 11 (double) or 16 (bfloat16) but "
                "got 7",
                {"softmax_precision": 7},
            ),
            (
                "expected softmax_precision 1 (float), 10 (float16), 11 (double) or 16 (bfloat16) but "
                "got 4294967297",
                {"softmax_precision": (1 << 32) + 1},
            ),
            ("expected softcap 0 or from 1e-18 to 1e+18 but got -2", {"softcap": -2.0}),
            ("expected softcap 0 or from 1e-18 to 1e+18 but got nan", {"softcap": float("nan")}),
            ("expected scale from 1e-18 to 1e+18 but got 0", {"scale": 0.0}),
            ("expected scale from 1e-18 to 1e+18 but got -1", {"scale": -1.0}),
            ("expected attribute is_causal to be an int but got 0.5", {"is_causal": 0.5}),
            ("expected attribute scale to be a number but got 'much'", {"scale": "much"}),
            ("expected an attribute of Attention but got causal", {"causal": 1}),
        ):
            self.refuses(message, **attributes)

    def test_inputs(self):
        for name in NAMES[:3]:
            self.refuses(f"expected input {name} but got none", {name: None})
        self.refuses("expected Q of rank 3 or 4 but got 2", {"Q": zeros(3, 8)})
        self.refuses("expected Q of rank 3 or 4 but got 5", {"Q": zeros(1, 1, 1, 3, 8)})
        self.refuses("expected K of rank 4, as Q is, but got 3", {"K": zeros(2, 5, 8)})
        for dtype, name in (
            ("float64", "double"),
            ("int32", "int32"),
            ("uint8", "uint8"),
            (ml_dtypes.float8_e4m3fn, "float8e4m3fn"),
        ):
            self.refuses(
                f"expected Q of float16, bfloat16 or float but got {name}",
                {"Q": zeros(2, 4, 3, 8, dtype=dtype)},
                error=UnsupportedError,
            )
        self.refuses(
            "expected V of float, as Q is, but got float16",
            {"V": zeros(2, 2, 5, 6, dtype="float16")},
            error=UnsupportedError,
        )
        self.refuses(
            "expected V of float, as Q is, but got float8e5m2",
            {"V": zeros(2, 2, 5, 6, dtype=ml_dtypes.float8_e5m2)},
            error=UnsupportedError,
        )
        self.refuses(
            "expected past_value of float, as Q is, but got double",
            {**PAST, "past_value": zeros(2, 2, 7, 6, dtype="float64")},
            error=UnsupportedError,
        )
        node = helper.make_node("Attention", list("QKVabcdef"), ["Y"], domain="flashattn")
        with self.assertRaisesRegex(ArgumentError, "^expected at most 7 inputs but got 9$"):
            fo.run_node(node, [zeros(1)] * 9)

    def test_heads(self):
        self.refuses(
            "expected q_num_heads, as Q has rank 3, but got none", base=PACKED, kv_num_heads=2
        )
        self.refuses(
            "expected kv_num_heads, as K has rank 3, but got none", base=PACKED, q_num_heads=4
        )
        self.refuses(
            "expected q_num_heads of 1 or more but got 0", base=PACKED, **{**HEADS, "q_num_heads": 0}
        )
        self.refuses(
            "expected the hidden size of V to be a multiple of kv_num_heads 2 but got 13",
            {"V": zeros(2, 5, 13)},
            base=PACKED,
            **HEADS,
        )
        self.refuses(
            "expected kv_num_heads 2, the heads of K, or none but got 4", q_num_heads=4, kv_num_heads=4
        )
        self.refuses(
            "expected the heads of Q to be a multiple of the heads of K but got 3 and 2",
            {"Q": zeros(2, 3, 3, 8)},
        )
        self.refuses(
            "expected the heads of Q to be a multiple of the heads of K but got 4 and 0",
            {"K": zeros(2, 0, 5, 8), "V": zeros(2, 0, 5, 6)},
        )

    def test_sizes(self):
        for message, changes in (
            ("expected K of batch size 2, as Q has, but got 1", {"K": zeros(1, 2, 5, 8)}),
            ("expected V of batch size 2, as Q has, but got 3", {"V": zeros(3, 2, 5, 6)}),
            ("expected K of head size 8, as Q has, but got 7", {"K": zeros(2, 2, 5, 7)}),
            ("expected V of 2 heads, as K has, but got 4", {"V": zeros(2, 4, 5, 6)}),
            ("expected V of 5 keys, as K has, but got 6", {"V": zeros(2, 2, 6, 6)}),
            (
                "expected head sizes of 1 or more but got 8 of Q and 0 of V",
                {"V": zeros(2, 2, 5, 0)},
            ),
        ):
            self.refuses(message, changes)

    def test_caches(self):
        self.refuses(
            "expected past_key and past_value together but got past_key alone",
            {"past_key": PAST["past_key"]},
        )
        self.refuses(
            "expected past_key and past_value together but got past_value alone",
            {"past_value": PAST["past_value"]},
        )
        self.refuses(
            "expected past_key of rank 4 but got 3", {**PAST, "past_key": zeros(2, 7, 16)}
        )
        self.refuses(
            "expected past_key of shape [2, 2, past keys, 8] but got [2, 4, 7, 8]",
            {**PAST, "past_key": zeros(2, 4, 7, 8)},
        )
        self.refuses(
            "expected past_value of shape [2, 2, past keys, 6] but got [2, 2, 7, 8]",
            {**PAST, "past_value": zeros(2, 2, 7, 8)},
        )
        self.refuses(
            "expected past_value of 7 keys, as past_key has, but got 6",
            {**PAST, "past_value": zeros(2, 2, 6, 6)},
        )
        self.refuses(
            "expected nonpad_kv_seqlen or past_key but got both: the keys of a cache that is updated "
            "inside the operator are all valid",
            {**PAST, "nonpad_kv_seqlen": lengths(3, 3)},
        )
        self.refuses(
            "expected no present_key and present_value with nonpad_kv_seqlen but got them: the cache is "
            "updated outside of the operator",
            {"nonpad_kv_seqlen": lengths(3, 3)},
            outputs=("Y", "", "present_value"),
        )

    def test_lengths(self):
        for message, value in (
            ("expected nonpad_kv_seqlen of int64 but got int32", zeros(2, dtype="int32")),
            ("expected nonpad_kv_seqlen of shape [2] but got [3]", lengths(1, 1, 1)),
            ("expected nonpad_kv_seqlen of shape [2] but got [2, 1]", lengths(1, 1).reshape(2, 1)),
            (
                "expected nonpad_kv_seqlen of shape [2] but got rank 5",
                lengths(1, 1).reshape(2, 1, 1, 1, 1),
            ),
            (
                "expected nonpad_kv_seqlen from 0 to 5, the number of keys, but got 6 for batch 1",
                lengths(5, 6),
            ),
            (
                "expected nonpad_kv_seqlen from 0 to 5, the number of keys, but got -1 for batch 0",
                lengths(-1, 6),
            ),
        ):
            self.refuses(message, {"nonpad_kv_seqlen": value})
        self.refuses(
            "expected attn_mask over the 5 keys of nonpad_kv_seqlen for batch 1 but got 4",
            {"nonpad_kv_seqlen": lengths(4, 5), "attn_mask": zeros(3, 4)},
        )

    def test_masks(self):
        for dtype, name in (("int64", "int64"), ("float64", "double")):
            self.refuses(
                f"expected attn_mask of bool, float16, bfloat16 or float but got {name}",
                {"attn_mask": zeros(3, 5, dtype=dtype)},
                error=UnsupportedError,
            )
        for message, mask in (
            ("expected attn_mask of rank 1 to 4 but got 0", zeros()),
            ("expected attn_mask of rank 1 to 4 but got 5", zeros(1, 1, 1, 3, 5)),
            (
                "expected attn_mask that broadcasts to [2, 4, 3, 5] but got [2, 3, 5]",
                zeros(2, 3, 5),
            ),
            ("expected attn_mask over 5 keys at most but got 6", zeros(3, 6)),
            (
                "expected attn_mask with a last dimension of 5, the number of keys, but got 1, "
                "which opset versions interpret differently; expand attn_mask",
                zeros(3, 1),
            ),
        ):
            self.refuses(message, {"attn_mask": mask})

    def test_memory(self):
        make = numpy.empty

        def refuse(sizes, dtype):
            if sizes:  # of an output, not of one that is left out
                raise MemoryError
            return make(sizes, dtype)

        with mock.patch.object(numpy, "empty", refuse):
            for outputs in (("Y",), ("Y", "present_key"), ("Y", "", "", "qk_matmul_output")):
                message = "expected memory for an output but got none"
                self.refuses(message, error=DeviceError, outputs=outputs)

    def test_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = pathlib.Path(folder, "libFlashAttnC.so")
            alone.touch()
            fo._attention_function()  # so that the C library is not loaded from there
            with mock.patch.dict(os.environ, FLASHATTN_LIBRARY=str(alone)):
                with self.assertRaises(LibraryError) as raised:
                    fo.custom_op_library()
                message = f"expected libFlashAttnONNX.so beside {alone} but found none"
                self.assertEqual(str(raised.exception), message)
                other = alone.with_name("libFlashAttnONNX.so")
                other.write_text("no library" * 1000)
                with self.assertRaises(LibraryError) as raised:
                    fo._attention_function.__wrapped__()
                self.assertRegex(str(raised.exception), f"^cannot load {other}: .*invalid ELF header")

    def test_what_is_kept_after_errors(self):
        self.refuses("expected is_causal 0 or 1 but got 3", is_causal=3)
        self.assertEqual(attend(FEEDS)[0].shape, (2, 4, 3, 6))
        self.assertEqual(attend(PACKED, **HEADS)[0].shape, (2, 3, 24))


if __name__ == "__main__":
    unittest.main()
