# flashattn.onnx as a backend: every attention test of the installed onnx in onnx's own runner, larger and
# random nodes against onnx's reference in float64, and models with other operators.
# REQUIRES: python-package, onnx
# RUN: %flashattn_python -W ignore %s

import io
import unittest

import numpy
from flashattn import ArgumentError, UnsupportedError, _reference
from flashattn import onnx as fo
from onnx import AttributeProto, TensorProto, checker, defs, helper
from onnx.backend.base import Backend
from onnx.backend.test import BackendTest
from onnx.reference import ReferenceEvaluator

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


class ConformanceTest(unittest.TestCase):
    def test_attention_cases_of_onnx(self):
        cases = BackendTest(fo.AttentionBackend).include("^test_attention_.*_cpu$").test_cases
        loader, suite = unittest.defaultTestLoader, unittest.TestSuite()
        names = [
            name
            for name in loader.getTestCaseNames(cases["OnnxBackendNodeModelTest"])
            if name.startswith("test_attention_") and name.endswith("_cpu")
        ]
        suite.addTests(map(cases["OnnxBackendNodeModelTest"], names))
        log = io.StringIO()
        result = unittest.TextTestRunner(stream=log).run(suite)
        self.assertTrue(result.wasSuccessful(), log.getvalue())
        self.assertEqual(result.skipped, [])
        # Those of opset 23 alone are 60, each with its expanded function.
        self.assertGreaterEqual(result.testsRun, 120)
        self.assertEqual(2 * sum("expanded" in name for name in names), len(names))

    def test_is_a_backend(self):
        self.assertTrue(issubclass(fo.AttentionBackend, Backend))
        self.assertTrue(fo.supports_device("CPU"))
        self.assertFalse(fo.supports_device("CUDA"))


def run(node, feeds):
    """The outputs by their names."""
    given = [feeds[name] for name in INPUTS if name in feeds]
    return dict(zip(node.output, fo.run_node(node, given)))


def make_node(feeds, outputs=OUTPUTS[:1], **attributes):
    """A node whose inputs are those in `feeds`."""
    inputs = [name if name in feeds else "" for name in INPUTS]
    while not inputs[-1]:
        inputs.pop()
    names = [name if name in outputs else "" for name in OUTPUTS]
    while not names[-1]:
        names.pop()
    return helper.make_node("Attention", inputs, names, **attributes)


def reference(node, feeds, kind):
    """onnx's own outputs with arithmetic of one type."""
    cast = {n: a.astype(kind) if a.dtype.kind not in "bi" else a for n, a in feeds.items()}
    if "attn_mask" in cast:
        # Beside is_causal it takes a mask that is the same for all queries for one of a single query.
        queries = feeds["Q"].shape[-2]
        mask = numpy.atleast_2d(cast["attn_mask"])
        cast["attn_mask"] = numpy.broadcast_to(mask, (*mask.shape[:-2], queries, mask.shape[-1]))
    outputs = ReferenceEvaluator(node).run(None, cast)
    return {name: array for name, array in zip(node.output, outputs) if name}


def random_case(draw):
    """Inputs and attributes of a node: what goes together, at random."""
    kind = draw.choice(["float32", "float32", "float16"])
    batch, kv_heads, group = (int(draw.integers(1, 4)) for _ in range(3))
    heads, d, dv = kv_heads * group, int(draw.choice([8, 20, 64])), int(draw.choice([8, 32]))
    queries, keys = int(draw.integers(1, 80)), int(draw.integers(1, 150))
    packed, cache = draw.random() < 0.4, draw.choice(["none", "past", "lengths"])

    def normal(*shape):
        return draw.standard_normal(shape).astype(kind)

    def tensor(h, n, size):
        return normal(batch, n, h * size) if packed else normal(batch, h, n, size)

    feeds = {"Q": tensor(heads, queries, d), "K": tensor(kv_heads, keys, d)}
    feeds["V"] = tensor(kv_heads, keys, dv)
    attributes = {"q_num_heads": heads, "kv_num_heads": kv_heads} if packed else {}
    total, outputs = keys, ["Y", "qk_matmul_output"]
    if cache == "past":
        past = int(draw.integers(1, 50))
        total += past
        feeds["past_key"] = normal(batch, kv_heads, past, d)
        feeds["past_value"] = normal(batch, kv_heads, past, dv)
        outputs += ["present_key", "present_value"]
    seen = total if draw.random() < 0.5 or total < 4 else int(draw.integers(2, total))
    if cache == "lengths":
        feeds["nonpad_kv_seqlen"] = draw.integers(0, seen + 1, batch)
    if draw.random() < 0.6 or seen < total:
        shape = [int(draw.choice([1, size])) for size in (batch, heads, queries)] + [seen]
        shape = shape[int(draw.integers(0, 4)) :]
        mask = normal(*shape)
        feeds["attn_mask"] = mask > -0.7 if draw.random() < 0.5 else mask
    if draw.random() < 0.5:
        attributes["is_causal"] = 1
    if draw.random() < 0.3:
        attributes["left_window_size"] = int(draw.integers(0, 40))
    if draw.random() < 0.3:
        attributes["right_window_size"] = int(draw.integers(0, 40))
    if draw.random() < 0.3:
        attributes["softcap"] = 2.5
    if draw.random() < 0.3:
        attributes["scale"] = 0.3
    if draw.random() < 0.3:
        attributes["softmax_precision"] = TensorProto.FLOAT
    # onnx's reference caps what mode 0 gives, against the text and the function of the operator.
    attributes["qk_matmul_output_mode"] = int(draw.integers("softcap" in attributes, 4))
    return make_node(feeds, outputs, **attributes), feeds


