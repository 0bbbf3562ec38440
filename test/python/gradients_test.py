# Gradients on the CPU against float64: masks, types, head groupings, lengths and layouts, each
# argument that shapes scores, and finite differences of the loss.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import itertools
import math
import unittest

import numpy
from features_test import alibi, by_key, cap, relative
from flashattn import _cache, _reference, attention, attention_backward, causal, window
from flashattn import math as fm
from numbers_test import FROBENIUS, GROUPINGS, LENGTHS, MASKS, make, to_float


def bend(score, b, h, p, k):
    """A score_mod of many operations, none of which has a kink."""
    wave = fm.sin(score) * fm.exp2(-score * score / 4.0) + fm.sigmoid(score) / (2.0 + score * score)
    return wave + fm.sqrt(1.0 + score * score) - fm.erf(score) * fm.log(2.0 + score * score)


def float64(array):
    """Converts an array of any type; arrays of uint16 hold bf16."""
    if array.dtype == numpy.uint16:
        array = _reference.f32_from_bf16(array)
    return array.astype(numpy.float64)


class Problem:
    """What a call is made of, `[B, H, N, D]` whatever the layout: float64 values of the operands."""

    def __init__(self, q, k, v, **options):
        self.q, self.k, self.v, self.options = q, k, v, options
        self.batch, self.heads, self.nq, self.d = q.shape
        self.nk, self.group = k.shape[2], self.heads // k.shape[1]
        self.scale = options.get("scale") or 1 / math.sqrt(self.d)

    def seen(self, b, h):
        kv_len, offset = self.options.get("kv_len"), self.options.get("offset")
        length = self.nk if kv_len is None else min(self.nk, max(0, int(kv_len[b])))
        if offset is None:
            offset = length - self.nq if self.options.get("align") != "top_left" else 0
        p, keys = numpy.arange(self.nq)[:, None] + offset, numpy.arange(self.nk)[None, :]
        seen = _reference.visible(self.options.get("mask"), p, keys, self.nq, self.nk)
        seen = seen & (keys < length)
        attn_mask = self.options.get("attn_mask")
        if attn_mask is not None:
            seen = seen & numpy.broadcast_to(attn_mask, (self.batch, self.heads, self.nq, self.nk))[b, h]
        return seen, p, keys

    def head(self, b, h, kind, operands):
        """q, k and v of a head, the pairs that it sees, and what shapes its scores."""
        seen, p, keys = self.seen(b, h)
        score_mod = self.options.get("score_mod")
        scores = (self.batch, self.heads, self.nq, self.nk)
        sinks = operands.get("sink_logits")
        features = {
            "softcap": self.options.get("softcap"),
            "modify": score_mod and (lambda s: score_mod(s, b, h, p, keys)),
            "bias": numpy.broadcast_to(operands["bias"], scores)[b, h] if "bias" in operands else 0,
            "sink": -numpy.inf if sinks is None else sinks[h],
        }
        rows = (operands[name][b, h // g] for name, g in zip("qkv", (1, self.group, self.group)))
        return [*(x.astype(kind) for x in rows), seen, self.scale], features

    def operands(self):
        extra = {n: self.options[n] for n in ("bias", "sink_logits") if n in self.options}
        return {"q": self.q, "k": self.k, "v": self.v, **{n: float64(x) for n, x in extra.items()}}

    def gradients(self, do, d_lse, kind=numpy.float64, round_to=None):
        """Returns the gradient of each name in `operands`; with `round_to`, by plain arithmetic in the low precision."""
        operands = self.operands()
        found = {name: numpy.zeros(x.shape, kind) for name, x in operands.items()}
        shape = (self.batch, self.heads, self.nq, self.nk)
        d_scores = numpy.zeros(shape, kind)
        for b, h in itertools.product(range(self.batch), range(self.heads)):
            head, features = self.head(b, h, kind, operands)
            o, lse = _reference.attention_head(*head, round_to, **features)
            o = round_to(o) if round_to else o
            upper = do[b, h].astype(kind)
            delta = (upper * o).sum(axis=1) - (0 if d_lse is None else d_lse[b, h])
            delta = delta.astype(kind)
            part = _reference.head_gradients(
                *head[:3], upper, lse, delta, *head[3:], round_to, **features
            )
            found["q"][b, h] = part.dq
            found["k"][b, h // self.group] += part.dk
            found["v"][b, h // self.group] += part.dv
            d_scores[b, h] = part.d_scores
            if "sink_logits" in found:
                found["sink_logits"][h] += part.d_sink
        if "bias" in found:
            rank = found["bias"].ndim
            d_scores = d_scores.sum(axis=tuple(range(4 - rank)))
            along = [i for i, n in enumerate(found["bias"].shape) if n == 1]
            found["bias"] = d_scores.sum(axis=tuple(along), keepdims=True)
        if round_to:
            found = {n: x if n == "sink_logits" else round_to(x) for n, x in found.items()}
        return found

    def loss(self, operands, do, d_lse):
        """Whose gradients these are, in float64."""
        total = 0.0
        for b, h in itertools.product(range(self.batch), range(self.heads)):
            head, features = self.head(b, h, numpy.float64, operands)
            o, lse = _reference.attention_head(*head, **features)
            total += float((o * do[b, h]).sum())
            if d_lse is not None:
                # B7: a row that sees no key counts with its sink alone.
                rows = lse > -numpy.inf
                total += float((lse * d_lse[b, h])[rows].sum())
        return total


def swap(array, layout):
    return numpy.ascontiguousarray(array.swapaxes(1, 2)) if layout == "bshd" else array


class GradientsTest(unittest.TestCase):
    def setUp(self):
        self.generator = numpy.random.default_rng(21)

    def noise(self, *shape):
        return self.generator.standard_normal(shape, dtype=numpy.float32)

    def inputs(self, element, batch=2, heads=(4, 2), lengths=(33, 70), d=16, dv=16):
        """q, k, v and do, each with its values."""
        (hq, hkv), (nq, nk) = heads, lengths
        shapes = (hq, nq, d), (hkv, nk, d), (hkv, nk, dv), (hq, nq, dv)
        return [make(self.generator, element, (batch, *shape)) for shape in shapes]

    def run_backward(self, element, inputs, d_lse=None, layout="bhsd", o_element=None, **options):
        """The gradients by the operand's name, float64, in [B, H, N, D]. `o_element` is the type of o, if it is not
        that of q."""
        q, k, v, do = (swap(x, layout) for x, _ in inputs)
        bias = options.get("bias")
        bits = element == "bf16" or (bias is not None and bias.dtype == numpy.uint16)
        options = dict(options, layout=layout, dtype="bf16" if bits else None)
        out = None
        if o_element is not None:
            shapes = do.shape, inputs[0][0].shape[:3]
            out = tuple(numpy.empty(shape, numpy.float32) for shape in shapes)
        o, lse = attention(q, k, v, return_lse=True, out=out, **options)
        names = [name for name in ("bias", "sink_logits") if name in options]
        wanted = {f"return_d_{name}": True for name in names}
        found = attention_backward(q, k, v, o, lse, do, d_lse=d_lse, **wanted, **options)
        self.assertIsInstance(found, tuple)
        for gradient, x in zip(found, (q, k, v, *(options[name] for name in names))):
            self.assertEqual((gradient.shape, gradient.dtype), (x.shape, x.dtype))
        rows = [swap(float64(x), layout) for x in found[:3]]
        return dict(zip(("q", "k", "v", *names), [*rows, *map(float64, found[3:])]))

    def check(self, element, inputs=None, d_lse=None, poison=True, **options):
        """One call, with the bounds of the numbers."""
        inputs = inputs or self.inputs(element)
        values = [x.astype(numpy.float64) for _, x in inputs]
        apart = ("layout", "o_element")
        problem = Problem(*values[:3], **{n: x for n, x in options.items() if n not in apart})
        kv_len = options.get("kv_len")
        if kv_len is not None:
            # A7: nothing there may matter.
            inputs = [(x.copy(), y) for x, y in inputs]
            for (x, _), b in itertools.product(inputs[1:3], range(problem.batch)):
                x[b, :, max(0, kv_len[b]) :] = 0x7FFF if element == "bf16" else numpy.nan
        found = self.run_backward(element, inputs, d_lse, **options)
        exact = problem.gradients(values[3], d_lse)
        naive = problem.gradients(values[3], d_lse, numpy.float32, _reference.rounder(element))
        self.assertEqual(set(found), set(exact))
        for name, gradient in found.items():
            with self.subTest(gradient=name):
                kinds = [element]
                if name == "bias":
                    kinds.append({2: "f16", 4: "f32"}[options["bias"].dtype.itemsize])
                    if options["bias"].dtype == numpy.uint16:
                        kinds[1] = "bf16"
                    naive[name] = _reference.rounder(kinds[1])(naive[name])
                self.assertFalse(numpy.isnan(gradient).any())
                worst = max(kinds, key=FROBENIUS.__getitem__)
                wrong = _reference.explain_gradient(gradient, exact[name], naive[name], worst)
                self.assertEqual(wrong, "")
        # B7: a key that no row sees, and a row that sees no key.
        for b, h in itertools.product(range(problem.batch), range(problem.heads)):
            seen, _, _ = problem.seen(b, h)
            self.assertTrue((found["q"][b, h][~seen.any(axis=1)] == 0).all())
        return found

    def test_masks(self):
        for name, mask in MASKS.items():
            with self.subTest(mask=name):
                self.check("f32", mask=mask)

    def test_types(self):
        for element, (name, mask) in itertools.product(("f16", "bf16"), list(MASKS.items())[:4]):
            with self.subTest(element=element, mask=name):
                self.check(element, mask=mask)

    def test_o_in_f32(self):
        for element, layout in itertools.product(("f16", "bf16"), ("bhsd", "bshd")):
            with self.subTest(element=element, layout=layout):
                self.check(element, layout=layout, o_element="f32")
                self.check(
                    element, d_lse=self.noise(2, 4, 33), layout=layout, o_element="f32", mask=causal, softcap=6.0,
                    bias=self.noise(1, 4, 1, 70), sink_logits=self.noise(4),
                )  # fmt: skip

    def test_o_of_both_types_in_turns(self):
        for element in ("f16", "bf16"):
            _cache.cache.clear()
            (q, _), (k, _), (v, _), (do, _) = self.inputs(element)
            options = {"mask": causal, "dtype": "bf16" if element == "bf16" else None}
            half, lse = attention(q, k, v, return_lse=True, **options)
            wide = numpy.empty(half.shape, numpy.float32)
            attention(q, k, v, out=wide, **options)
            first = {}
            for turn in range(4):
                for o in (half, wide):
                    found = attention_backward(q, k, v, o, lse, do, **options)
                    for gradient, x in zip(found, (q, k, v)):
                        self.assertEqual((gradient.shape, gradient.dtype), (x.shape, x.dtype))
                    for gradient, other in zip(found, first.setdefault(o.dtype, found)):
                        numpy.testing.assert_array_equal(gradient, other)
            self.assertTrue((first[half.dtype][0] != first[wide.dtype][0]).any())
            self.assertEqual((len(_cache.cache.kernels), len(_cache.cache.plans)), (4, 4))

    def test_lengths_and_head_groupings(self):
        for heads, lengths in itertools.product(GROUPINGS, LENGTHS):
            with self.subTest(heads=heads, lengths=lengths):
                self.check("f32", self.inputs("f32", 2, heads, lengths), mask=causal)

    def test_head_dimensions(self):
        for d, dv in ((64, 64), (128, 64), (20, 12), (256, 256)):
            with self.subTest(d=d, dv=dv):
                inputs = self.inputs("f32", 1, (2, 1), (17, 40), d, dv)
                self.check("f32", inputs, mask=causal)

    def test_d_lse(self):
        d_lse = self.noise(2, 4, 33)
        self.check("f32", d_lse=d_lse)
        self.check("f32", d_lse=d_lse, mask=window(left=5, right=0), align="top_left")
        # Rows that see no key: what their lse is does not count.
        self.check("f32", self.inputs("f32", lengths=(33, 9)), d_lse=d_lse, mask=causal)

    def test_scale_align_and_layout(self):
        self.check("f32", mask=causal, scale=0.3, align="top_left")
        self.check("f32", mask=causal, layout="bshd", softcap=3.0)
        self.check("f16", mask=causal, layout="bshd")

    def test_softcap(self):
        for softcap in (0.5, 30.0):
            self.check("f32", softcap=softcap, mask=causal)

    def test_score_mods(self):
        for score_mod in (alibi, cap, relative, by_key, bend):
            with self.subTest(score_mod=score_mod.__name__):
                self.check("f32", score_mod=score_mod, mask=causal)
        self.check("f32", score_mod=bend, softcap=4.0)

    def test_attn_mask(self):
        attn_mask = self.generator.random((2, 1, 33, 70)) < 0.5
        attn_mask[:, :, 5], attn_mask[:, :, :, 9] = False, False
        found = self.check("f32", attn_mask=attn_mask, mask=causal)
        self.assertTrue((found["k"][:, :, 9] == 0).all() and (found["v"][:, :, 9] == 0).all())

    def test_kv_len(self):
        for kv_len in ([70, 11], [0, 33], [1, 69]):
            with self.subTest(kv_len=kv_len):
                found = self.check("f32", kv_len=numpy.array(kv_len, numpy.int32), mask=causal)
                for b, length in enumerate(kv_len):
                    self.assertTrue((found["k"][b, :, length:] == 0).all())
                    self.assertTrue((found["v"][b, :, length:] == 0).all())

    def test_offset(self):
        for offset in (-5, 0, 50):
            self.check("f32", offset=offset, mask=window(left=20, right=0))

    def test_bias_of_any_broadcast(self):
        for shape in (
            (2, 4, 33, 70), (1, 4, 33, 70), (2, 1, 33, 70), (1, 1, 33, 70),
            (2, 4, 1, 70), (1, 1, 1, 70), (1, 4, 33, 1), (2, 1, 33, 1), (2, 4, 1, 1), (1, 1, 1, 1),
        ):  # fmt: skip
            with self.subTest(shape=shape):
                self.check("f32", bias=self.noise(*shape), mask=causal)
        self.check("f32", bias=self.noise(33, 70), mask=causal)

    def test_bias_of_other_types(self):
        bias = self.noise(1, 4, 33, 70)
        self.check("f16", bias=bias)
        self.check("f32", bias=bias.astype(numpy.float16))
        self.check("f16", bias=_reference.bf16_from_f32(bias))

    def test_sink_logits(self):
        self.check("f32", sink_logits=self.noise(4), mask=window(left=9, right=0))
        self.check("f16", sink_logits=self.noise(4), mask=causal)
        # Rows that see no key have the sink as their lse.
        self.check(
            "f32", self.inputs("f32", lengths=(33, 9)), sink_logits=self.noise(4), mask=causal
        )

    def test_all_at_once(self):
        for element in FROBENIUS:
            with self.subTest(element=element):
                self.check(
                    element,
                    mask=window(left=40, right=0),
                    bias=self.noise(1, 4, 1, 70),
                    attn_mask=self.generator.random((33, 70)) < 0.8,
                    softcap=6.0,
                    score_mod=alibi,
                    sink_logits=self.noise(4),
                    kv_len=numpy.array([70, 31], numpy.int32),
                    d_lse=self.noise(2, 4, 33),
                )

    def test_finite_differences(self):
        """Each number of each operand, moved: the central difference of the loss in float64 is the
        gradient, which is f32, to 1e-5 of the largest one and 1e-6."""
        few = {"attn_mask": numpy.array([[1, 0, 1, 1, 1, 0]] * 4, bool), "align": "top_left"}
        cases = [
            {},
            {"mask": causal},
            {"mask": window(left=2, right=0), "sink_logits": self.noise(2)},
            {"bias": self.noise(2, 4, 6)},
            {"bias": self.noise(1, 1, 6), "mask": causal},
            {"softcap": 1.5, "scale": 0.7},
            {"score_mod": bend},
            {"score_mod": cap, "softcap": 2.0, "mask": causal},
            few,
            {"kv_len": numpy.array([4], numpy.int32), "d_lse": self.noise(1, 2, 4)},
            {"d_lse": self.noise(1, 2, 4), "mask": causal, "offset": -1},
            {"bias": self.noise(4, 1), "sink_logits": self.noise(2), "score_mod": alibi, **few},
            {"sink_logits": self.noise(2), "mask": causal, "offset": -2, "d_lse": self.noise(1, 2, 4)},
        ]
        for index, options in enumerate(cases):
            d_lse = options.pop("d_lse", None)
            inputs = self.inputs("f32", 1, (2, 1), (4, 6), 8, 8)
            *rows, do = (x.astype(numpy.float64) for _, x in inputs)
            problem = Problem(*rows, **options)
            operands = problem.operands()
            found = self.run_backward("f32", inputs, d_lse, **options)
            for name, values in operands.items():
                difference = numpy.zeros(values.shape)
                for at in numpy.ndindex(values.shape):
                    sides = []
                    for step in (1e-5, -1e-5):
                        moved = values.copy()
                        moved[at] += step
                        sides.append(problem.loss({**operands, name: moved}, do, d_lse))
                    difference[at] = (sides[0] - sides[1]) / 2e-5
                with self.subTest(case=index, operand=name):
                    atol = 1e-5 * numpy.abs(difference).max() + 1e-6
                    numpy.testing.assert_allclose(found[name], difference, rtol=0, atol=atol)

    def test_out_is_written_and_nothing_else(self):
        (q, _), (k, _), (v, _), (do, _) = self.inputs("f32")
        o, lse = attention(q, k, v, return_lse=True)
        expected = attention_backward(q, k, v, o, lse, do)
        frames = [
            numpy.full((2, x.shape[1], x.shape[2] + 2, 24), numpy.nan, "f4") for x in (q, k, v)
        ]
        outs = tuple(frame[:, :, 1:-1, 4:20] for frame in frames)
        for turn in range(2):
            for frame in frames:
                frame.fill(numpy.nan)
            found = attention_backward(q, k, v, o, lse, do, out=outs)
            for mine, out, other, frame in zip(found, outs, expected, frames):
                self.assertIs(mine, out)
                numpy.testing.assert_array_equal(out, other)
                out.fill(numpy.nan)
                self.assertTrue(numpy.isnan(frame).all())

    def test_strides_are_read_in_place(self):
        (q, _), (k, _), (v, _), (do, _) = self.inputs("f32")
        o, lse = attention(q, k, v, return_lse=True)
        expected = attention_backward(q, k, v, o, lse, do)
        wide = [numpy.zeros((*x.shape[:3], 40), "f4")[..., 3:19] for x in (q, k, v, o, do)]
        for view, x in zip(wide, (q, k, v, o, do)):
            view[...] = x
        found = attention_backward(*wide[:4], lse, wide[4])
        for mine, other in zip(found, expected):
            numpy.testing.assert_array_equal(mine, other)
        # One row of do for all, by strides of 0.
        row = numpy.broadcast_to(do[:, :, :1], do.shape)
        for mine, other in zip(
            attention_backward(q, k, v, o, lse, row),
            attention_backward(q, k, v, o, lse, numpy.ascontiguousarray(row)),
        ):
            numpy.testing.assert_array_equal(mine, other)

    def test_an_expanded_bias_has_a_gradient_for_each_element(self):
        (q, _), (k, _), (v, _), (do, _) = self.inputs("f32")
        bias = numpy.broadcast_to(self.noise(1, 1, 33, 70), (2, 4, 33, 70))
        o, lse = attention(q, k, v, bias=bias, return_lse=True)
        found, other = (
            attention_backward(q, k, v, o, lse, do, bias=x, return_d_bias=True)[3]
            for x in (bias, numpy.ascontiguousarray(bias))
        )
        self.assertEqual(found.shape, bias.shape)
        numpy.testing.assert_array_equal(found, other)

    def test_nothing_to_sum(self):
        for shape, length in (((0, 2, 5, 16), 7), ((2, 2, 0, 16), 7), ((2, 2, 5, 16), 0)):
            q, k = numpy.ones(shape, "f4"), numpy.ones((shape[0], 2, length, 16), "f4")
            bias, sinks = numpy.ones((shape[2], length), "f4"), numpy.ones(2, "f4")
            o, lse = attention(q, k, k, bias=bias, sink_logits=sinks, return_lse=True)
            found = attention_backward(
                q, k, k, o, lse, o, bias=bias, sink_logits=sinks, return_d_bias=True,
                return_d_sink_logits=True,
            )  # fmt: skip
            for gradient, x in zip(found, (q, k, k, bias, sinks)):
                self.assertEqual(gradient.shape, x.shape)
                self.assertTrue((gradient == 0).all(), (shape, length))

    def test_the_second_call_finds_the_plan(self):
        (q, _), (k, _), (v, _), (do, _) = self.inputs("f16")
        bias, d_lse = self.noise(33, 70), self.noise(2, 4, 33)
        o, lse = attention(q, k, v, bias=bias, return_lse=True)
        call = lambda: attention_backward(  # noqa: E731
            q, k, v, o, lse, do, bias=bias, d_lse=d_lse, offset=3, return_d_bias=True,
            deterministic=True,
        )  # fmt: skip
        _cache.cache.clear()
        results = [call() for _ in range(3)]
        self.assertEqual((len(_cache.cache.kernels), len(_cache.cache.plans)), (1, 1))
        for result in results:
            for gradient, first in zip(result, results[0]):
                self.assertEqual(gradient.dtype, first.dtype)
                numpy.testing.assert_array_equal(gradient, first)


if __name__ == "__main__":
    unittest.main()
