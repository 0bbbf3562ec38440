# Masks print as the attributes that the compiler reads, and are values.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import os
import pickle
import subprocess
import sys
import unittest

import flashattn
import numpy
from flashattn import ArgumentError, _reference, affine_set, causal, sink, window


class MaskTest(unittest.TestCase):
    def test_print_as_attributes(self):
        for mask, text in (
            (causal, "#flashattn.causal"),
            (window(left=1023, right=0), "#flashattn.window<left = 1023, right = 0>"),
            (window(left=7), "#flashattn.window<left = 7>"),
            (window(right=3), "#flashattn.window<right = 3>"),
            (window(), "#flashattn.window"),
            (sink(4), "#flashattn.sink<4>"),
            (
                affine_set("(p, k)[nq, nk] : (p - k >= 0)"),
                '#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0)">',
            ),
            (causal & sink(2), "#flashattn.all_of<[#flashattn.causal, #flashattn.sink<2>]>"),
            (causal | sink(2), "#flashattn.any_of<[#flashattn.causal, #flashattn.sink<2>]>"),
            (
                window(left=127, right=0) | sink(4) & causal,
                "#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, "
                "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>",
            ),
        ):
            self.assertEqual(str(mask), text)
            self.assertEqual(repr(mask), text)

    def test_join_like_with_like(self):
        a, b, c = causal, sink(1), sink(2)
        self.assertEqual(str(a | b | c), str(a | (b | c)))
        self.assertEqual(
            str(a & b & c),
            "#flashattn.all_of<[#flashattn.causal, #flashattn.sink<1>, #flashattn.sink<2>]>",
        )

    def test_compiler_reads_and_prints_them(self):
        for mask in (
            causal,
            window(left=3, right=0) | sink(4) & causal,
            affine_set("(p, k)[nq, nk] : (p - k >= 0)"),
        ):
            kernel = flashattn.compile(head_dim=16, mask=mask, chip="cpu")
            self.assertIn(f"mask({mask})", kernel.mlir)

    def test_quotes_cannot_end_the_text(self):
        with self.assertRaisesRegex(flashattn.ArgumentError, "expected an integer set such as"):
            affine_set('(p, k) : (p >= 0)"> // \\')
        with self.assertRaisesRegex(flashattn.ArgumentError, "expected an integer set such as"):
            mask = flashattn.Mask('#flashattn.set<"(p, k) : (p >= 0)\\22> // \\5C">')
            flashattn.compile(head_dim=16, mask=mask, chip="cpu")

    def test_are_written_without_a_library(self):
        script = "import flashattn; print(flashattn.affine_set('(p, k)[nq, nk] : (p >= k)'))"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "FLASHATTN_LIBRARY": "/nowhere/libFlashAttnC.so"},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.stdout, '#flashattn.set<"(p, k)[nq, nk] : (p >= k)">\n', done.stderr)

    def test_are_values(self):
        self.assertEqual(window(left=3), window(left=3))
        self.assertNotEqual(window(left=3), window(right=3))
        self.assertNotEqual(causal, "#flashattn.causal")
        self.assertEqual(len({sink(1), sink(1), sink(2)}), 2)
        self.assertEqual(pickle.loads(pickle.dumps(causal | sink(1))), causal | sink(1))
        self.assertEqual(
            pickle.loads(pickle.dumps(causal | sink(1))) | causal, causal | sink(1) | causal
        )

    def test_cannot_be_changed(self):
        with self.assertRaisesRegex(
            AttributeError, "a mask cannot be changed: tried to set '_text'"
        ):
            causal._text = "other"
        with self.assertRaises(AttributeError):
            causal.other = 1

    def test_of_one_query_hide_what_they_say(self):
        """A causal mask of the last query alone is left out; every other one counts."""
        draw = numpy.random.default_rng(3).normal
        q, k, v = (draw(size=(1, 2, n, 16)).astype(numpy.float32) for n in (1, 9, 9))
        for seen, options in (
            (slice(9), {"mask": causal}), (slice(4), {"mask": causal, "offset": 3}),
            (slice(1), {"mask": causal, "align": "top_left"}), (slice(5), {"mask": causal, "kv_len": [5]}),
            (slice(6, 9), {"mask": window(left=2, right=0)}), (slice(2), {"mask": causal & sink(2)}),
        ):  # fmt: skip
            with self.subTest(**options):
                found = flashattn.attention(q, k, v, **options)
                wanted = flashattn.attention(q, k[:, :, seen], v[:, :, seen])
                numpy.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)

    def test_have_no_truth(self):
        for call in (
            lambda: causal and window(left=3), lambda: causal or sink(2), lambda: not causal,
            lambda: any([sink(1), causal]), lambda: 1 if causal | sink(1) else 0,
        ):  # fmt: skip
            with self.assertRaisesRegex(ArgumentError, "expected masks joined by & and | but got a mask as condition"):
                call()

    def test_combine_with_masks_only(self):
        with self.assertRaises(TypeError):
            causal | 3
        with self.assertRaises(TypeError):
            causal & None


