# Pictures of masks: each tile has the colour of what brute force finds in it, and the legend the numbers.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest import mock

import flashattn
import numpy
from flashattn import ArgumentError, Mask, _draw, _survey, affine_set, causal, sink, window
from flashattn._survey import FULL, PARTIAL, SKIPPED, Plane, Survey, find_marks

SVG = "{http://www.w3.org/2000/svg}"

#: Masks, and the same in Python.
CASES = {
    "causal": (causal, lambda p, k, nq, nk: k <= p),
    "window": (window(left=9, right=4), lambda p, k, nq, nk: (k >= p - 9) & (k <= p + 4)),
    "left": (window(left=20), lambda p, k, nq, nk: k >= p - 20),
    "unbounded": (window(), lambda p, k, nq, nk: (k >= 0) & (p == p)),
    "sink": (
        window(left=5, right=0) | sink(3) & causal,
        lambda p, k, nq, nk: (k <= p) & ((k >= p - 5) | (k < 3)),
    ),
    "nothing": (causal & sink(0), lambda p, k, nq, nk: (k < 0) & (p == p)),
    "columns": (
        affine_set("(p, k)[nq, nk] : (k mod 3 - 1 == 0)"),
        lambda p, k, nq, nk: (k % 3 == 1) & (p == p),
    ),
    "chunks": (
        affine_set("(p, k)[nq, nk] : (p - k >= 0, k - 10 * (p floordiv 10) >= 0)"),
        lambda p, k, nq, nk: (k <= p) & (k >= p // 10 * 10),
    ),
    "blocks": (
        affine_set("(p, k)[nq, nk] : (p ceildiv 16 - k ceildiv 16 == 0)"),
        lambda p, k, nq, nk: -(-p // 16) == -(-k // 16),
    ),
    "lengths": (
        affine_set("(p, k)[nq, nk] : (2 * k <= nk + p - nq)"),
        lambda p, k, nq, nk: 2 * k <= nk + p - nq,
    ),
    "both halves": (  # together, they show every pair
        affine_set("(p, k)[nq, nk] : ((p + k) mod 2 == 0)") | affine_set("(p, k)[nq, nk] : ((p + k) mod 2 - 1 == 0)"),
        lambda p, k, nq, nk: p + k == p + k,
    ),
}  # fmt: skip


def visible(case, nq, nk, offset):
    p, k = numpy.arange(nq)[:, None] + offset, numpy.arange(nk)[None, :]
    return numpy.broadcast_to(CASES[case][1](p, k, nq, nk), (nq, nk))


def kinds_of(pairs, tile):
    """The kind of each tile, and with it that of each pair."""
    kinds, spread = [], numpy.empty(pairs.shape, int)
    for top in range(0, pairs.shape[0], tile[0]):
        kinds.append([])
        for left in range(0, pairs.shape[1], tile[1]):
            part = pairs[top : top + tile[0], left : left + tile[1]]
            kinds[-1].append(FULL if part.all() else PARTIAL if part.any() else SKIPPED)
            spread[top : top + tile[0], left : left + tile[1]] = kinds[-1][-1]
    return numpy.array(kinds), spread


def painted(text, nq, nk):
    """The fill of each pair of a picture."""
    plane = ElementTree.fromstring(text).find(f"{SVG}g")
    fills = numpy.full((nq, nk), plane.find(f"{SVG}rect").get("fill"), object)
    for path in plane.iter(f"{SVG}path"):
        x = y = 0
        for piece in re.findall(r"m(-?\d+) (-?\d+)h(\d+)v(\d+)h-\d+z", path.get("d")):
            dx, dy, width, height = map(int, piece)
            x, y = x + dx, y + dy
            fills[y : y + height, x : x + width] = path.get("fill")
    return fills


def texts(picture):
    return [element.text for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


class TilesTest(unittest.TestCase):
    def test_tiles_and_pairs_are_those_of_brute_force(self):
        for nq, nk, tile, options in (
            (64, 64, (8, 8), {}), (37, 53, (8, 16), {}), (37, 53, (8, 16), {"align": "top_left"}),
            (50, 21, (7, 5), {"offset": 13}), (40, 40, (8, 8), {"offset": -9}), (1, 30, (128, 128), {}),
            (1, 1, (1, 1), {}),
        ):  # fmt: skip
            offset = options.get("offset", 0 if options else nk - nq)
            for case, (mask, _) in CASES.items():
                with self.subTest(case=case, nq=nq, nk=nk, **options):
                    pairs = visible(case, nq, nk, offset)
                    kinds, spread = kinds_of(pairs, tile)
                    found = Survey(Plane(mask, nq, nk, offset, tile), (64, 64))
                    self.assertTrue(found.is_exact)
                    self.assertEqual(found.kinds.tolist(), kinds.tolist())
                    picture = mask.draw(nq, nk, tile=tile, **options)
                    wanted = numpy.array([_draw._FILLS[kind] for kind in range(3)], object)[spread]
                    wanted[pairs & (spread == PARTIAL)] = _draw._SHADES[-1]
                    self.assertTrue((painted(picture, nq, nk) == wanted).all())
                    self.check_legend(texts(picture), kinds, pairs)

    def check_legend(self, legend, kinds, pairs):
        for kind, name in ((FULL, "full"), (PARTIAL, "partial"), (SKIPPED, "skipped")):
            count = int((kinds == kind).sum())
            self.assertIn(f"{name}: {count} of {kinds.size} tiles, {100 * count / kinds.size:.1f} %", legend)
        self.assertIn(f"visible pairs: {pairs.sum()} of {pairs.size}, {100 * pairs.mean():.1f} %", legend)

    def test_several_tiles_are_a_square_and_several_pairs_a_mark(self):
        nq, nk, tile = 700, 900, (8, 8)
        for case, (mask, _) in CASES.items():
            with self.subTest(case=case):
                pairs = visible(case, nq, nk, nk - nq)
                kinds, _ = kinds_of(pairs, tile)
                found = Survey(Plane(mask, nq, nk, nk - nq, tile), (30, 60))
                self.assertEqual((found.tiles_of_square, found.is_exact), ((3, 2), True))
                self.assertEqual(found.tiles, [(kinds == kind).sum() for kind in range(3)])
                self.assertEqual(found.visible_pairs, pairs.sum())
                squares, _ = kinds_of(pairs, (24, 16))  # of like tiles, and so of like pairs
                self.assertEqual(found.kinds.tolist(), squares.tolist())
                self.check_marks(find_marks(found, (180, 240)), pairs, kinds_of(pairs, (24, 16))[1])

    def check_marks(self, marks, pairs, kinds):
        self.assertEqual((marks.part, marks.samples), ((4, 4), 0))
        for row, (top, bottom) in enumerate(zip(marks.tops, marks.tops[1:])):
            for column, (left, right) in enumerate(zip(marks.lefts, marks.lefts[1:])):
                part = pairs[top:bottom, left:right]
                is_drawn = part.size and kinds[top, left] == PARTIAL
                self.assertEqual(marks.levels[row, column], numpy.ceil(4 * part.mean()) if is_drawn else 0)

    def test_shares_round_neither_to_nothing_nor_to_all(self):
        for share, text in (
            (0, "0.0 %"), (1e-9, "under 0.1 %"), (0.0004, "under 0.1 %"), (0.0006, "0.1 %"), (0.5, "50.0 %"),
            (0.99999, "over 99.9 %"), (1, "100.0 %"),
        ):  # fmt: skip
            self.assertEqual(_draw._percent(share), text)


class LargeTest(unittest.TestCase):
    def test_counts_of_long_sequences_are_exact(self):
        n, tiles, began = 131072, 1024, time.process_time()
        legend = texts(causal.draw(n, n))
        self.assertIn(f"full: {tiles * (tiles - 1) // 2} of {tiles**2} tiles, 50.0 %", legend)
        self.assertIn(f"partial: {tiles} of {tiles**2} tiles, 0.1 %", legend)
        self.assertIn(f"visible pairs: {n * (n + 1) // 2} of {n**2}, 50.0 %", legend)
        self.assertIn("one square is 16 x 16 tiles, and partial if they are unlike", legend)
        self.assertFalse([text for text in legend if "samples" in text])
        left = 1023
        legend = texts((window(left=left, right=0) | sink(4) & causal).draw(n, n))
        near = (left + 1) * n - left * (left + 1) // 2
        far = 4 * (n - left - 1) - 6  # of the sink tokens, those to the left of the window
        self.assertIn(f"visible pairs: {near + far} of {n**2}, 0.8 %", legend)
        self.assertLess(time.process_time() - began, 2)

    def test_what_is_sampled_is_called_an_estimate(self):
        mask, began = affine_set("(p, k)[nq, nk] : (k mod 64 == 0)"), time.process_time()
        picture = mask.draw(131072, 131072)
        self.assertLess(time.process_time() - began, 2)
        self.assertLessEqual(len(picture), 200_000)
        legend = texts(picture)
        for text in ("partial: about 100.0 % of the tiles", "visible pairs: about 1.6 %",
                     "the shares are estimated from samples"):  # fmt: skip
            self.assertIn(text, legend)
        self.assertTrue(any(text.endswith("that is visible, from samples") for text in legend), legend)

    def test_estimates_are_near_and_the_same_in_each_run(self):
        masks = [mask for mask, _ in CASES.values()] + [affine_set("(p, k)[nq, nk] : (p mod 3 - k mod 5 >= 0)")]
        for mask in masks:
            with self.subTest(mask=mask):
                plane = Plane(mask, 600, 900, 300, (8, 8))
                exact = Survey(plane, (10, 10))
                with mock.patch.multiple(_survey, _MAX_PAIRS=1 << 13, _MAX_SAMPLES=1 << 12, _MAX_OPEN=1 << 9):
                    estimates = [Survey(plane, (10, 10)) for _ in range(2)]
                    marks = [find_marks(found, (20, 20)).levels.tolist() for found in estimates]
                for found in estimates:
                    shares = numpy.array(found.tiles) / sum(found.tiles) - numpy.array(exact.tiles) / sum(exact.tiles)
                    self.assertLess(abs(shares).max(), 0.05)
                    self.assertLess(abs(found.visible_share - exact.visible_share), 0.02)
                self.assertEqual(estimates[0].tiles, estimates[1].tiles)
                self.assertEqual(marks[0], marks[1])

    def test_a_sample_of_a_tile_misses_no_row_or_column(self):
        """Every 4096th query or key, in tiles of 4096: each tile has one."""
        for name in "pk":
            mask = affine_set(f"(p, k)[nq, nk] : ({name} mod 4096 == 0)")
            with mock.patch.multiple(_survey, _MAX_PAIRS=1 << 10, _MAX_SAMPLES=1 << 18):
                found = Survey(Plane(mask, 16384, 16384, 0, (4096, 4096)), (64, 64))
            self.assertEqual((found.tiles[PARTIAL], found.is_exact), (16, False))

    def test_pictures_are_small(self):
        most = (1 << 31) - 1
        for text, nq, nk, tile in (
            ("((p + k) mod 2 == 0)", 128, 128, (64, 64)),
            ("((7 * p + 13 * k) mod 101 - 50 >= 0)", 192, 192, (64, 64)),
            ("((7 * p + 13 * k) mod 101 - 50 >= 0)", 1000, 1000, (8, 8)),
            ("((p floordiv 33554432 + k floordiv 33554432) mod 2 == 0)", most, most, (128, 128)),
        ):
            with self.subTest(text=text, nq=nq):
                picture = affine_set(f"(p, k)[nq, nk] : {text}").draw(nq, nk, tile=tile, offset=0)
                self.assertLessEqual(len(picture.encode()), 200_000)
                self.assertGreater(len(picture), 10_000)
                ElementTree.fromstring(picture)

    def test_marks_are_left_out_if_nothing_else_helps(self):
        mask = affine_set("(p, k)[nq, nk] : ((7 * p + 13 * k) mod 101 - 50 >= 0)")
        with mock.patch.object(_draw, "_MAX_BYTES", 4000):
            picture = mask.draw(192, 192, tile=(64, 64))
        self.assertEqual(set(painted(picture, 192, 192).flat), {_draw._FILLS[PARTIAL]})
        self.assertFalse([text for text in texts(picture) if "shade" in text or "dark" in text])


class FileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_is_the_text_that_draw_returns(self):
        for path in (self.folder / "mask.svg", str(self.folder / "mask.svg")):  # the second one replaces the first
            self.assertIsNone(causal.draw(64, 64, path, tile=(8, 8)))
            self.assertEqual(Path(path).read_text(), causal.draw(64, 64, tile=(8, 8)))
        self.assertEqual(os.listdir(self.folder), ["mask.svg"])

    def test_is_written_as_a_whole(self):
        path = self.folder / "mask.svg"
        path.write_text("before")
        full = OSError(28, "No space left on device")
        with mock.patch.object(os, "replace", side_effect=full), self.assertRaisesRegex(OSError, "No space left"):
            causal.draw(64, 64, path)
        with mock.patch.object(_draw, "render", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            causal.draw(64, 64, path)
        with self.assertRaises(ArgumentError):
            Mask("#my.mask").draw(64, 64, path)
        self.assertEqual((os.listdir(self.folder), path.read_text()), (["mask.svg"], "before"))

    def test_may_be_a_link_or_a_device(self):
        link = self.folder / "link.svg"
        link.symlink_to("target.svg")
        causal.draw(64, 64, link)
        self.assertTrue(link.is_symlink() and (self.folder / "target.svg").read_text().startswith("<svg"))
        causal.draw(64, 64, os.devnull)
        self.assertFalse(os.path.isfile(os.devnull))

    def test_of_a_folder_that_does_not_exist(self):
        for path, message in (
            (self.folder / "none" / "mask.svg", "expected a file in an existing folder but got '.*/none/mask.svg'"),
            (self.folder, "expected the path of a file but got the folder '"),
            (f"{self.folder}/mask/", "expected the path of a file but got the folder '"),
            ("", "expected the path of a file but got the folder ''"),
            ("mask\0.svg", r"expected a path without zero bytes but got 'mask\\x00.svg'"),
            (3, "expected the path of a file but got 3"),
        ):
            with self.subTest(path=path), self.assertRaisesRegex(ArgumentError, message):
                causal.draw(64, 64, path)
        self.assertEqual(os.listdir(self.folder), [])


class ArgumentsTest(unittest.TestCase):
    def test_errors(self):
        for arguments, options, message in (
            ((0, 64), {}, "expected nq between 1 and 2147483647 but got 0"),
            ((64, -1), {}, "expected nk between 1 and 2147483647 but got -1"),
            ((1 << 31, 64), {}, "expected nq between 1 and 2147483647 but got 2147483648"),
            ((64, 10**100), {}, "expected nk between 1 and 2147483647 but got an integer of 333 bits"),
            ((64.0, 64), {}, "expected an integer nq but got 64.0"),
            ((True, 64), {}, "expected an integer nq but got True"),
            ((64, "64"), {}, "expected an integer nk but got '64'"),
            ((64, 64), {"align": "left"}, "expected align top_left or bottom_right but got 'left'"),
            ((64, 64), {"offset": 1.5}, "expected an integer offset but got 1.5"),
            ((64, 64), {"offset": 1 << 31}, "expected offset between -2147483647 and 2147483647 but got 2147483648"),
            ((64, 64), {"tile": 8}, "expected tile with the numbers of queries and keys of a tile but got 8"),
            ((64, 64), {"tile": (8,)}, r"expected tile with the numbers of queries and keys of a tile but got \(8,\)"),
            ((64, 64), {"tile": (8, 0)}, "expected keys of a tile between 1 and 2147483647 but got 0"),
            ((64, 64), {"tile": (None, 8)}, "expected an integer queries of a tile but got None"),
        ):
            with self.subTest(arguments=arguments, **options), self.assertRaisesRegex(ArgumentError, message):
                causal.draw(*arguments, **options)

    def test_integers_of_numpy_are_valid(self):
        wanted = causal.draw(64, 32, offset=3, tile=(8, 8))
        n = numpy.int32
        self.assertEqual(causal.draw(n(64), n(32), offset=n(3), tile=[n(8), n(8)]), wanted)

    def test_masks_of_other_dialects(self):
        with self.assertRaisesRegex(ArgumentError, "expected a mask of the dialect flashattn, .* but got 'my.mask'"):
            Mask("#my.mask<3>").draw(64, 64)
        self.assertIsNone(Mask("#my.mask<3>")._repr_svg_())


class PictureTest(unittest.TestCase):
    def test_labels(self):
        found = texts(causal.draw(300, 200, tile=(64, 32)))
        for text in ("causal", "keys: 200", "queries: 300", "199", "299",
                     "tiles of 64 x 32 (queries x keys); query 0 is at position -100"):  # fmt: skip
            self.assertIn(text, found)

    def test_any_text_is_well_formed(self):
        text = "(p, k)[nq, nk] : (p - k >= 0) // <&>\\22" + "x" * 3000
        for mask, title in (
            (Mask(f'#flashattn.set<"{text}">'), 'set<"(p, k)[nq, nk] : (p - k >= 0) // <&>'),
            (Mask("#flashattn.causal // <&> \1 \ud800 \ufffe"), "causal // <&> ? ? ?: full: 0 of 1 tiles"),
        ):
            picture = mask.draw(64, 64)
            self.assertLess(len(picture.encode()), 10_000)
            self.assertTrue(ElementTree.fromstring(picture).find(f"{SVG}title").text.startswith(title), picture)

    def test_a_notebook_shows_the_effect_of_the_largest_number(self):
        for mask, size, tile in (
            (causal, 64, 8), (sink(4), 64, 8), (window(left=31, right=0), 128, 16), (window(left=1023), 4096, 128),
            (window(left=1 << 31), 131072, 128), (affine_set("(p, k)[n0, n9999] : (k mod 64 == 0)"), 256, 32),
        ):  # fmt: skip
            self.assertEqual(mask._repr_svg_(), mask.draw(size, size, tile=(tile, tile)), mask)

    def test_masks_alone_do_not_import_it(self):
        script = "import sys, flashattn; print('flashattn._draw' in sys.modules, flashattn.causal._repr_svg_()[:4])"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertEqual(done.stdout, "False <svg\n", done.stderr)

    def test_pictures_of_the_documents_are_up_to_date(self):
        folder = Path(flashattn.__file__).parents[2] / "docs" / "masks"
        spec = importlib.util.spec_from_file_location("draw_masks", folder / "draw_masks.py")
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        pictures = script.draw_masks()
        self.assertEqual(sorted(pictures), sorted(path.name for path in folder.glob("*.svg")))
        for name, text in pictures.items():
            self.assertEqual((folder / name).read_text(), text, "run python3 docs/masks/draw_masks.py")


if __name__ == "__main__":
    unittest.main()
