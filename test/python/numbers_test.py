# Numbers on the CPU against float64: masks, types, head groupings, odd lengths, layouts and
# strides.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import itertools
import math
import unittest

import numpy
from flashattn import _reference, affine_set, attention, causal, sink, window

MASKS = {
    "none": None,
    "causal": causal,
    "window": window(left=15, right=0),
    "both sides": window(left=3, right=9),
    "sink": window(left=6, right=0) | sink(2) & causal,
    "set": affine_set("(p, k)[nq, nk] : (p - k >= 0, k - 32 * (p floordiv 32) >= 0)")
    | affine_set("(p, k)[nq, nk] : (p - k >= 0, k mod 16 == 0)"),
    "lengths": affine_set("(p, k)[nq, nk] : (nk - 3 - k >= 0)"),
}
LENGTHS = ((1, 1), (1, 113), (17, 64), (113, 203), (64, 17), (203, 113))
GROUPINGS = ((4, 4), (4, 2), (3, 1))
FROBENIUS = _reference.FROBENIUS


def make(generator, element, shape):
    """An array of the type and its values as float32."""
    values = generator.standard_normal(shape, dtype=numpy.float32)
    if element == "f32":
        return values, values
    if element == "f16":
        half = values.astype(numpy.float16)
        return half, half.astype(numpy.float32)
    bits = _reference.bf16_from_f32(values)
    return bits, _reference.f32_from_bf16(bits)


def to_float(array, element):
    return _reference.f32_from_bf16(array) if element == "bf16" else array.astype(numpy.float32)


