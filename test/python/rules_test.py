# Rules A1 to A9 and M1 to M7 of the op's description, one test each, on the CPU: what the rule
# says, written out in float64, and where a rule could be misread also what it does not say.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import itertools
import math
import unittest
import warnings

import flashattn
import numpy
from flashattn import affine_set, attention, causal, sink, window

NAN, INF = numpy.nan, numpy.inf


def distance(found, expected):
    """Relative Frobenius norm."""
    expected = numpy.asarray(expected, numpy.float64)
    return numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected)


def visible_softmax(scores, seen):
    """Rows of e^(s - m) / l of float64 scores, where some key of each row is seen, and lse."""
    scores = numpy.where(seen, scores, -INF)
    m = scores.max(axis=-1, keepdims=True)
    e = numpy.exp(scores - m)
    l = e.sum(axis=-1, keepdims=True)
    return e / l, (m + numpy.log(l))[..., 0]


class RulesTest(unittest.TestCase):
    def setUp(self):
        self.generator = numpy.random.default_rng(5)

    def normal(self, *shape):
        return self.generator.standard_normal(shape, numpy.float32)

    def inputs(self, nq, nk, heads=1, d=16, dv=16, hkv=None, batch=1):
        hkv = hkv or heads
        return (
            self.normal(batch, heads, nq, d),
            self.normal(batch, hkv, nk, d),
            self.normal(batch, hkv, nk, dv),
        )

    def dots(self, q, k):
        return q.astype(numpy.float64) @ k.astype(numpy.float64).swapaxes(-1, -2)

    def near(self, found, expected, bound=1e-5):
        self.assertLess(distance(found, expected), bound)

    def far(self, found, other):
        self.assertGreater(distance(found, other), 1e-2)

    def keys_seen(self, nq, nk, **options):
        """The keys that each query of one head reads: with equal scores and one-hot values an
        output's element is not 0 where the key is seen."""
        q, k = (numpy.zeros((1, 1, n, 16), numpy.float32) for n in (nq, nk))
        v = numpy.eye(nk, dtype=numpy.float32)[None, None]
        o = attention(q, k, v, **options)[0, 0]
        seen = o != 0
        counts = seen.sum(axis=1, keepdims=True)
        # Each seen key counts as much as any other.
        numpy.testing.assert_allclose(o, numpy.where(seen, 1 / numpy.maximum(counts, 1), 0), 1e-5)
        return seen

    def test_a1_scale_and_accumulation(self):
        q, k, v = self.inputs(9, 20, d=24)
        for scale, factor in ((None, 1 / math.sqrt(24)), (0.7, 0.7)):
            p, lse = visible_softmax(factor * self.dots(q, k), True)
            o, found = attention(q, k, v, scale=scale, return_lse=True)
            self.near(o, p @ v)
            self.near(found, lse)
        # 1 is lost against 2048 in a sum of f16: every product of f16 and bf16 adds up in f32.
        for dtype, one, large in (("f16", 1, 2048), ("bf16", 1, 256)):
            row = numpy.full((1, 1, 1, 256), one, numpy.float32)
            row[..., 0] = large
            ones = numpy.ones((1, 1, 1, 256), numpy.float32)
            if dtype == "f16":
                row, ones = row.astype(numpy.float16), ones.astype(numpy.float16)
            else:
                row, ones = ((x.view(numpy.uint32) >> 16).astype(numpy.uint16) for x in (row, ones))
            bits = "bf16" if dtype == "bf16" else None
            _, lse = attention(row, ones, ones, scale=1.0, dtype=bits, return_lse=True)
            self.assertEqual(lse.item(), large + 255)

    def test_a2_order(self):
        """Each of the five changes what the next one gets, so that no other order gives this."""
        nq, nk, factor, cap = 6, 30, 0.9, 1.5
        q, k, v = self.inputs(nq, nk)
        bias = self.normal(nq, nk)
        steps = {
            "scale": lambda s: factor * s,
            "softcap": lambda s: cap * numpy.tanh(s / cap),
            "score_mod": lambda s: s * s - 0.5 * s,
            "bias": lambda s: s + bias,
        }
        seen = numpy.arange(nk) <= numpy.arange(nq)[:, None] + nk - nq
        found, lse = attention(
            q, k, v, mask=causal, scale=factor, softcap=cap, bias=bias, return_lse=True,
            score_mod=lambda s, b, h, p, key: s * s - 0.5 * s,
        )  # fmt: skip
        for order in itertools.permutations(steps):
            scores = self.dots(q, k)
            for name in order:
                scores = steps[name](scores)
            p, expected = visible_softmax(scores, seen)
            if order == tuple(steps):
                self.near(found, p @ v)
                self.near(lse, expected)
            else:
                with self.subTest(order=order):
                    self.far(found, p @ v)
        # The mask comes last: no bias brings a hidden key back.
        pushed = numpy.where(seen, bias, numpy.float32(1e30))
        again = attention(
            q, k, v, mask=causal, scale=factor, softcap=cap, bias=pushed,
            score_mod=lambda s, b, h, p, key: s * s - 0.5 * s,
        )  # fmt: skip
        numpy.testing.assert_array_equal(again, found)

    def test_a3_position(self):
        def causal_from(first, nq, nk):
            return numpy.arange(nk) <= numpy.arange(nq)[:, None] + first

        for nq, nk in ((7, 20), (20, 7), (12, 12)):
            for options, first in (
                ({}, nk - nq),
                ({"align": "bottom_right"}, nk - nq),
                ({"align": "top_left"}, 0),
                ({"offset": 3}, 3),
                ({"offset": -4}, -4),  # negative positions see no causal key
                ({"offset": 3, "align": "top_left"}, 3),
                ({"kv_len": numpy.array([5], numpy.int32)}, 5 - nq),
                ({"kv_len": numpy.array([5], numpy.int32), "align": "top_left"}, 0),
                ({"kv_len": numpy.array([5], numpy.int32), "offset": 2}, 2),
            ):
                with self.subTest(nq=nq, nk=nk, options=options):
                    expected = causal_from(first, nq, nk)
                    if "kv_len" in options:
                        expected = expected & (numpy.arange(nk) < 5)
                    found = self.keys_seen(nq, nk, mask=causal, **options)
                    numpy.testing.assert_array_equal(found, expected)
        # A score modification gets the same position.
        q, k, v = self.inputs(5, 9)
        for options, first in (({}, 4), ({"align": "top_left"}, 0), ({"offset": -2}, -2)):
            positions, keys = numpy.arange(5)[:, None] + first, numpy.arange(9)
            scores = self.dots(q, k) / 4 - 0.3 * positions * keys
            p, _ = visible_softmax(scores, True)
            o = attention(q, k, v, score_mod=lambda s, b, h, p, k: s - 0.3 * p * k, **options)
            self.near(o, p @ v)

    def test_a4_heads(self):
        """Six query heads on one, two, three and six key/value heads."""
        for hkv in (1, 2, 3, 6):
            q, k, v = self.inputs(5, 11, heads=6, hkv=hkv)
            o = attention(q, k, v)
            for h in range(6):
                for head in range(hkv):
                    p, _ = visible_softmax(self.dots(q[0, h], k[0, head]) / 4, True)
                    (self.near if head == h // (6 // hkv) else self.far)(o[0, h], p @ v[0, head])

    def test_a5_softmax_and_lse(self):
        q, k, v = self.inputs(5, 40, heads=2, dv=24)
        # Large scores: only the difference to the row's greatest enters an exponent.
        for scale in (0.25, 60.0):
            scores = scale * self.dots(q, k)
            p, lse = visible_softmax(scores, True)
            o, found = attention(q, k, v, scale=scale, return_lse=True)
            self.near(o, p @ v)
            self.near(found, lse)
        # A sink joins the denominator as one more key would whose value is 0.
        sinks = numpy.array([1.5, -2.0], numpy.float32)
        column = numpy.broadcast_to(sinks[None, :, None, None].astype(numpy.float64), (1, 2, 5, 1))
        p, lse = visible_softmax(numpy.concatenate([0.25 * self.dots(q, k), column], axis=3), True)
        o, found = attention(q, k, v, sink_logits=sinks, return_lse=True)
        self.near(o, p[..., :-1] @ v)
        self.near(found, lse)

    def test_a5_scores_of_any_size(self):
        """Any finite score counts as it is. A number that all keys of a row have takes nothing from their weights."""
        q, k, v = self.inputs(6, 50, heads=2)
        scores = self.dots(q, k) / 4
        hidden, shown = slice(0, 20), slice(20, 50)
        wanted, wanted_lse = visible_softmax(scores[..., shown], True)
        least = numpy.finfo(numpy.float32).min
        for number in (least, numpy.float32(-1e20), numpy.float32(-1e10), numpy.float32(-1e9), -INF):
            with self.subTest(number=number):
                for low in (hidden, slice(30, 50)):  # the first keys or the last ones
                    bias = numpy.zeros((1, 1, 6, 50), numpy.float32)
                    bias[..., low] = number
                    seen = bias[0, 0, 0] == 0
                    p, expected = visible_softmax(scores[..., seen], True)
                    o, lse = attention(q, k, v, bias=bias, return_lse=True)
                    self.near(o, p @ v[:, :, seen])
                    self.near(lse, expected)
        # A row of such numbers alone: beside them a score is nothing, so that it is the mean of the values.
        for number in (least, numpy.float32(-1e20), numpy.float32(1e20)):
            bias = numpy.zeros((1, 1, 6, 50), numpy.float32)
            bias[..., hidden] = least
            bias[..., 3, :] = number
            o, lse = attention(q, k, v, bias=bias, return_lse=True)
            rest = numpy.arange(6) != 3
            self.near(o[:, :, 3], v.astype(numpy.float64).mean(axis=2))
            self.near(lse[:, :, 3], numpy.full((1, 2), number, numpy.float64))
            self.near(o[:, :, rest], (wanted @ v[:, :, shown])[:, :, rest])
            self.near(lse[:, :, rest], wanted_lse[:, :, rest])
        # Large products of queries and keys, in bf16: each row sees equal scores of 1.4e11.
        large = numpy.full((1, 1, 4, 64), 133120, numpy.float32)
        large, ones = ((x.view(numpy.uint32) >> 16).astype(numpy.uint16) for x in (large, numpy.ones_like(large)))
        o, lse = attention(large, large, ones, dtype="bf16", return_lse=True)
        self.assertTrue((o == ones).all())
        self.near(lse, numpy.full((1, 1, 4), 133120.0**2 * 64 / 8))
        # Scores that a scale, or a score_mod, makes large.
        for options in ({"scale": 1e12}, {"score_mod": lambda s, b, h, p, key: s * 4e12}):
            o, lse = attention(q, k, v, return_lse=True, **options)
            largest = scores.argmax(axis=-1)
            self.near(o, numpy.take_along_axis(v, largest[..., None], axis=2))
            self.near(lse, 4e12 * scores.max(axis=-1))

    def test_a5_gradients_of_rows_with_large_numbers(self):
        """What is added to a whole row changes no gradient, beyond what it rounds of the scores."""
        q, k, v = self.inputs(6, 50)
        o, lse = attention(q, k, v, return_lse=True)
        do = self.normal(*o.shape)
        wanted = flashattn.attention_backward(q, k, v, o, lse, do)
        for number in (-1e3, -1e4, -1e6):
            bias = numpy.full((1, 1, 6, 50), number, numpy.float32)
            # The scores as the op rounds them: f32 has no more of them beside the number.
            rounded = (self.dots(q, k) / 4).astype(numpy.float32) + bias
            p, _ = visible_softmax(rounded.astype(numpy.float64), True)
            o, lse = attention(q, k, v, bias=bias, return_lse=True)
            found = flashattn.attention_backward(q, k, v, o, lse, do, bias=bias)
            dp = do.astype(numpy.float64) @ v.astype(numpy.float64).swapaxes(-1, -2)
            ds = p * (dp - (dp * p).sum(-1, keepdims=True))
            exact = (ds @ k / 4, ds.swapaxes(-1, -2) @ q / 4, p.swapaxes(-1, -2) @ do)
            for x, y in zip(found, exact):
                self.near(x, y)
            if number == -1e3:
                for x, y in zip(found, wanted):
                    self.near(x, y, 1e-3)

    def test_a6_rows_without_keys(self):
        q, k, v = self.inputs(9, 4, heads=2)  # queries 0 to 4 stand before the first key
        sinks = numpy.array([0.5, -3.0], numpy.float32)
        nothing = numpy.zeros(1, numpy.int32)
        for options, rows in (
            ({"mask": causal}, slice(0, 5)),
            ({"attn_mask": numpy.zeros((9, 1), bool)}, slice(0, 9)),
            ({"kv_len": nothing}, slice(0, 9)),
            ({"bias": numpy.full((1, 1), -INF, numpy.float32)}, slice(0, 9)),
        ):
            with self.subTest(options=list(options)):
                o, lse = attention(q, k, v, return_lse=True, **options)
                self.assertTrue((o[:, :, rows] == 0).all())
                self.assertTrue((lse[:, :, rows] == -INF).all())
                o, lse = attention(q, k, v, return_lse=True, sink_logits=sinks, **options)
                self.assertTrue((o[:, :, rows] == 0).all())
                expected = numpy.broadcast_to(sinks[None, :, None], lse.shape)
                numpy.testing.assert_allclose(lse[:, :, rows], expected[:, :, rows], 1e-6)
        o, lse = attention(q, k[:, :, :0], v[:, :, :0], return_lse=True)
        self.assertTrue((o == 0).all() and (lse == -INF).all())

    def test_a7_nothing_past_the_end(self):
        """NaN and Inf lie behind the last key, the last query and `kv_len`; what lies around o and
        lse stays."""
        for nq, nk, length in ((5, 33, 20), (17, 64, 64), (1, 100, 1)):
            room = {"q": nq + 16, "k": nk + 64, "v": nk + 64}
            whole = {
                name: numpy.full((1, 2, size, 16), NAN, numpy.float32)
                for name, size in room.items()
            }
            whole["k"][:, :, 1::2] = INF
            whole["v"][:, :, ::3] = -INF
            for name, count in (("q", nq), ("k", length), ("v", length)):
                whole[name][:, :, :count] = self.normal(1, 2, count, 16)
            q, k, v = whole["q"][:, :, :nq], whole["k"][:, :, :nk], whole["v"][:, :, :nk]
            frame = numpy.full((1, 4, nq + 16, 24), 77.0, numpy.float32)
            o, lse = frame[:, 1:3, 8 : 8 + nq, :16], numpy.empty((1, 2, nq), numpy.float32)
            lengths = None if length == nk else numpy.array([length], numpy.int32)
            attention(q, k, v, kv_len=lengths, return_lse=True, out=(o, lse))
            p, expected = visible_softmax(self.dots(q, k[:, :, :length]) / 4, True)
            self.near(o, p @ v[:, :, :length])
            self.near(lse, expected)
            o[...] = 77.0
            self.assertTrue((frame == 77.0).all())

    def test_a8_nan_and_inf_stay_in_their_rows(self):
        nq, nk = 40, 70
        q, k, v = self.inputs(nq, nk)
        clean, clean_lse = attention(q, k, v, mask=causal, return_lse=True)
        # A NaN in a query is one in its row.
        bad = q.copy()
        bad[0, 0, 7, 3] = NAN
        o, lse = attention(bad, k, v, mask=causal, return_lse=True)
        rows = numpy.arange(nq) == 7
        self.check_rows(o, lse, clean, clean_lse, rows)
        # A NaN or Inf in a key is one in the rows that see it: those at positions 50 on.
        for value in (NAN, INF):
            bad, positive = k.copy(), numpy.abs(q)
            bad[0, 0, 50] = value
            before = attention(positive, k, v, mask=causal, return_lse=True)
            o, lse = attention(positive, bad, v, mask=causal, return_lse=True)
            self.check_rows(o, lse, *before, numpy.arange(nq) + nk - nq >= 50)
        # A bias of +Inf or NaN, in one pair that is visible and in one that is hidden.
        for value in (NAN, INF):
            bias = numpy.zeros((nq, nk), numpy.float32)
            bias[11, 20] = bias[12, nk - 1] = value
            o, lse = attention(q, k, v, mask=causal, bias=bias, return_lse=True)
            self.check_rows(o, lse, clean, clean_lse, numpy.arange(nq) == 11)

    def check_rows(self, o, lse, clean, clean_lse, rows):
        """NaN in `rows` and elsewhere what there was."""
        self.assertTrue(numpy.isnan(o[0, 0][rows]).all())
        self.assertFalse(numpy.isfinite(lse[0, 0][rows]).any())
        numpy.testing.assert_array_equal(o[0, 0][~rows], clean[0, 0][~rows])
        numpy.testing.assert_array_equal(lse[0, 0][~rows], clean_lse[0, 0][~rows])

    def test_a9_f32_means_f32(self):
        """Rounded to TF32's 10 bits of mantissa the same inputs are further off than the bound."""

        def rounded(x):
            return ((x.view(numpy.uint32) + 0x1000) & 0xFFFFE000).view(numpy.float32)

        q, k, v = self.inputs(64, 500, d=128, dv=128)
        p, _ = visible_softmax(self.dots(q, k) / math.sqrt(128), True)
        self.assertLess(distance(attention(q, k, v), p @ v), 1e-5)
        p_rounded, _ = visible_softmax(self.dots(rounded(q), rounded(k)) / math.sqrt(128), True)
        self.assertGreater(distance(p_rounded @ rounded(v), p @ v), 1e-4)

    def test_m1_window(self):
        """W keys, the query's own included."""
        for width in (1, 2, 15, 16, 17, 64):
            seen = self.keys_seen(90, 90, mask=window(left=width - 1, right=0))
            p, k = numpy.arange(90)[:, None], numpy.arange(90)
            numpy.testing.assert_array_equal(seen, (p - width < k) & (k <= p))
            self.assertTrue((seen.sum(axis=1)[width - 1 :] == width).all())

    def test_m2_window_with_sinks(self):
        for width, sinks in ((8, 4), (1, 1), (16, 33), (5, 0)):
            mask = window(left=width - 1, right=0) | sink(sinks) & causal
            seen = self.keys_seen(90, 90, mask=mask)
            p, k = numpy.arange(90)[:, None], numpy.arange(90)
            numpy.testing.assert_array_equal(seen, (k <= p) & ((p - width < k) | (k < sinks)))

    def test_m3_hidden_tiles_are_not_loaded(self):
        """A NaN in V reaches every row of a tile that loads it, hidden or not (0 * NaN). At keys
        whose tiles no query of a tile sees, it reaches none."""
        schedule = {"tile_m": 16, "tile_n": 16}
        q, k, v = self.inputs(64, 128)
        for mask, hidden in (
            # The first query tile stands at 64 to 79, the last at 112 to 127.
            (window(left=31, right=0), slice(0, 32)),
            (window(left=15, right=0) | sink(16) & causal, slice(16, 48)),
            (affine_set("(p, k)[nq, nk] : (63 - k >= 0)"), slice(64, 128)),
        ):
            with self.subTest(mask=mask):
                clean = attention(q, k, v, mask=mask, schedule=schedule)
                bad_k, bad_v = k.copy(), v.copy()
                bad_k[:, :, hidden] = bad_v[:, :, hidden] = NAN
                o = attention(q, bad_k, bad_v, mask=mask, schedule=schedule)
                numpy.testing.assert_array_equal(o, clean)

    def test_m4_cover_is_exact(self):
        """Pair by pair; test/Unit/MaskTilesTest.cpp has 10,000 random sets, sizes and tiles."""
        masks = (
            (
                "p - k >= 0, k - 16 * (p floordiv 16) + 3 >= 0",
                lambda p, k: (p >= k) & (k - 16 * (p // 16) + 3 >= 0),
            ),
            ("k mod 7 == 0", lambda p, k: (k % 7 == 0) & (p >= 0)),
            (
                "2 * p - 3 * k + 10 >= 0, k + p - 12 >= 0",
                lambda p, k: (2 * p - 3 * k + 10 >= 0) & (k + p >= 12),
            ),
        )
        for text, holds in masks:
            for nq, nk in ((50, 50), (31, 77), (77, 31)):
                for tiles in ((16, 16), (32, 16), (16, 64)):
                    with self.subTest(set=text, nq=nq, nk=nk, tiles=tiles):
                        seen = self.keys_seen(
                            nq, nk, mask=affine_set(f"(p, k)[nq, nk] : ({text})"), offset=2,
                            schedule=dict(zip(("tile_m", "tile_n"), tiles)),
                        )  # fmt: skip
                        p, k = numpy.arange(nq)[:, None] + 2, numpy.arange(nk)
                        numpy.testing.assert_array_equal(seen, holds(p, k))

    def test_m5_one_kernel_for_every_length(self):
        mask = window(left=9, right=0) | sink(2) & causal
        kernels = None
        # Up to 4 queries have kernels of their own (cache_test.py).
        for batch, nq, nk in ((1, 5, 1), (2, 33, 70), (3, 70, 33), (1, 200, 200)):
            q, k, v = self.inputs(nq, nk, heads=2, batch=batch)
            o = attention(q, k, v, mask=mask, align="top_left")
            p, keys = numpy.arange(nq)[:, None], numpy.arange(nk)
            seen = (keys <= p) & ((keys >= p - 9) | (keys < 2))
            self.near(o, visible_softmax(self.dots(q, k) / 4, seen)[0] @ v)
            kernels = kernels or len(flashattn._cache.cache.kernels)
            self.assertEqual(len(flashattn._cache.cache.kernels), kernels)

    def test_m6_rows_without_keys_are_warned_of(self):
        """test/Analysis/hidden-rows.mlir has the other forms."""
        for text, rows in (
            (
                "p - 8 >= 0, p - k >= 0",
                "mask hides every key from the queries at positions 0 to 7 for all lengths",
            ),
            ("-1 - k >= 0", "mask hides every pair"),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                mask = affine_set(f"(p, k)[nq, nk] : ({text})")
                flashattn.compile(head_dim=16, mask=mask, chip="cpu")
            self.assertEqual([str(w.message) for w in caught], [rows])
            self.assertEqual(caught[0].filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            flashattn.compile(head_dim=16, mask=causal, chip="cpu")

    def test_m7_nothing_is_dropped(self):
        """Mask, attn_mask, kv_len and bias at once: without any one of them it is something else."""
        nq, nk, length = 12, 40, 24
        q, k, v = self.inputs(nq, nk)
        attn_mask, bias = self.generator.random((nq, nk)) < 0.7, 2 * self.normal(nq, nk)
        options = {
            "mask": window(left=20, right=4),
            "attn_mask": attn_mask,
            "kv_len": numpy.array([length], numpy.int32),
            "bias": bias,
        }
        p, keys = numpy.arange(nq)[:, None] + 15, numpy.arange(nk)
        sets = {
            "mask": (keys >= p - 20) & (keys <= p + 4),
            "attn_mask": attn_mask,
            "kv_len": keys < length,
        }
        found = attention(q, k, v, offset=15, **options)
        for count in range(5):
            for left_out in itertools.combinations(options, count):
                with self.subTest(left_out=left_out):
                    seen = numpy.ones((nq, nk), bool)
                    for name, pairs in sets.items():
                        seen &= pairs | (name in left_out)
                    scores = self.dots(q, k) / 4 + bias * ("bias" not in left_out)
                    expected = visible_softmax(scores, seen)[0] @ v
                    some = {n: value for n, value in options.items() if n not in left_out}
                    self.near(attention(q, k, v, offset=15, **some), expected)
                    if left_out:
                        self.far(found, expected)


if __name__ == "__main__":
    unittest.main()
