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
from flashattn import ArgumentError, affine_set, causal, sink, window


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


if __name__ == "__main__":
    unittest.main()