class NumbersTest(unittest.TestCase):
    def check(self, node, feeds):
        kind = feeds["Q"].dtype
        got = run(node, feeds)
        exact = reference(node, feeds, "float64")
        naive = reference(node, feeds, kind)
        for name, want in exact.items():
            out, low = got[name].astype("float64"), naive[name].astype("float64")
            self.assertEqual((out.shape, got[name].dtype), (want.shape, kind), name)
            finite = numpy.isfinite(want)
            numpy.testing.assert_array_equal(numpy.isfinite(out), finite, name)
            out, low, want = out[finite], low[finite], want[finite]
            bound = 2 * numpy.abs(low - want).max(initial=0) + 1e-5
            self.assertLessEqual(numpy.abs(out - want).max(initial=0), bound, name)
            norm = numpy.linalg.norm(want)
            short = "f16" if kind == "float16" else "f32"
            if norm > 0:
                error = numpy.linalg.norm(out - want) / norm
                self.assertLessEqual(error, _reference.FROBENIUS[short], name)

    def test_random_nodes(self):
        draw = numpy.random.default_rng(31)
        used = set()
        for index in range(40):
            node, feeds = random_case(draw)
            with self.subTest(index=index, node=helper.printable_node(node)):
                self.check(node, feeds)
            used.update(feeds, (a.name for a in node.attribute), node.output)
            used.update((a.name, a.i) for a in node.attribute if a.name.endswith("mode"))
        wanted = {*INPUTS, *OUTPUTS, *defs.get_schema("Attention").attributes}
        wanted |= {("qk_matmul_output_mode", mode) for mode in range(4)}
        self.assertEqual(wanted - used, set())

    def test_raw_scores_are_not_capped(self):
        draw = numpy.random.default_rng(3)
        feeds = {n: draw.standard_normal((1, 2, 5, 8)).astype("float32") for n in INPUTS[:3]}
        names = ["Y", "qk_matmul_output"]
        capped = run(make_node(feeds, names, softcap=1.0), feeds)
        plain = run(make_node(feeds, names), feeds)
        numpy.testing.assert_array_equal(capped[names[1]], plain[names[1]])
        self.assertGreater(numpy.abs(capped["Y"] - plain["Y"]).max(), 1e-3)

    def test_empty_sizes(self):
        def attend(batch, queries, keys, **more):
            feeds = {
                "Q": numpy.ones((batch, 2, queries, 8), "float32"),
                "K": numpy.ones((batch, 2, keys, 8), "float32"),
                "V": numpy.ones((batch, 2, keys, 4), "float32"),
                **more,
            }
            outputs = run(make_node(feeds, OUTPUTS[::3]), feeds)
            return outputs["Y"], outputs["qk_matmul_output"]

        for batch, queries, keys in ((0, 3, 5), (2, 0, 5), (2, 3, 0)):
            y, scores = attend(batch, queries, keys)
            self.assertEqual(y.shape, (batch, 2, queries, 4))
            self.assertEqual(scores.shape, (batch, 2, queries, keys))
            self.assertFalse(y.any())
        self.assertFalse(attend(2, 3, 5, attn_mask=numpy.ones((3, 0), bool))[0].any())


