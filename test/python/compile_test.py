# Kernels to look into, for this machine and for GPUs that are not here.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import gc
import pickle
import unittest

import flashattn
import numpy
from flashattn import _reference, causal, sink, window


class CompileTest(unittest.TestCase):
    def test_ptx_without_a_gpu(self):
        for chip, product in (
            ("sm_80", "mma.sync.aligned.m16n8k16"),
            ("sm_90", "mma.sync.aligned.m16n8k16"),
            ("sm_90a", "wgmma.mma_async.sync.aligned.m64n"),
        ):
            kernel = flashattn.compile(head_dim=64, mask=causal, return_lse=True, chip=chip)
            self.assertEqual(kernel.chip, chip)
            self.assertIn(f".target {chip}", kernel.ptx)
            self.assertIn(product, kernel.ptx)
            self.assertIn("ex2.approx.ftz.f32", kernel.ptx)
            self.assertEqual(kernel.ptx, kernel.ir("ptx"))
            # A counter, of many programs, where blocks claim them.
            self.assertEqual(kernel.workspace_bytes, None if chip == "sm_90a" else 0)
            tiled = kernel.ir("tiled")
            self.assertIn("vector.contract", tiled)
            for later in ("flashattn.attention", "gpu.", "nvvm.", "hopper.", "wgmma"):
                self.assertNotIn(later, tiled)

    def test_workspace_of_few_queries_depends_on_the_sizes(self):
        kernel = flashattn.compile(head_dim=64, queries=1, chip="sm_90a")
        self.assertIsNone(kernel.workspace_bytes)
        kernel = flashattn.compile(head_dim=64, queries=1, chip="cpu")
        self.assertEqual(kernel.workspace_bytes, 0)
        q, k = (numpy.zeros((1, 2, n, 64), numpy.float16) for n in (1, 4096))
        self.assertEqual(kernel.get_workspace_bytes(q, k, k, numpy.zeros_like(q)), 0)

    def test_rows_tell_how_memory_is_read(self):
        copies = {
            rows: flashattn.compile(head_dim=64, chip="sm_90", rows=rows).ptx.count("cp.async.cg")
            for rows in ("dense", "aligned", "strided")
        }
        self.assertGreater(copies["dense"], 0)
        self.assertGreater(copies["aligned"], 0)
        self.assertEqual(copies["strided"], 0)

    def test_texts(self):
        kernel = flashattn.compile(
            head_dim=16,
            value_dim=32,
            dtype="bf16",
            mask=window(left=3) & causal,
            scale=0.25,
            chip="cpu",
        )
        self.assertEqual(kernel.stages, ["mlir", "schedule", "tiled", "lowered"])
        self.assertIn(
            "mask(#flashattn.all_of<[#flashattn.window<left = 3>, #flashattn.causal]>)", kernel.mlir
        )
        self.assertIn("memref<?x?x?x32xbf16>", kernel.mlir)
        self.assertIn("flashattn.program", kernel.ir("tiled"))
        self.assertIn("llvm.func", kernel.ir("lowered"))
        self.assertRegex(
            kernel.schedule,
            r"^tile_m = \d+, tile_n = \d+, stages = 1, dot_type = f32, mapping = cpu$",
        )
        self.assertIn(kernel.schedule, repr(kernel))

    def test_schedule_pinned_in_part(self):
        kernel = flashattn.compile(head_dim=64, chip="sm_90", schedule={"tile_n": 32})
        self.assertRegex(
            kernel.schedule,
            r"^tile_m = \d+, tile_n = 32, stages = \d+, dot_type = f16",
        )

    def test_pinned_schedule(self):
        kernel = flashattn.compile(head_dim=64, chip="sm_90", schedule={"tile_m": 64, "tile_n": 32})
        self.assertEqual(
            kernel.schedule,
            "tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>",
        )
        again = flashattn.compile(head_dim=64, chip="sm_90", schedule=kernel.schedule)
        self.assertEqual(again.ptx, kernel.ptx)

    def test_pinned_roles(self):
        roles = {"consumers": 2, "l2_head_group": 4}
        kernel = flashattn.compile(head_dim=64, chip="sm_90a", schedule={"tile_n": 64, "hopper": roles})
        self.assertEqual(
            kernel.schedule,
            "tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, "
            "mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, "
            "rescale_threshold = 4, l2_head_group = 4>",
        )
        again = flashattn.compile(head_dim=64, chip="sm_90a", schedule=kernel.schedule)
        self.assertEqual(again.ptx, kernel.ptx)
        self.assertIn("wgmma.mma_async", kernel.ptx)
        packed = flashattn.compile(head_dim=64, chip="sm_90a", schedule={"tile_n": 64, "pack": 8, "hopper": roles})
        self.assertIn("dot_type = f16, pack = 8, mapping = hopper<", packed.schedule)
        self.assertIn("cp.async.bulk.tensor.5d", packed.ptx)
        with self.assertRaisesRegex(flashattn.UnsupportedError, "expected pack 1 without warp specialization but got 8"):
            flashattn.compile(head_dim=64, chip="sm_90a", schedule={"tile_m": 64, "tile_n": 64, "pack": 8})
        for rows, instruction in (("aligned", "wgmma"), ("strided", "mma.sync")):
            self.assertIn(instruction, flashattn.compile(head_dim=64, chip="sm_90a", rows=rows).ptx)

    def test_few_queries_read_keys_in_parts(self):
        for layout in ("bhsd", "bshd"):
            kernel = flashattn.compile(
                head_dim=128, dtype="bf16", chip="sm_90a", queries=4, layout=layout
            )
            self.assertIn("pack = 16, splits = 128, min_split_tiles = 1, mapping = hopper<consumers = 1", kernel.schedule)
            self.assertEqual(kernel.tuning_key, "sm_90a/128/128/bf16/full/decode")
            # One for keys in one part; one for parts of them, and one that merges those.
            self.assertEqual(kernel.ptx.count(".entry"), 3)
        self.assertNotIn("splits", flashattn.compile(head_dim=128, chip="sm_90a").schedule)
        with_parts = flashattn.compile(head_dim=16, dtype="f32", chip="cpu",
            schedule={"tile_m": 16, "tile_n": 16, "splits": 5})  # fmt: skip
        rng = numpy.random.default_rng(7)
        q, k = (rng.standard_normal((2, 3, n, 16), dtype=numpy.float32) for n in (4, 333))
        o = numpy.empty_like(q)
        with_parts.launch(q, k, k, o)
        numpy.testing.assert_allclose(o, flashattn.attention(q, k, k), rtol=1e-4, atol=1e-6)

    def test_few_queries_are_a_tile_of_few_rows(self):
        for queries, rows in ((1, 2), (2, 2), (4, 4), (5, 8)):
            kernel = flashattn.compile(head_dim=64, dtype="f32", chip="cpu", queries=queries)
            self.assertIn(f"tile_m = {rows}, ", kernel.schedule)

    def test_refusal_names_every_schedule(self):
        with self.assertRaisesRegex(
            flashattn.UnsupportedError, "expected D to be a multiple of 8 up to 256 but got 512"
        ):
            flashattn.compile(head_dim=512, chip="sm_90")
        with self.assertRaisesRegex(
            flashattn.UnsupportedError, r"needs \d+ bytes of shared memory .* of \d+ available"
        ):
            flashattn.compile(head_dim=256, chip="sm_90", schedule={"tile_m": 256, "tile_n": 128})

    def test_launch(self):
        generator = numpy.random.default_rng(0)
        kernel = flashattn.compile(
            head_dim=16, dtype=numpy.float32, mask=causal, return_lse=True, chip="cpu"
        )
        self.assertTrue(kernel.is_launchable)
        for nq, nk in ((5, 9), (64, 64)):
            q, k, v = (
                generator.standard_normal((1, 2, n, 16), numpy.float32) for n in (nq, nk, nk)
            )
            o, lse = numpy.empty_like(q), numpy.empty((1, 2, nq), numpy.float32)
            kernel.launch(q, k, v, o, lse)
            expected, expected_lse = flashattn.attention(q, k, v, mask=causal, return_lse=True)
            numpy.testing.assert_array_equal(o, expected)
            numpy.testing.assert_array_equal(lse, expected_lse)

    def test_launch_elsewhere_is_refused(self):
        kernel = flashattn.compile(head_dim=16, dtype="f32", chip="sm_80")
        if kernel.is_launchable:
            self.skipTest("this machine has an sm_80")
        q = numpy.zeros((1, 1, 4, 16), numpy.float32)
        with self.assertRaisesRegex(flashattn.UnsupportedError, "the kernel cannot be launched: "):
            kernel.launch(q, q, q, q)

    def test_scale_is_given_at_the_launch(self):
        q = numpy.random.default_rng(1).standard_normal((1, 2, 9, 16), numpy.float32)
        o = numpy.empty_like(q)
        kernel = flashattn.compile(head_dim=16, dtype="f32", scale=0.5, chip="cpu")
        for options, scale in (({}, 0.5), ({"scale": 0.125}, 0.125), ({}, 0.5), ({"scale": 3}, 3)):
            kernel.launch(q, q, q, o, **options)
            numpy.testing.assert_array_equal(o, flashattn.attention(q, q, q, scale=scale))
        flashattn.compile(head_dim=16, dtype="f32", chip="cpu").launch(q, q, q, o)
        numpy.testing.assert_array_equal(o, flashattn.attention(q, q, q, scale=0.25))
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected scale from 1e-18 to 1e18 but got 1e-19"
        ):
            kernel.launch(q, q, q, o, scale=1e-19)
        with self.assertRaisesRegex(
            flashattn.ArgumentError, "expected a finite positive scale but got -1.0"
        ):
            flashattn.compile(head_dim=16, scale=-1)

    def test_pickles_as_what_it_was_made_from(self):
        q = numpy.random.default_rng(2).standard_normal((1, 1, 9, 16), numpy.float32)
        kernel = flashattn.compile(
            head_dim=16, dtype="f32", scale=0.5, mask=window(left=2) & causal, chip="cpu",
            score_mod=lambda score, b, h, p, k: score * 2,
        )  # fmt: skip
        again = pickle.loads(pickle.dumps(kernel))
        results = []
        for one in (kernel, again):
            results.append(numpy.empty_like(q))
            one.launch(q, q, q, results[-1])
        numpy.testing.assert_array_equal(*results)
        self.assertEqual((again.mlir, again.schedule), (kernel.mlir, kernel.schedule))

    def test_schedules_are_explained_without_code(self):
        for chip, options in (("sm_90a", {}), ("cpu", {"dtype": "f32"})):
            kernel = flashattn.compile(head_dim=64, chip=chip, **options)
            self.assertEqual(kernel.explain_schedule(kernel.schedule), "")
            self.assertEqual(kernel.explain_schedule({"tile_m": 64, "tile_n": 32}), "")
        kernel = flashattn.compile(head_dim=256, chip="sm_90")
        reason = kernel.explain_schedule({"tile_m": 256, "tile_n": 128})
        self.assertRegex(reason, r"needs \d+ bytes of shared memory .* of \d+ available")

    def test_many_kernels_come_and_go(self):
        for count in range(1, 6):
            kernel = flashattn.compile(head_dim=16, mask=sink(count), chip="cpu")
            text = kernel.mlir
            del kernel
            gc.collect()
            self.assertIn(f"sink<{count}>", text)


class ReferenceTest(unittest.TestCase):
    """The reference itself, pair by pair."""

    def test_visible_pairs(self):
        mask = window(left=2, right=0) | sink(1) & causal
        seen = _reference.visible(mask, numpy.arange(6)[:, None], numpy.arange(6)[None, :], 6, 6)
        expected = [[k <= p and (p - k <= 2 or k < 1) for k in range(6)] for p in range(6)]
        numpy.testing.assert_array_equal(seen, expected)
        self.assertEqual(_reference.count_visible(mask, 6, 6), int(numpy.sum(expected)))
        self.assertEqual(_reference.count_visible(causal, 3, 5), 3 + 4 + 5)
        self.assertEqual(_reference.count_visible(causal, 3, 5, "top_left"), 1 + 2 + 3)


if __name__ == "__main__":
    unittest.main()