class ReferenceTest(unittest.TestCase):
    """`_reference.visible` reads the text of masks on its own."""

    def check(self, text, shows):
        p, k = numpy.arange(-5, 30)[:, None], numpy.arange(37)[None]
        found = _reference.visible(flashattn.Mask(text), p, k, 35, 37)
        wanted = [[bool(shows(row, key)) for key in range(37)] for row in range(-5, 30)]
        self.assertEqual(numpy.asarray(found).tolist(), wanted, text)

    def test_reads_each_form(self):
        for text, shows in (
            ("#flashattn.causal", lambda p, k: k <= p),
            ("#flashattn<causal>", lambda p, k: k <= p),
            ("#flashattn.window", lambda p, k: True),
            ("#flashattn.window<right = 3, left = 2>", lambda p, k: p - 2 <= k <= p + 3),
            ("#flashattn.sink<4>", lambda p, k: k < 4),
            ("#flashattn.any_of<[]>", lambda p, k: False),
            ("#flashattn.all_of<[]>", lambda p, k: True),
            (
                "#flashattn.any_of<[window<left = 3, right = 0>, all_of<[sink<4>, #flashattn.causal]>]>",
                lambda p, k: p - 3 <= k <= p or k < 4 and k <= p,
            ),
            ("#flashattn.set<affine_set<(p, k)[nq, nk] : (k mod 3 == 0)>>", lambda p, k: k % 3 == 0),
            ("affine_set<(p, k)[nq, nk] : (k mod 3 == 0)>", lambda p, k: k % 3 == 0),
        ):
            self.check(text, shows)
        self.assertTrue(_reference.visible(None, numpy.arange(3)[:, None], numpy.arange(4), 3, 4).all())

    def test_computes_sets(self):
        for text, shows in (
            ("(p ceildiv 3 - k ceildiv 4 == 0)", lambda p, k: -(-p // 3) == -(-k // 4)),
            ("(-p floordiv 3 <= -k mod 5)", lambda p, k: -p // 3 <= -k % 5),
            ("(- 2 * p + k mod (3 + 1) >= nk - nq)", lambda p, k: -2 * p + k % 4 >= 2),
            ("(2 * p mod 5 * 3 - k == 0)", lambda p, k: 2 * p % 5 * 3 == k),
            ("(0x10 >= p, k >= p - -(3))", lambda p, k: p <= 16 and k >= p + 3),
            ("(3 >= 0, 0 == 0)", lambda p, k: True),
            ("(-1 >= 0)", lambda p, k: False),
            ("()", lambda p, k: True),
            ("\\0A // a comment, )\\0A (k >= 9)", lambda p, k: k >= 9),
            ("(p" + " + 1" * 3000 + " >= k + 3000)", lambda p, k: p >= k),
        ):
            self.check(f'#flashattn.set<"(p, k)[nq, nk] : {text}">', shows)
        self.check('#flashattn.set<"(if, x0.a$)[_, p] : (if - x0.a$ + p - _ - 2 >= 0)">', lambda p, k: p >= k)

    def test_refuses_what_it_cannot_read(self):
        def of(constraints):
            return f'#flashattn.set<"(p, k)[nq, nk] : {constraints}">'

        for text, message in (
            ("#my.mask<3>", "expected a mask of the dialect flashattn, .* but got 'my.mask' in #my.mask<3>"),
            ("", "expected a mask but got the end"),
            ("caus@l", "expected a mask but got '@'"),
            ("causal>", "expected the end of the text but got '>'"),
            ("window<up = 3>", "expected left or right but got 'up'"),
            ("sink<-1>", "expected a number but got '-'"),
            ("any_of<[causal causal]>", "expected ',' but got 'causal'"),
            (of("(k mod 0 == 0)"), "expected a constant of at least 1 behind mod but got 0"),
            (of("(k floordiv p == 0)"), "expected a constant of at least 1 behind floordiv but got another term"),
            (of("(z >= 0)"), "expected one of p, k, nq, nk but got 'z'"),
            (of("(p)"), "expected >=, <= or == but got"),
            (of("(p >= )"), "expected a term but got"),
            (of("(p >= 9223372036854775808)"), "expected a number below 2.63 but got '9223372036854775808'"),
            (of("(p >= " + "9" * 5000 + ")"), "expected a number below 2.63"),
            (of("(" + "(" * 100000), "expected a mask that nests less deep but got one that exceeds the stack"),
            ('#flashattn.set<"(p) : (p >= 0)">', r"expected an integer set of 2 dimensions, \(p, k\), but got '\(p\)'"),
        ):
            with self.subTest(text=text[:80]), self.assertRaisesRegex(ArgumentError, message):
                _reference.visible(text, numpy.arange(3)[:, None], numpy.arange(3), 3, 3)


if __name__ == "__main__":
    unittest.main()
