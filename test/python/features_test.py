# What shapes scores beyond the mask, on the CPU against float64: each argument with every type and
# layout, broadcasts and strides, score modifications written in Python, and all of it together. And
# results in f32 of operands of 16 bits.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import itertools
import math
import random
import unittest

import flashattn
import numpy
from flashattn import ArgumentError, UnsupportedError, _cache, _reference, _tensors, attention, causal, window
from flashattn import math as fm
from numbers_test import FROBENIUS, make, to_float

HEADS = 4


def alibi(score, b, h, p, k):
    return score + fm.exp2(-(h + 1) * (8 / HEADS)) * (k - p)


def cap(score, b, h, p, k):
    return 5.0 * fm.tanh(score / 5.0)


def relative(score, b, h, p, k):
    """As of T5: near distances have a number each, far ones share by their logarithm."""
    distance = fm.maximum(p - k, 0)
    far = 8 + fm.floor(fm.log2(fm.maximum(distance, 1) / 8.0) * 2 + 0.25)
    bucket = fm.where(distance < 8, distance, fm.minimum(far, 15))
    return score - 0.1 * (h + 1) * bucket


def by_key(score, b, h, p, k):
    return fm.where((k % 3 == 0) & (p > 2), score * 1.5, score - b)


SCORE_MODS = (alibi, cap, relative, by_key)