def decoder():
    """Two layers of projections and attention with a cache, in a graph of other operators."""
    heads, size = 2, 8
    nodes, value = [], "x"
    for layer in range(2):
        names = [f"{kind}{layer}" for kind in "qkv"]
        nodes += [helper.make_node("MatMul", [value, "w"], [name]) for name in names]
        nodes.append(
            helper.make_node(
                "Attention",
                [*names, "", f"past_key{layer}", f"past_value{layer}"],
                [f"y{layer}", f"present_key{layer}", f"present_value{layer}"],
                is_causal=1,
                q_num_heads=heads,
                kv_num_heads=heads,
            )
        )
        nodes.append(helper.make_node("Add", [value, f"y{layer}"], [f"x{layer}"]))
        value = f"x{layer}"

    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    caches = [f"{kind}{layer}" for layer in range(2) for kind in ("key", "value")]
    past = [info(f"past_{name}", ["b", heads, "p", size]) for name in caches]
    present = [info(f"present_{name}", ["b", heads, "t", size]) for name in caches]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, 16], 0.1 * numpy.eye(16).ravel())
    graph = helper.make_graph(
        nodes,
        "decoder",
        [info("x", ["b", "n", 16]), *past, info("w", [16, 16])],
        [info(value, ["b", "n", 16]), *present],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


class ModelTest(unittest.TestCase):
    def setUp(self):
        draw = numpy.random.default_rng(5)
        self.inputs = [draw.standard_normal((2, 3, 16)).astype("float32")]
        self.inputs += [draw.standard_normal((2, 2, 4, 8)).astype("float32") for _ in range(4)]

    def test_graphs_of_several_operators(self):
        model = decoder()
        want = ReferenceEvaluator(model).run(
            None, dict(zip((i.name for i in model.graph.input), self.inputs))
        )
        for form in (model, fo.use_custom_op(model)):
            rep = fo.prepare(form)
            got = rep.run(self.inputs)
            self.assertEqual(len(got), 5)
            for a, b in zip(got, want):
                numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            numpy.testing.assert_array_equal(got["x1"], got[0])
            again = rep.run(dict(zip((i.name for i in model.graph.input), self.inputs)))
            numpy.testing.assert_array_equal(again[0], got[0])
        numpy.testing.assert_array_equal(fo.run_model(model, self.inputs)[0], got[0])
        mine = ReferenceEvaluator(model, new_ops=[fo.Attention])
        again = mine.run(None, dict(zip((i.name for i in model.graph.input), self.inputs)))
        numpy.testing.assert_array_equal(again[0], got[0])

    def test_custom_op_in_subgraphs_and_functions(self):
        body = helper.make_graph(
            [helper.make_node("Attention", ["q", "q", "q"], ["y"])],
            "branch",
            [],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )
        twice = [
            helper.make_node("Attention", ["q", "q", "q"], ["s"]),
            helper.make_node("Add", ["s", "s"], ["r"]),
        ]
        attribute = twice[0].attribute.add(name="is_causal", ref_attr_name="causal")
        attribute.type = AttributeProto.INT
        function = helper.make_function(
            "mine", "Twice", ["q"], ["r"], twice, [helper.make_opsetid("", 23)], ["causal"]
        )
        graph = helper.make_graph(
            [helper.make_node("If", ["c"], ["a"], then_branch=body, else_branch=body),
             helper.make_node("Twice", ["a"], ["z"], domain="mine", causal=1)],
            "main",
            [helper.make_tensor_value_info("c", TensorProto.BOOL, []),
             helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, 1, 3, 8])],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 1, 3, 8])],
        )  # fmt: skip
        imports = [helper.make_opsetid("", 23), helper.make_opsetid("mine", 1)]
        model = helper.make_model(
            graph, functions=[function], opset_imports=imports, ir_version=11
        )
        rewritten = fo.use_custom_op(model)
        checker.check_model(rewritten)
        text = str(rewritten)
        self.assertEqual(text.count('op_type: "Attention"'), 3)
        self.assertEqual(text.count('domain: "flashattn"'), 5)  # with two imports
        self.assertNotIn("flashattn", str(model))
        inputs = [numpy.array(True), numpy.random.default_rng(1).random((1, 1, 3, 8), "float32")]
        want = ReferenceEvaluator(model).run(None, dict(zip(("c", "q"), inputs)))
        for form in (model, rewritten):
            numpy.testing.assert_allclose(fo.run_model(form, inputs)[0], want[0], rtol=1e-4)

    def test_errors(self):
        with self.assertRaisesRegex(UnsupportedError, "^expected device CPU but got CUDA$"):
            fo.prepare(decoder(), "CUDA")
        with self.assertRaisesRegex(UnsupportedError, "^expected device CPU but got CUDA:1$"):
            fo.run_node(helper.make_node("Relu", ["x"], ["y"]), [], "CUDA:1")
        rep = fo.prepare(decoder())  # whose "w" has a default
        with self.assertRaisesRegex(
            ArgumentError, r"^expected 5 inputs \(x, past_key0, .*\) but got 1$"
        ):
            rep.run(self.inputs[:1])
        feeds = dict(zip((i.name for i in decoder().graph.input), self.inputs))
        names = ", ".join(feeds)
        for wrong, found in (
            ({**feeds, "other": feeds["x"]}, names + ", other"),
            ({"x": feeds["x"]}, "x"),
        ):
            with self.assertRaisesRegex(ArgumentError, f"^expected inputs {names} but got {found}$"):
                rep.run(wrong)
        weight = numpy.zeros((16, 16), "float32")
        self.assertEqual(rep.run({**feeds, "w": weight})[1].any(), True)  # a past is kept
        with self.assertRaisesRegex(ArgumentError, "^expected no options but got fast$"):
            rep.run(self.inputs, fast=True)
        plain = helper.make_model(helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        ), opset_imports=[helper.make_opsetid("", 23)], ir_version=11)  # fmt: skip
        message = "^expected a model with Attention of ONNX but got none"
        with self.assertRaisesRegex(ArgumentError, message):
            fo.use_custom_op(plain)
        wrong = decoder()
        wrong.graph.node[3].attribute.append(helper.make_attribute("is_causl", 1))
        for call in (fo.use_custom_op, fo.prepare):
            with self.assertRaisesRegex(checker.ValidationError, "is_causl"):
                call(wrong)


if __name__ == "__main__":
    unittest.main()
