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
from flashattn import ArgumentError, Mask, _draw, _survey, affine_set, causal, masks, sink, window
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
        self.assertLess(time.process_time() - began, 5)
        self.assertLessEqual(len(picture), 200_000)
        legend = texts(picture)
        for text in ("partial: about 100.0 % of the tiles", "visible pairs: about 1.6 %",
                     "the shares are estimated from samples"):  # fmt: skip
            self.assertIn(text, legend)
        self.assertTrue(any(text.endswith("that is visible, from samples") for text in legend), legend)

    def test_estimates_are_near_and_the_same_in_each_run(self):
        cases = [mask for mask, _ in CASES.values()] + [affine_set("(p, k)[nq, nk] : (p mod 3 - k mod 5 >= 0)")]
        for mask in cases:
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


def ancestors(parents):
    """Whether the node of a column is that of the row or above it."""
    seen = numpy.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):  # in depth-first order
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen


class TensorsTest(unittest.TestCase):
    """Masks that read tensors."""

    N = 61
    IDS = numpy.array([[0] * 13 + [3] * 1 + [2] * 30 + [0] * 17, [5] * 61])
    PARENTS = numpy.array([-1, 0, 1, 1, 3, 4, 0, 6, 7, 6, -1, 10, 11] + list(range(12, 40)) + [10] * 20)
    COLUMN = numpy.random.default_rng(3).integers(0, 62, (2, 3, 61, 1)).astype(numpy.int32)

    def cases(self):
        """Masks, the batch element, the head and the visible pairs."""
        p, k = numpy.arange(self.N)[:, None], numpy.arange(self.N)[None, :]
        before = k <= p
        for batch, ids in enumerate(self.IDS):
            run = numpy.cumsum(numpy.append(0, ids[1:] != ids[:-1]))
            same = run[:, None] == run[None, :]
            yield masks.documents(self.IDS), batch, 0, same
            yield masks.documents(self.IDS, causal=True), batch, 0, same & before
            yield masks.shared_question([10, 61], self.IDS), batch, 0, before & (same | (k < (10, 61)[batch]))
        for batch in range(2):
            yield masks.prefix([9, 40]) | causal, batch, 0, before | (k < (9, 40)[batch])
            yield masks.prefix(9) | causal, batch, 0, before | (k < 9)
            yield masks.left_padding([9, 0]) & causal, batch, 0, before & (k >= (9, 0)[batch])
            yield masks.causal_if([True, False]), batch, 0, (before, before | True)[batch]
            left, right = (4, 1000)[batch], (0, 7)[batch]
            yield window(left=[4, 1000], right=[0, 7]), batch, 0, (k >= p - left) & (k <= p + right)
            yield window(left=[4, 1000], right=3), batch, 0, (k >= p - left) & (k <= p + 3)
            for head in range(3):
                yield masks.flashmask(self.COLUMN, causal=True), batch, head, (
                    before & (p < self.COLUMN[batch, head, :, 0])
                )
        yield masks.tree(self.PARENTS), 0, 0, ancestors(self.PARENTS)

    def check(self, picture, pairs, tile):
        wanted = numpy.array([_draw._FILLS[kind] for kind in range(3)], object)[kinds_of(pairs, tile)[1]]
        wanted[pairs & (kinds_of(pairs, tile)[1] == PARTIAL)] = _draw._SHADES[-1]
        self.assertTrue((painted(picture, *pairs.shape) == wanted).all())
        self.assertIn(f"visible pairs: {pairs.sum()} of {pairs.size}, {100 * pairs.mean():.1f} %", texts(picture))

    def test_tiles_and_pairs_are_those_of_brute_force(self):
        for mask, batch, head, pairs in self.cases():
            for tile in ((8, 8), (16, 5), (61, 61)):
                with self.subTest(mask=mask, batch=batch, head=head, tile=tile):
                    picture = mask.draw(self.N, self.N, tile=tile, batch=batch, head=head)
                    self.check(picture, pairs, tile)

    def test_numbers_of_queries_belong_to_rows_at_any_offset(self):
        rng = numpy.random.default_rng(1)
        first, end = rng.integers(0, 80, (2, 40)), rng.integers(0, 100, (2, 90))
        mask = affine_set("(p, k)[nq, nk, a, b] : (2 * k - a >= 0, b - p >= 0)", per_query=[first], per_key=[end])
        for offset in (0, 7, 50, -3):
            for batch in range(2):
                p, k = numpy.arange(40)[:, None] + offset, numpy.arange(90)[None, :]
                pairs = (2 * k >= first[batch][:, None]) & (end[batch][None, :] >= p)
                picture = mask.draw(40, 90, tile=(8, 16), offset=offset, batch=batch)
                self.check(picture, pairs, (8, 16))
        self.assertEqual(mask._repr_svg_(), mask.draw(40, 90, tile=(5, 12)))

    def test_heads_of_queries_share_those_of_keys(self):
        starts = numpy.arange(4, dtype=numpy.int32)[None, :, None] * 3 + numpy.zeros((1, 4, 20), numpy.int32)
        ends = numpy.array([9, 17], numpy.int32)[None, :, None] + numpy.zeros((1, 2, 20), numpy.int32)
        mask = affine_set(
            "(p, k)[nq, nk, a, b] : (k - a >= 0, b - 1 - p >= 0)", per_query=[starts], per_key=[ends]
        )
        p, k = numpy.arange(20)[:, None], numpy.arange(20)[None, :]
        for head in range(4):
            picture = mask.draw(20, 20, tile=(4, 4), head=head)
            self.check(picture, (k >= 3 * head) & (p < (9, 17)[head // 2]), (4, 4))
            self.assertIn(f"the numbers from tensors are those of head {head}", texts(picture))

    def test_bounds_are_the_least_and_the_largest_number(self):
        rng = numpy.random.default_rng(0)
        for n in (1, 2, 7, 64, 100):
            values = rng.integers(-(2**31) + 1, 2**31, n)
            low, high = (edge.reshape(-1) for edge in numpy.meshgrid(numpy.arange(n), numpy.arange(n)))
            low, high = low[low <= high], high[low <= high]
            found = _survey.Column(values).take(_survey._Bounds(low, high))
            self.assertEqual(found.low.tolist(), [values[i : j + 1].min() for i, j in zip(low, high)])
            self.assertEqual(found.high.tolist(), [values[i : j + 1].max() for i, j in zip(low, high)])

    def test_long_sequences_are_exact_and_fast(self):
        n = 131072
        lengths = numpy.random.default_rng(0).integers(200, 9000, 100)
        ids = numpy.repeat(numpy.arange(100), lengths)[:n]
        sizes = numpy.bincount(ids)
        self.assertEqual(sizes.sum(), n)
        for is_causal, visible_pairs in (
            (False, int((sizes**2).sum())), (True, int((sizes * (sizes + 1) // 2).sum())),
        ):  # fmt: skip
            mask, began = masks.documents(ids, causal=is_causal), time.process_time()
            legend = texts(mask.draw(n, n))
            self.assertLess(time.process_time() - began, 2)
            self.assertTrue([text for text in legend if text.startswith(f"visible pairs: {visible_pairs} of {n**2}")])

    def test_errors(self):
        ids = numpy.repeat([0, 1], [100, 156])
        two = numpy.broadcast_to(ids, (2, 256))
        for mask, arguments, options, message in (
            (masks.documents(ids), (64, 256), {}, "expected nq to be 256, the length of per_query0, but got 64"),
            (masks.tree([-1, 0, 1]), (3, 4), {}, "expected nk to be 3, the length of per_key0, but got 4"),
            (masks.documents(two), (256, 256), {"batch": 2},
             "expected batch below 2, the batch size of per_query0, but got 2"),
            (masks.prefix([1, 2, 3]), (64, 64), {"batch": 3},
             "expected batch below 3, the batch size of per_sequence0, but got 3"),
            (masks.prefix(numpy.zeros(0, numpy.int32)), (64, 64), {},
             "expected per_sequence0 to have elements but got none"),
            (masks.flashmask(self.COLUMN, causal=True), (61, 61), {"head": 3},
             "expected head below 3, the number of heads of the mask, but got 3"),
            (causal, (64, 64), {"batch": -1}, "expected batch between 0 and 2147483647 but got -1"),
            (causal, (64, 64), {"head": 0.5}, "expected an integer head but got 0.5"),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex(ArgumentError, message):
                mask.draw(*arguments, **options)
        self.assertIsNone(masks.prefix(numpy.zeros(0, numpy.int32))._repr_svg_())

    def test_a_notebook_shows_all_positions(self):
        ids, long = numpy.repeat([0, 1], [100, 156]), numpy.repeat([0, 1], [1000, 3096])
        for mask, size, tile in (
            (masks.documents(ids), 256, 32), (masks.documents(long), 4096, 128), (masks.tree([-1, 0, 1]), 3, 1),
            (masks.flashmask(self.COLUMN, causal=True), 61, 8), (masks.prefix([30, 500]), 128, 16),
            (masks.prefix(2), 64, 8), (masks.prefix(2**31 - 1), 131072, 128),
        ):  # fmt: skip
            self.assertEqual(mask._repr_svg_(), mask.draw(size, size, tile=(tile, tile)), mask)

    def test_tensors_of_other_libraries(self):
        ids = numpy.repeat([0, 1], [20, 44]).astype(numpy.int32)
        wanted = masks.documents(ids).draw(64, 64, tile=(8, 8))
        for name, make in (("torch", "tensor"), ("jax.numpy", "asarray")):
            if importlib.util.find_spec(name.split(".")[0]):
                tensor = getattr(importlib.import_module(name), make)(ids)
                with self.subTest(library=name):
                    self.assertEqual(masks.documents(tensor).draw(64, 64, tile=(8, 8)), wanted)

    def test_reads_the_current_numbers(self):
        n = numpy.array([5], numpy.int32)
        mask = masks.prefix(n)
        before = mask.draw(64, 64)
        n[0] = 40
        self.assertEqual(mask.draw(64, 64), masks.prefix([40]).draw(64, 64))
        self.assertNotEqual(mask.draw(64, 64), before)


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