class NumbersTest(unittest.TestCase):
    def compare(self, o, lse, q, k, v, mask, element, scale=None, align="bottom_right"):
        """All of bhsd, q, k and v as float32."""
        nq, nk, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
        scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
        offset = nk - nq if align == "bottom_right" else 0
        seen = _reference.visible(
            mask, numpy.arange(nq)[:, None] + offset, numpy.arange(nk)[None, :], nq, nk
        )
        difference = norm = 0.0
        for b, h in itertools.product(range(q.shape[0]), range(q.shape[1])):
            operands = q[b, h], k[b, h // group], v[b, h // group]
            error, bound = _reference.check_head(o[b, h], *operands, seen, scale, element)
            self.assertLessEqual(error, bound)
            exact, exact_lse = _reference.attention_head(
                *(x.astype(numpy.float64) for x in operands), seen, scale
            )
            difference += float(((o[b, h] - exact) ** 2).sum())
            norm += float((exact**2).sum())
            if lse is not None:
                hidden = ~seen.any(axis=1)
                self.assertTrue((lse[b, h][hidden] == -numpy.inf).all())  # rule A6
                self.assertTrue((o[b, h][hidden] == 0).all())
                numpy.testing.assert_allclose(
                    lse[b, h][~hidden], exact_lse[~hidden], rtol=0, atol=2e-5
                )
        self.assertLessEqual(math.sqrt(difference), FROBENIUS[element] * math.sqrt(norm) + 1e-30)

    def test_grid(self):
        generator = numpy.random.default_rng(1)
        cases = itertools.product(MASKS.items(), FROBENIUS, GROUPINGS, LENGTHS)
        for (name, mask), element, (hq, hkv), (nq, nk) in cases:
            with self.subTest(mask=name, element=element, heads=(hq, hkv), lengths=(nq, nk)):
                q, q32 = make(generator, element, (2, hq, nq, 32))
                k, k32 = make(generator, element, (2, hkv, nk, 32))
                v, v32 = make(generator, element, (2, hkv, nk, 32))
                dtype = "bf16" if element == "bf16" else None
                o, lse = attention(q, k, v, mask=mask, return_lse=True, dtype=dtype)
                self.assertEqual((o.shape, o.dtype, lse.shape), (q.shape, q.dtype, q.shape[:3]))
                self.assertEqual(lse.dtype, numpy.float32)
                self.compare(to_float(o, element), lse, q32, k32, v32, mask, element)

    def test_head_dimensions(self):
        generator = numpy.random.default_rng(2)
        for d, dv in ((16, 16), (64, 64), (128, 128), (64, 32), (20, 12), (256, 256)):
            with self.subTest(d=d, dv=dv):
                q, k, v = (
                    generator.standard_normal((1, 2, n, w), numpy.float32)
                    for n, w in ((33, d), (47, d), (47, dv))
                )
                o = attention(q, k, v, mask=causal)
                self.assertEqual(o.shape, (1, 2, 33, dv))
                self.compare(o, None, q, k, v, causal, "f32")

    def test_scale_and_align(self):
        generator = numpy.random.default_rng(3)
        q, k, v = (generator.standard_normal((1, 2, n, 32), numpy.float32) for n in (33, 47, 47))
        for scale, align in ((0.3, "bottom_right"), (1, "top_left"), (2.5e-3, "top_left")):
            with self.subTest(scale=scale, align=align):
                o, lse = attention(q, k, v, mask=causal, scale=scale, align=align, return_lse=True)
                self.compare(o, lse, q, k, v, causal, "f32", scale, align)

    def test_bshd_gives_the_same_numbers(self):
        generator = numpy.random.default_rng(4)
        q, k, v = (
            generator.standard_normal((2, h, n, 32), numpy.float32)
            for h, n in ((4, 33), (2, 47), (2, 47))
        )
        o, lse = attention(q, k, v, mask=causal, return_lse=True)
        swapped = [numpy.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
        o2, lse2 = attention(*swapped, mask=causal, return_lse=True, layout="bshd")
        self.assertEqual(o2.shape, (2, 33, 4, 32))
        numpy.testing.assert_array_equal(o2.swapaxes(1, 2), o)
        numpy.testing.assert_array_equal(lse2, lse)

    def test_strides_are_read_in_place(self):
        generator = numpy.random.default_rng(5)
        q, k, v = (
            generator.standard_normal((2, h, n, 32), numpy.float32)
            for h, n in ((4, 33), (2, 47), (2, 47))
        )
        expected = attention(q, k, v)
        packed = numpy.concatenate([x.swapaxes(1, 2).reshape(2, -1, 32) for x in (q, k, v)], axis=1)
        views, at = [], 0
        for x in (q, k, v):
            count = x.shape[1] * x.shape[2]
            rows = packed[:, at : at + count].reshape(2, x.shape[2], x.shape[1], 32)
            self.assertTrue(numpy.shares_memory(rows, packed))
            views.append(rows.swapaxes(1, 2))
            at += count
        numpy.testing.assert_array_equal(attention(*views), expected)
        # One key/value head for all by a stride of 0, and columns of wider rows.
        shared = attention(q, *(numpy.broadcast_to(x[:, :1], (2, 4, 47, 32)) for x in (k, v)))
        numpy.testing.assert_array_equal(shared, attention(q, k[:, :1], v[:, :1]))
        wide = generator.standard_normal((2, 4, 33, 40), numpy.float32)
        wide[..., 3:35] = q
        numpy.testing.assert_array_equal(attention(wide[..., 3:35], k, v), expected)

    def test_out_is_written_and_nothing_else(self):
        generator = numpy.random.default_rng(6)
        q, k, v = (generator.standard_normal((1, 2, n, 32), numpy.float32) for n in (33, 47, 47))
        expected, expected_lse = attention(q, k, v, return_lse=True)
        frame = numpy.full((1, 2, 35, 40), numpy.nan, numpy.float32)
        o, lse = frame[:, :, 1:34, 4:36], numpy.full((1, 2, 33), numpy.nan, numpy.float32)
        result = attention(q, k, v, return_lse=True, out=(o, lse))
        self.assertIs(result[0], o)
        self.assertIs(result[1], lse)
        numpy.testing.assert_array_equal(o, expected)
        numpy.testing.assert_array_equal(lse, expected_lse)
        o.fill(numpy.nan)
        self.assertTrue(numpy.isnan(frame).all())
        self.assertIs(attention(q, k, v, out=o), o)
        numpy.testing.assert_array_equal(o, expected)

    def test_nothing_to_compute(self):
        for shape in ((0, 2, 5, 16), (2, 2, 0, 16)):
            q, k = numpy.ones(shape, numpy.float32), numpy.ones((shape[0], 2, 7, 16), numpy.float32)
            o, lse = attention(q, k, k, return_lse=True)
            self.assertEqual((o.shape, lse.shape), (shape, shape[:3]))
        q, k = numpy.ones((1, 2, 5, 16), numpy.float32), numpy.ones((1, 2, 0, 16), numpy.float32)
        o, lse = attention(q, k, k, return_lse=True)
        self.assertTrue((o == 0).all() and (lse == -numpy.inf).all())

    def test_pinned_schedules(self):
        generator = numpy.random.default_rng(7)
        q, k, v = (generator.standard_normal((1, 2, n, 32), numpy.float32) for n in (33, 47, 47))
        text = "tile_m = 16, tile_n = 16, stages = 1, dot_type = f32, mapping = cpu"
        for schedule in (
            {"tile_m": 8, "tile_n": 32},
            {"tile_m": 16, "tile_n": 16, "cpu": {}},
            text,
        ):
            with self.subTest(schedule=schedule):
                o, lse = attention(q, k, v, mask=causal, return_lse=True, schedule=schedule)
                self.compare(o, lse, q, k, v, causal, "f32")

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        generator = numpy.random.default_rng(8)
        q = generator.standard_normal((1, 2, 33, 32), numpy.float32).astype(ml_dtypes.bfloat16)
        o = attention(q, q, q)
        self.assertEqual(o.dtype, ml_dtypes.bfloat16)
        bits = q.view(numpy.uint16)
        numpy.testing.assert_array_equal(
            o.view(numpy.uint16), attention(bits, bits, bits, dtype="bf16")
        )

    def test_dlpack(self):
        class Foreign:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        generator = numpy.random.default_rng(9)
        q, k, v = (generator.standard_normal((1, 2, n, 32), numpy.float32) for n in (33, 47, 47))
        o = attention(
            *(Foreign(x.swapaxes(0, 1)) for x in (q, k, v)),
            out=numpy.empty((2, 1, 33, 32), numpy.float32)
        )
        expected = attention(*(x.swapaxes(0, 1) for x in (q, k, v)))
        numpy.testing.assert_array_equal(o, expected)
        numpy.testing.assert_array_equal(attention(*map(Foreign, (q, k, v))), attention(q, k, v))


if __name__ == "__main__":
    unittest.main()
