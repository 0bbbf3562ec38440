# The custom op in ONNX Runtime: every attention test of the installed onnx with it, beside its expanded
# function in the same session; models; what is refused.
# REQUIRES: python-package, onnx, onnxruntime
# RUN: %flashattn_python -W ignore %s

import ctypes
import os
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import numpy
import onnx
import onnxruntime
from flashattn import ArgumentError
from flashattn import onnx as fo
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)  # errors are raised besides

BFLOAT16, FLOAT = TensorProto.BFLOAT16, TensorProto.FLOAT


def open_session(model, threads=1):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(fo.custom_op_library())
    source = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def array_of(value):
    return value if isinstance(value, numpy.ndarray) else numpy_helper.to_array(value)


def widen(model):
    """Inputs and outputs of bf16, which ONNX Runtime's Python does not hand over as arrays, become f32
    behind casts."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type != BFLOAT16:
            continue
        value.type.tensor_type.elem_type = FLOAT
        narrow, is_input = value.name + "_bf16", value in graph.input
        for node in graph.node:
            names = node.input if is_input else node.output
            names[:] = [narrow if name == value.name else name for name in names]
        if is_input:
            graph.node.insert(0, helper.make_node("Cast", [value.name], [narrow], to=BFLOAT16))
        else:
            graph.node.append(helper.make_node("Cast", [narrow], [value.name], to=FLOAT))
    return model


def both(base, expanded):
    """A model with the nodes of both; the outputs of `base` have the suffix `_custom`."""
    model = type(expanded)()
    model.CopyFrom(expanded)
    for node in base.graph.node:
        added = model.graph.node.add()
        added.CopyFrom(node)
        added.output[:] = [name and name + "_custom" for name in node.output]
    for value in base.graph.output:
        added = model.graph.output.add()
        added.CopyFrom(value)
        added.name += "_custom"
    return model


class ConformanceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cases = {
            case.name: case
            for case in collect_testcases("Attention")
            if case.name.startswith("test_attention_")
        }
        cls.base = [name for name in cls.cases if name + "_expanded" in cls.cases]
        # Those of opset 23 alone are 60.
        assert len(cls.base) >= 60 and 2 * len(cls.base) == len(cls.cases), len(cls.cases)

    def check(self, case, model, repeats=1):
        (inputs, want), = case.data_sets
        narrow = [array_of(value).dtype.name == "bfloat16" for value in want]
        session = open_session(widen(model))
        feeds = {}
        for value, given in zip(session.get_inputs(), map(array_of, inputs)):
            feeds[value.name] = given.astype("f4") if given.dtype.name == "bfloat16" else given
        got = session.run(None, feeds)
        want = list(map(array_of, want)) * repeats
        got = [g.astype(w.dtype) if n else g for g, w, n in zip(got, want, narrow * repeats)]
        Runner.assert_similar_outputs(want, got, case.rtol, case.atol)

    def test_custom_op(self):
        for name in self.base:
            with self.subTest(name):
                model = fo.use_custom_op(self.cases[name].model)
                self.assertEqual([n.domain for n in model.graph.node], ["flashattn"])
                self.check(self.cases[name], model)

    def test_expanded_beside_the_custom_op(self):
        without_kernels = []
        for name in self.base:
            expanded = self.cases[name + "_expanded"]
            with self.subTest(name):
                model = fo.use_custom_op(both(self.cases[name].model, expanded.model))
                self.assertGreater(len(model.graph.node), 50)
                try:
                    self.check(expanded, model, repeats=2)
                except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
                    # ONNX Runtime's CPU adds and multiplies no bf16; the backend's test has these.
                    self.assertRegex(str(error), r"Could not find an implementation for \w+\(\d+\)")
                    self.assertNotIn("Attention", str(error))
                    without_kernels.append(name)
        self.assertTrue(all("bf16" in name for name in without_kernels), without_kernels)
        self.assertLess(len(without_kernels), 10)


def attention_model(shapes, outputs=("Y",), kind=FLOAT, op=("", 23), types=(), **attributes):
    """One node, of inputs with these shapes by their names."""
    names = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
    inputs = [name if name in shapes else "" for name in names]
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node("Attention", inputs, outputs, domain=op[0], **attributes)
    types = dict(types)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, types.get(n, kind), shape) for n, shape in shapes.items()],
        [
            helper.make_tensor_value_info(n, kind, [None] * (len(shapes["Q"]) if n == "Y" else 4))
            for n in outputs
            if n
        ],
    )
    imports = [helper.make_opsetid(*op)] + ([helper.make_opsetid("", 23)] if op[0] else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


class ModelTest(unittest.TestCase):
    def test_types_behind_inputs_that_are_left_out(self):
        """Between operators that ask for a type, with a cache and no mask."""
        model = attention_model(
            {"Q": [1, "n", 16], "K": [1, "n", 16], "V": [1, "n", 16],
             "past_key": [1, 2, "p", 8], "past_value": [1, 2, "p", 8]},
            ("Y", "present_key", "present_value"),
            is_causal=1, q_num_heads=2, kv_num_heads=2,
        )  # fmt: skip
        graph = model.graph
        graph.node.append(helper.make_node("Softmax", ["Y"], ["Z"]))
        graph.output.append(helper.make_tensor_value_info("Z", FLOAT, [None] * 3))
        del graph.output[0]  # Y is a value inside
        draw = numpy.random.default_rng(2)
        rewritten = fo.use_custom_op(model)
        # Older versions of ONNX Runtime do not find it out.
        inner = {v.name: v.type.tensor_type.elem_type for v in rewritten.graph.value_info}
        self.assertEqual(inner["Y"], FLOAT)
        session = open_session(rewritten, threads=2)
        cache = [numpy.zeros((1, 2, 0, 8), "float32")] * 2
        for tokens in (5, 1, 1, 3):
            feeds = {n: draw.standard_normal((1, tokens, 16)).astype("float32") for n in "QKV"}
            feeds.update(zip(("past_key", "past_value"), cache))
            names = [value.name for value in graph.output]
            got = dict(zip(names, session.run(names, feeds)))
            want = dict(zip(names, ReferenceEvaluator(model).run(names, feeds)))
            for name in names:
                numpy.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-6)
            cache = [got["present_key"], got["present_value"]]
        self.assertEqual(cache[0].shape, (1, 2, 10, 8))

    def test_weights_in_a_file_of_their_own(self):
        model = attention_model({name: [1, 2, 5, 8] for name in "QKV"})
        draw = numpy.random.default_rng(6)
        q, k, v = (draw.standard_normal((1, 2, 5, 8)).astype("float32") for _ in range(3))
        del model.graph.input[1:]
        for name, array in (("K", k), ("V", v)):
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        want = ReferenceEvaluator(model).run(None, {"Q": q})
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
            light = onnx.load(path, load_external_data=False)
            self.assertFalse(light.graph.initializer[0].raw_data)
            onnx.save(fo.use_custom_op(light), path)
            got = open_session(path).run(None, {"Q": q})
        numpy.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-6)

    def test_one_session_in_several_threads(self):
        model = attention_model({n: [1, 2, "n", 8] for n in "QKV"}, is_causal=1)
        session = open_session(fo.use_custom_op(model))
        draw = numpy.random.default_rng(4)
        feeds = [
            {n: draw.standard_normal((1, 2, size, 8)).astype("float32") for n in "QKV"}
            for size in range(1, 65)
        ]
        alone = [session.run(None, feed)[0] for feed in feeds]
        with ThreadPoolExecutor(4) as pool:
            for want, got in zip(alone, pool.map(lambda feed: session.run(None, feed)[0], feeds)):
                numpy.testing.assert_array_equal(got, want)


class ErrorsTest(unittest.TestCase):
    SHAPES = {"Q": [1, 4, 3, 8], "K": [1, 2, 5, 8], "V": [1, 2, 5, 8]}
    CUSTOM = (fo.DOMAIN, 1)

    def refuses(self, message, model, **changes):
        feeds = {n: numpy.zeros(shape, "float32") for n, shape in self.SHAPES.items()}
        with self.assertRaises(Exception) as raised:
            open_session(model).run(None, {**feeds, **changes})
        self.assertIn(message, str(raised.exception))

    def test_inputs(self):
        any_shape = {n: ["a", "b", "c", "d"] for n in "QKV"}
        model = attention_model(any_shape, op=self.CUSTOM)
        self.refuses("expected K of head size 8, as Q has, but got 6", model,
                     K=numpy.zeros((1, 2, 5, 6), "float32"))  # fmt: skip
        self.refuses("expected the heads of Q to be a multiple of the heads of K but got 3 and 2", model,
                     Q=numpy.zeros((1, 3, 3, 8), "float32"))  # fmt: skip
        five = attention_model({**self.SHAPES, "K": [1, 1, 2, 5, 8]}, op=self.CUSTOM)
        self.refuses("expected K of rank 4, as Q is, but got 5", five,
                     K=numpy.zeros((1, 1, 2, 5, 8), "float32"))  # fmt: skip
        double = attention_model(self.SHAPES, kind=TensorProto.DOUBLE, op=self.CUSTOM)
        self.refuses("expected Q of float16, bfloat16 or float but got double", double,
                     **{n: numpy.zeros(s, "float64") for n, s in self.SHAPES.items()})  # fmt: skip
        mixed = attention_model(self.SHAPES, op=self.CUSTOM, types={"V": TensorProto.FLOAT16})
        self.refuses("expected V of float, as Q is, but got float16", mixed,
                     V=numpy.zeros((1, 2, 5, 8), "float16"))  # fmt: skip
        lengths = {**self.SHAPES, "nonpad_kv_seqlen": [1]}
        narrow = attention_model(lengths, op=self.CUSTOM, types={"nonpad_kv_seqlen": TensorProto.INT32})
        self.refuses("expected nonpad_kv_seqlen of int64 but got int32", narrow,
                     nonpad_kv_seqlen=numpy.ones(1, "int32"))  # fmt: skip

    def test_attributes(self):
        def model(**attributes):
            return attention_model(self.SHAPES, op=self.CUSTOM, **attributes)

        for message, attributes in (
            ("expected attribute is_causal to be an int but got a float", {"is_causal": 1.0}),
            ("expected attribute scale to be a float but got an int", {"scale": 1}),
            ("expected attribute softcap to be a float but got a string", {"softcap": "x"}),
            ("expected is_causal 0 or 1 but got 7", {"is_causal": 7}),
            ("expected scale from 1e-18 to 1e+18 but got -1", {"scale": -1.0}),
        ):
            self.refuses(message, model(**attributes))

    def test_versions_that_are_too_old(self):
        """One that has no table of functions of version 16, but the first."""
        messages = []
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
        create_status = create(lambda code, message: messages.append(message.decode()) or 7)
        table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p))
        get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(
            lambda version: ctypes.addressof(table) if version == 1 else None
        )
        get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(version))
        version = ctypes.create_string_buffer(b"1.15.1")
        base = (ctypes.c_void_p * 2)(
            ctypes.cast(get_api, ctypes.c_void_p), ctypes.cast(get_version, ctypes.c_void_p)
        )
        register = ctypes.CDLL(fo.custom_op_library()).RegisterCustomOps
        register.argtypes, register.restype = [ctypes.c_void_p] * 2, ctypes.c_void_p
        self.assertEqual(register(None, ctypes.addressof(base)), 7)
        self.assertEqual(messages, ["expected ONNX Runtime 1.16 or newer but got 1.15.1"])

    def test_without_attention(self):
        with self.assertRaisesRegex(ArgumentError, "^expected a model with Attention of ONNX"):
            fo.use_custom_op(attention_model(self.SHAPES, op=self.CUSTOM))


if __name__ == "__main__":
    unittest.main()