class FeaturesTest(unittest.TestCase):
    def setUp(self):
        self.generator = numpy.random.default_rng(11)

    def inputs(self, element, nq=33, nk=70, d=16, hkv=2, batch=2):
        return [
            make(self.generator, element, (batch, h, n, d))
            for h, n in ((HEADS, nq), (hkv, nk), (hkv, nk))
        ]

    def check(self, element, layout="bhsd", inputs=None, poison=True, o_element=None, **options):
        """One call against the reference, rule by rule. `o_element` is the type of `out`, if there is one."""
        (q, q32), (k, k32), (v, v32) = inputs or self.inputs(element)
        batch, heads, nq, _ = q.shape
        nk, group = k.shape[2], heads // k.shape[1]
        kv_len = options.get("kv_len")
        if kv_len is not None and poison:
            # A7: nothing there may matter.
            k, v = k.copy(), v.copy()
            for x, b in itertools.product((k, v), range(batch)):
                x[b, :, max(0, kv_len[b]) :] = 0x7FFF if element == "bf16" else numpy.nan
        bias = options.get("bias")
        if bias is not None:
            kind = "bf16" if bias.dtype == numpy.uint16 else "f32"
            bias = numpy.broadcast_to(to_float(bias, kind), (batch, heads, nq, nk))
        operands = [
            numpy.ascontiguousarray(x.swapaxes(1, 2)) if layout == "bshd" else x for x in (q, k, v)
        ]
        uses_bits = element == "bf16" or (bias is not None and kind == "bf16")
        out = None
        if o_element is not None:
            shapes = operands[0].shape, q.shape[:3]
            out = tuple(numpy.full(shape, numpy.nan, numpy.float32) for shape in shapes)
        o, lse = found = attention(
            *operands,
            layout=layout,
            return_lse=True,
            dtype="bf16" if uses_bits else None,
            out=out,
            **options
        )
        if layout == "bshd":
            o = o.swapaxes(1, 2)
        self.assertEqual((o.shape, lse.shape), (q.shape, q.shape[:3]))
        if out is None:
            self.assertEqual(o.dtype, q.dtype)
        else:
            self.assertTrue(found[0] is out[0] and found[1] is out[1])
            element = o_element  # whose bounds apply: no rounding to the type of q
        o = to_float(o, element)
        keys, difference, norm = numpy.arange(nk)[None, :], 0.0, 0.0
        attn_mask = options.get("attn_mask")
        if attn_mask is not None:
            attn_mask = numpy.broadcast_to(attn_mask, (batch, heads, nq, nk))
        for b, h in itertools.product(range(batch), range(heads)):
            length = nk if kv_len is None else min(nk, max(0, int(kv_len[b])))
            offset = options.get("offset")
            if offset is None:
                offset = length - nq if options.get("align") != "top_left" else 0
            p = numpy.arange(nq)[:, None] + offset
            seen = _reference.visible(options.get("mask"), p, keys, nq, nk) & (keys < length)
            if attn_mask is not None:
                seen = seen & attn_mask[b, h]
            score_mod, sinks = options.get("score_mod"), options.get("sink_logits")
            features = {
                "softcap": options.get("softcap"),
                "modify": score_mod and (lambda s: score_mod(s, b, h, p, keys)),
                "bias": 0 if bias is None else bias[b, h],
                "sink": -numpy.inf if sinks is None else sinks[h],
            }
            heads_of = q32[b, h], k32[b, h // group], v32[b, h // group]
            scale = 1 / math.sqrt(q.shape[3])
            error, bound = _reference.check_head(
                o[b, h], *heads_of, seen, scale, element, **features
            )
            self.assertLessEqual(error, bound)
            exact, exact_lse = _reference.attention_head(
                *(x.astype(numpy.float64) for x in heads_of), seen, scale, **features
            )
            hidden = numpy.isneginf(exact_lse)
            self.assertTrue((lse[b, h][hidden] == -numpy.inf).all())
            self.assertTrue((o[b, h][~seen.any(axis=1)] == 0).all())
            numpy.testing.assert_allclose(
                lse[b, h][~hidden], exact_lse[~hidden], rtol=1e-5, atol=5e-5
            )
            difference += float(((o[b, h] - exact) ** 2).sum())
            norm += float((exact**2).sum())
        self.assertLessEqual(math.sqrt(difference), FROBENIUS[element] * math.sqrt(norm) + 1e-30)

    def grid(self):
        for element, layout in itertools.product(FROBENIUS, ("bhsd", "bshd")):
            with self.subTest(element=element, layout=layout):
                yield element, layout

    def normal(self, *shape):
        return self.generator.standard_normal(shape, numpy.float32)

    def test_bias(self):
        for element, layout in self.grid():
            for kind in ("f16", "bf16", "f32"):
                bias, _ = make(self.generator, kind, (1, HEADS, 33, 70))
                self.check(element, layout, mask=causal, bias=bias)

    def test_broadcasts(self):
        sizes = (2, HEADS, 33, 70)
        for same in itertools.product((False, True), repeat=4):
            shape = tuple(1 if one else n for one, n in zip(same, sizes))
            with self.subTest(shape=shape):
                self.check("f32", bias=self.normal(*shape), attn_mask=self.generator.random(shape) < 0.7)
        for rank in range(4):
            with self.subTest(rank=rank):
                self.check("f32", bias=self.normal(*sizes[4 - rank :]))

    def test_strides_are_read_in_place(self):
        wide = self.normal(2, 33, 2 * HEADS, 75)
        self.check("f32", bias=wide[:, :, ::2, 3:73].swapaxes(1, 2))
        expanded = numpy.broadcast_to(self.normal(HEADS, 1, 1), (2, HEADS, 33, 70))
        self.check("f32", bias=expanded)
        column = self.normal(2, HEADS, 33, 3)[..., 1:2]
        self.check("f32", bias=column)
        kept = self.generator.random((70, 80)) < 0.5
        self.check("f32", attn_mask=kept[2:68:2, 5:75])

    def test_attn_mask(self):
        for element, layout in self.grid():
            attn_mask = self.generator.random((2, 1, 33, 70)) < 0.5
            attn_mask[0, 0, 5] = False  # A6
            self.check(element, layout, attn_mask=attn_mask, mask=window(left=40, right=3))

    def test_attn_mask_of_blocks(self):
        """Tiles that an attn_mask hides are not read: NaN stands there. Rows of some blocks see nothing."""
        nq, nk, block = 150, 333, 64
        documents = numpy.arange(nq)[:, None] // 50 == numpy.arange(nk)[None, :] // 111
        columns = numpy.arange(nk) < 200
        blocks = numpy.kron(self.generator.random((2, 2, 3, 6)) < 0.4, numpy.ones((1, 1, 64, 64)))
        blocks = blocks[..., :nq, :nk].repeat(2, axis=1) > 0
        blocks[:, :, 64:128] = False  # A6
        mixed = blocks & (self.generator.random(blocks.shape) < 0.5)
        padded = numpy.zeros((2, 1, 1, nk), bool)
        padded[0, ..., :180], padded[1, ..., 150:] = True, True
        keeps = (documents, columns, blocks, mixed, padded, blocks[..., :1], numpy.zeros((1, 1), bool))
        sinks = flashattn.sink(3) & causal | window(left=70, right=0)
        lengths = numpy.array((333, 129), numpy.int32)
        others = ({}, {"mask": sinks}, {"mask": causal, "kv_len": lengths})
        for attn_mask, options in itertools.product(keeps, others):
            with self.subTest(attn_mask=attn_mask.shape, **options):
                q, *inputs = self.inputs("f32", nq, nk)
                full = numpy.broadcast_to(attn_mask, (2, HEADS, nq, nk))
                given = [x.copy() for x, _ in inputs]
                for b, first in itertools.product(range(2), range(0, nk, block)):
                    if not full[b, :, :, first : first + block].any():
                        for x in given:
                            x[b, :, first : first + block] = numpy.nan
                inputs = [q, *((x, clean) for x, (_, clean) in zip(given, inputs))]
                self.check("f32", inputs=inputs, attn_mask=attn_mask, **options)

    def test_softcap(self):
        for element, layout in self.grid():
            self.check(element, layout, softcap=2, mask=causal)

    def test_sink_logits(self):
        for element, layout in self.grid():
            sinks = self.normal(HEADS)
            self.check(element, layout, sink_logits=sinks, mask=causal)
            # Rows that see no key: lse = sink.
            q, k = self.inputs(element, 40, 20)[:2]
            self.check(element, layout, inputs=[q, k, k], sink_logits=sinks, mask=causal)

    def test_kv_len(self):
        for element, layout in self.grid():
            for lengths in ((70, 41), (0, 1), (-3, 99)):
                self.check(element, layout, kv_len=numpy.array(lengths, numpy.int32), mask=causal)

    def test_offset(self):
        for element, layout in self.grid():
            for offset in (0, 5, numpy.int64(-4), 100):
                self.check(element, layout, offset=offset, mask=causal)
        kernels = len(flashattn._cache.cache.kernels)
        self.check("f32", offset=17, mask=causal)
        self.assertEqual(len(flashattn._cache.cache.kernels), kernels)

    def test_score_mod(self):
        for element, layout in self.grid():
            for score_mod in SCORE_MODS:
                self.check(element, layout, score_mod=score_mod, mask=causal)

    def test_capping_by_hand_is_softcap(self):
        q, k, v = (x for x, _ in self.inputs("f32"))
        numpy.testing.assert_allclose(
            attention(q, k, v, score_mod=cap), attention(q, k, v, softcap=5), rtol=0, atol=1e-6
        )

    def test_division_by_0_does_not_trap(self):
        """Pairs that `where` or the mask leaves out are computed all the same."""
        for score_mod in (
            lambda score, b, h, p, k: fm.where(k > 0, score + p // k + p % k, score),
            lambda score, b, h, p, k: score + 0 * (k // (p * 0)),
            lambda score, b, h, p, k: score + 0 * ((p * 0 - 2147483647 - 1) // (k * 0 - 1)),
        ):
            q, k, v = (x for x, _ in self.inputs("f32"))
            self.assertTrue(numpy.isfinite(attention(q, k, v, score_mod=score_mod)).all())

    def test_out_in_f32(self):
        """By the bounds of f32, which are below the rounding of 16 bits."""
        lengths = numpy.array([70, 41], numpy.int32)
        for element, layout in itertools.product(("f16", "bf16"), ("bhsd", "bshd")):
            attn_mask = self.generator.random((2, 1, 33, 70)) < 0.5
            for options in (
                {},
                {"mask": causal, "bias": self.normal(1, HEADS, 33, 70)},
                {"mask": window(left=40, right=3), "attn_mask": attn_mask, "sink_logits": self.normal(HEADS)},
                {"mask": causal, "kv_len": lengths, "softcap": 2, "score_mod": alibi},
            ):
                for hkv in (1, 2, HEADS):
                    with self.subTest(element=element, layout=layout, hkv=hkv, options=sorted(options)):
                        inputs = self.inputs(element, hkv=hkv)
                        self.check(element, layout, inputs, o_element="f32", **options)
            for nq in (1, 3):  # kernels for few queries
                self.check(element, layout, self.inputs(element, nq), o_element="f32", mask=causal)

    def exact(self, values):
        """Returns the result of a causal call in float64."""
        q, k, v = (x.astype(numpy.float64) for x in values)
        nq, nk, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
        positions = numpy.arange(nq)[:, None] + nk - nq
        seen = _reference.visible(causal, positions, numpy.arange(nk)[None, :], nq, nk)
        heads = numpy.ndindex(q.shape[:2])
        rows = [
            _reference.attention_head(q[b, h], k[b, h // group], v[b, h // group], seen, q.shape[3] ** -0.5)[0]
            for b, h in heads
        ]
        return numpy.reshape(rows, (*q.shape[:3], v.shape[3]))

    def check_turns(self, call, make_out, types, errors, most):
        """Calls without `out`, with one in f32 and with one of 16 bits, in turns that find plans of earlier calls:
        each has the type and the bits of its first result. `errors` gives the error of a result, of which that in f32
        is `most` of the other at most."""
        plans, kernels = (len(x) for x in (_cache.cache.plans, _cache.cache.kernels))
        first = {}
        for turn, own in itertools.product(range(5), ("none", "f32", "16 bits", "f32", "none", "16 bits")):
            out = None if own == "none" else make_out(types[own])
            o, lse = call(out)
            self.assertTrue(out is None or (o is out[0] and lse is out[1]))
            self.assertEqual(o.dtype, types["f32" if own == "f32" else "16 bits"], (turn, own))
            expected = first.setdefault(own, (o, lse))
            self.assertTrue((o == expected[0]).all() and (lse == expected[1]).all(), (turn, own))
        self.assertTrue((first["none"][0] == first["16 bits"][0]).all())
        self.assertLessEqual(errors(first["f32"][0]), most * errors(first["none"][0]))
        found = (len(x) for x in (_cache.cache.plans, _cache.cache.kernels))
        self.assertEqual(tuple(found), (plans + 3, kernels + 2))

    def test_out_of_both_types_in_turns(self):
        for element in ("f16", "bf16"):
            with self.subTest(element=element):
                _cache.cache.clear()
                inputs, values = zip(*self.inputs(element))
                exact = self.exact(values)

                def error(o):
                    found = to_float(o, element if o.dtype != numpy.float32 else "f32")
                    return numpy.linalg.norm(found - exact)

                self.check_turns(
                    lambda out: attention(
                        *inputs, mask=causal, out=out, return_lse=True, dtype="bf16" if element == "bf16" else None
                    ),
                    lambda dtype: (numpy.empty(exact.shape, dtype), numpy.empty(exact.shape[:3], numpy.float32)),
                    {"f32": numpy.float32, "16 bits": inputs[0].dtype},
                    error,
                    1e-2,
                )

    def test_out_of_both_types_in_turns_of_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        devices = ["cpu"] + ["cuda"] * torch.cuda.is_available()
        attention(*(torch.zeros(1, 1, 1, 16) for _ in range(3)))  # the package learns of torch
        for device, dtype in itertools.product(devices, (torch.float16, torch.bfloat16)):
            with self.subTest(device=device, dtype=dtype):
                _cache.cache.clear()
                values = [y for _, y in self.inputs("f32")]
                inputs = [torch.from_numpy(y).to(device, dtype) for y in values]
                exact = self.exact([x.float().cpu().numpy() for x in inputs])
                self.check_turns(
                    lambda out: attention(*inputs, mask=causal, out=out, return_lse=True),
                    lambda dtype: (
                        torch.empty(exact.shape, dtype=dtype, device=device),
                        torch.empty(exact.shape[:3], device=device),
                    ),
                    {"f32": torch.float32, "16 bits": dtype},
                    lambda o: numpy.linalg.norm(o.double().cpu().numpy() - exact),
                    # A GPU rounds the probabilities.
                    1e-2 if device == "cpu" else 0.85,
                )
                rows = [x.transpose(1, 2) for x in inputs]  # strides of layout bshd
                out = torch.empty(rows[0].shape, device=device)
                self.assertIs(attention(*rows, mask=causal, out=out, layout="bshd"), out)
                o = torch.empty(exact.shape, device=device)
                torch.testing.assert_close(out.transpose(1, 2), attention(*inputs, mask=causal, out=o))
                inputs[0].requires_grad_()
                with self.assertRaisesRegex(UnsupportedError, "^expected no out in a call that torch records"):
                    attention(*inputs, mask=causal, out=o)

    def test_out_of_other_types(self):
        for element, given, others in (
            ("f16", numpy.float16, (numpy.float64, numpy.int32, numpy.uint16)),
            ("bf16", numpy.uint16, (numpy.float64, numpy.float16, numpy.int16)),
        ):
            q, k, v = (x for x, _ in self.inputs(element))
            for other in others:
                options = {"dtype": "bf16" if element == "bf16" else None}
                for turn in range(2):
                    name = _tensors.parse_element(numpy.dtype(other))
                    with self.assertRaisesRegex(
                        ArgumentError, f"^expected 'o' with element type {element} or f32 but got {name}$"
                    ):
                        attention(q, k, v, out=numpy.empty(q.shape, other), **options)
                    # Neither type leads to a plan for the other.
                    attention(q, k, v, out=numpy.empty(q.shape, (numpy.float32, given)[turn]), **options)
            with self.assertRaisesRegex(ArgumentError, "^expected 'lse' with element type f32 but got f16$"):
                lse = numpy.empty(q.shape[:3], numpy.float16)
                attention(q, k, v, return_lse=True, out=(numpy.empty(q.shape, "f4"), lse), **options)
        q, k, v = (x for x, _ in self.inputs("f32"))
        with self.assertRaisesRegex(ArgumentError, "^expected 'o' with element type f32 but got f16$"):
            attention(q, k, v, out=numpy.empty(q.shape, numpy.float16))

    def test_out_of_a_compiled_kernel(self):
        """Its type is compiled in."""
        q, k, v = (x for x, _ in self.inputs("f16"))
        o = numpy.empty(q.shape, numpy.float32)
        expected = attention(q, k, v)
        kernel = flashattn.compile(head_dim=16, chip="cpu")
        wide = flashattn.Kernel(kernel.problem._replace(o_element="f32"), "cpu", kernel.device)
        for turn in range(3):
            wide.launch(q, k, v, o)
            numpy.testing.assert_array_equal(o.astype(numpy.float16), expected)
            half = numpy.empty_like(q)
            kernel.launch(q, k, v, half)
            numpy.testing.assert_array_equal(half, expected)
            with self.assertRaisesRegex(ArgumentError, "^expected 'o' with element type f16 but got f32$"):
                kernel.launch(q, k, v, o)
            with self.assertRaisesRegex(ArgumentError, "^expected 'o' with element type f32 but got f16$"):
                wide.launch(q, k, v, half)

    def test_default_types_of_numpy(self):
        """Lists, int64 and float64 are what arrays of the operand's own type are."""
        q, k, v = (x for x, _ in self.inputs("f32"))
        batch, heads, keys = q.shape[0], q.shape[1], k.shape[2]
        lengths, sinks = [keys - 2] * batch, [0.25 * h for h in range(heads)]
        attn_mask = [[n % 3 > 0 for n in range(keys)]]
        bias = [[0.5 * (n % 2) for n in range(keys)]]
        expected = attention(
            q, k, v, kv_len=numpy.array(lengths, numpy.int32), attn_mask=numpy.array(attn_mask),
            sink_logits=numpy.array(sinks, numpy.float32), bias=numpy.array(bias, numpy.float32),
        )  # fmt: skip
        kernels = len(flashattn._cache.cache.kernels)
        for make in (list, numpy.array):
            bias_given = bias if make is list else numpy.array(bias, numpy.float32)
            found = attention(
                q, k, v, kv_len=make(lengths), attn_mask=make(attn_mask), sink_logits=make(sinks), bias=bias_given
            )  # fmt: skip
            numpy.testing.assert_array_equal(found, expected)
        self.assertEqual(len(flashattn._cache.cache.kernels), kernels)

    def test_captured_numbers(self):
        """A captured number is compiled in anew where it changes, and the same text is found."""
        q, k, v = (x for x, _ in self.inputs("f32"))

        def scaled(factor):
            return lambda score, b, h, p, k: score * factor

        first, second = (attention(q, k, v, score_mod=scaled(x)) for x in (1.0, 2.0))
        numpy.testing.assert_allclose(first, attention(q, k, v), rtol=0, atol=1e-6)
        numpy.testing.assert_allclose(second, attention(q, k, v, scale=0.5), rtol=0, atol=1e-6)
        kernels = len(flashattn._cache.cache.kernels)
        numpy.testing.assert_array_equal(attention(q, k, v, score_mod=scaled(2.0)), second)
        self.assertEqual(len(flashattn._cache.cache.kernels), kernels)

    def test_together(self):
        """M7: any of them with any other."""
        chooser = random.Random(12)
        for number in range(60):
            element, layout = chooser.choice(list(FROBENIUS)), chooser.choice(("bhsd", "bshd"))
            nq, nk = chooser.randint(1, 50), chooser.randint(1, 90)
            sizes = (2, HEADS, nq, nk)

            def shape():
                return tuple(chooser.choice((1, n)) for n in sizes)

            options = {
                "mask": chooser.choice((None, causal, window(left=9, right=4))),
                "bias": self.normal(*shape()),
                "attn_mask": self.generator.random(shape()) < 0.8,
                "softcap": chooser.choice((1.5, 20)),
                "sink_logits": self.normal(HEADS),
                "kv_len": self.generator.integers(0, nk + 3, 2).astype(numpy.int32),
                "offset": chooser.randint(-5, 60),
                "score_mod": chooser.choice(SCORE_MODS),
            }
            chosen = {name: value for name, value in options.items() if chooser.random() < 0.5}
            with self.subTest(number=number, element=element, layout=layout, chosen=sorted(chosen)):
                self.check(element, layout, self.inputs(element, nq, nk), **chosen)

    def test_compiled(self):
        (q, _), (k, _), (v, _) = self.inputs("f32")
        bias, attn_mask = self.normal(1, HEADS, 33, 70), self.generator.random((2, 1, 1, 70)) < 0.7
        sinks, lengths = self.normal(HEADS), numpy.array([60, 70], numpy.int32)
        kernel = flashattn.compile(
            head_dim=16, dtype="f32", chip="cpu", mask=causal, softcap=3, score_mod=alibi,
            bias=("f32", (1, None, None, None)), attn_mask=(None, 1, 1, None), sink_logits=True, kv_len=True,
            offset=True, return_lse=True,
        )  # fmt: skip
        self.assertIn("score_mod", kernel.mlir)
        o, lse = numpy.empty_like(q), numpy.empty((2, HEADS, 33), numpy.float32)
        operands = {
            "bias": bias,
            "attn_mask": attn_mask,
            "sink_logits": sinks,
            "kv_len": lengths,
            "offset": 9,
        }
        kernel.launch(q, k, v, o, lse, **operands)
        expected, expected_lse = attention(
            q, k, v, mask=causal, softcap=3, score_mod=alibi, return_lse=True, **operands
        )
        numpy.testing.assert_array_equal(o, expected)
        numpy.testing.assert_array_equal(lse, expected_lse)
        # A size of 1 that the kernel does not count on, and one that repeats.
        kernel.launch(
            q[:1], k[:1], v[:1], o[:1], lse[:1], **dict(operands, attn_mask=attn_mask[:1], kv_len=lengths[:1])
        )
        numpy.testing.assert_array_equal(o, expected)
        repeated = numpy.broadcast_to(attn_mask[:1], attn_mask.shape)
        kernel.launch(q, k, v, o, lse, **dict(operands, attn_mask=repeated))
        expected = attention(
            q, k, v, mask=causal, softcap=3, score_mod=alibi, **dict(operands, attn_mask=repeated)
        )
        numpy.testing.assert_array_equal(o, expected)

    def test_dlpack_and_nothing_to_compute(self):
        class Foreign:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        q, k, v = (x for x, _ in self.inputs("f32"))
        bias, lengths = self.normal(33, 70), numpy.array([60, 70], numpy.int32)
        expected = attention(q, k, v, bias=bias, kv_len=lengths)
        found = attention(*map(Foreign, (q, k, v)), bias=Foreign(bias), kv_len=Foreign(lengths))
        numpy.testing.assert_array_equal(found, expected)
        o = attention(q, k[:, :, :0], v[:, :, :0], bias=bias[:, :0], softcap=3)
        self.assertTrue((o == 0).all())
        self.assertEqual(attention(q[:, :, :0], k, v, bias=bias[:0]).shape, (2, HEADS, 0, 16))


if __name__ == "__main__":
    unittest.main()
