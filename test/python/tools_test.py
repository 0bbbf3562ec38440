# The commands: doctor, the benchmark on the CPU, and the tuner with the file that it keeps.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import flashattn
import numpy
from flashattn import (
    _cache,
    _module,
    _reference,
    _tuned,
    affine_set,
    causal,
    sink,
    tune,
    window,
)
from flashattn.bench import _backward, _command as bench

HIDDEN_DRIVER = {"FLASHATTN_CUDA_DRIVER": "/nowhere/libcuda.so"}


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, **HIDDEN_DRIVER, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


class DoctorTest(unittest.TestCase):
    def test_says_what_is_found(self):
        done = command("flashattn", "doctor")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for text in (
            "ok      library ",
            "ok      cpu ",
            "note    driver ",
            "note    cuda ",
            "ok      numpy ",
        ):
            self.assertIn(text, done.stdout)

    def test_says_what_to_do(self):
        done = command("flashattn", "doctor", FLASHATTN_LIBRARY="/nowhere/libFlashAttnC.so")
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing library", done.stdout)
        self.assertIn("unset it to use the package's own", done.stdout)

    def test_reports_a_broken_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "flashattn", "schedules.json")
            path.parent.mkdir()
            path.write_text("{")
            done = command("flashattn", "doctor", XDG_CACHE_HOME=folder)
            self.assertIn(
                f"expected tuned schedules of version 4 in {path} but got other content; delete", done.stdout
            )


class BenchTest(unittest.TestCase):
    def test_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "record.json")
            done = command(
                "flashattn.bench", "--device=cpu", "--only=causal-1k,gptoss-swa", "--rounds=2", "--ms=1", "--check",
                f"--json={path}", FLASHATTN_CACHE=str(Path(folder, "code")),
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            # Compilation is measured: no kernel comes from a cache, nor goes into one.
            record = json.loads(path.read_text())
            self.assertEqual([entry.name for entry in Path(folder).iterdir()], ["record.json"])
            again = command("flashattn.bench", f"--from-json={path}")
            self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)
            part = command("flashattn.bench", f"--from-json={path}", "--only=gptoss-swa")
            self.assertIn("| gptoss-swa@1x8x1024 |", part.stdout)
            self.assertNotIn("causal-1k", part.stdout)
            other = command("flashattn.bench", f"--from-json={path}", "--only=seed-small")
            self.assertIn(
                "error: expected shapes causal-1k@1x4x1024, gptoss-swa@1x8x1024 but got seed-small",
                other.stderr,
            )
            self.assertEqual(other.returncode, 1)
        self.assertEqual(record["machine_kind"], "cpu")
        # What ran is named, not what it was made smaller from.
        names = ["causal-1k@1x4x1024", "gptoss-swa@1x8x1024"]
        self.assertEqual(sorted({row["shape"] for row in record["rows"]}), names)
        self.assertEqual([shape["name"] for shape in record["shapes"]], names)
        self.assertEqual([shape["Nq"] for shape in record["shapes"]], [1024, 1024])
        self.assertTrue({"ours", "numpy"} <= {row["peer"] for row in record["rows"]})
        for row in record["rows"]:
            if row["peer"] == "ours":
                self.assertRegex(row["schedule"], r"^tile_m = \d+, ")
            if "ms" in row:
                self.assertGreater(row["first_call_ms"], 0)
                self.assertGreater(row["tflops"], 0)
                self.assertLessEqual(row["ms_low"], row["ms"])
        self.assertIn("| causal-1k@1x4x1024 |", done.stdout)
        self.assertIn("[1/2] causal-1k@1x4x1024: ours ", done.stderr)
        self.assertRegex(done.stderr, r"\[2/2\] gptoss-swa@1x8x1024: .*  first result, ms: ours \d+")

    def test_gradients_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "record.json")
            done = command(
                "flashattn.bench", "--device=cpu", "--backward", "--only=gptoss-swa", "--rounds=1", "--ms=1",
                "--check", f"--json={path}",
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            record = json.loads(path.read_text())
            again = command("flashattn.bench", f"--from-json={path}")
            self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)
        self.assertTrue(record["backward"])
        rows = {row["peer"]: row for row in record["rows"]}
        self.assertTrue({"ours", "numpy"} <= set(rows))
        (shape,) = record["shapes"]
        flops = 2.5 * bench.flops_of(shape)
        self.assertAlmostEqual(rows["ours"]["tflops"], flops / rows["ours"]["ms"] / 1e9)
        self.assertRegex(rows["ours"]["schedule"], r"^tile_m = \d+, ")
        self.assertGreater(rows["ours"]["first_call_ms"], 0)
        self.assertIn("TFLOP/s of visible pairs for the gradients", done.stdout)
        # One query is nobody's training.
        done = command("flashattn.bench", "--device=cpu", "--backward", "--only=decode-gqa")
        self.assertEqual(done.returncode, 1)
        self.assertIn("but got decode-gqa", done.stderr)

    def test_says_that_there_is_no_gpu(self):
        try:
            import torch

            if torch.cuda.is_available():
                self.skipTest("there is a GPU")
        except ImportError:
            pass
        sizes = ("--batch=2", "--heads=4", "--kv-heads=2", "--length=40", "--queries=7", "--head-dim=16")
        mask = ("--mask=sink", "--window=9", "--sinks=2", "--dtype=f32")
        done = command("flashattn", "bench", *sizes, *mask, "--rounds=1", "--ms=1", "--check", "--peers=numpy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no GPU to measure", done.stderr)
        # A shape of one's own is timed as it is.
        self.assertIn("| d16-f32-sink@2x4/2x7x40 | ", done.stdout)
        done = command("flashattn.bench", "--device=cuda")
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: expected a CUDA device but got none: torch ", done.stderr)

    def test_refuses_what_it_does_not_know(self):
        done = command("flashattn.bench", "--device=cpu", "--only=big")
        self.assertIn("error: expected shapes seed-small, ", done.stderr)
        self.assertIn("but got big", done.stderr)
        done = command("flashattn.bench", "--sweep", "--features")
        self.assertIn("expected --sweep or --features but got both", done.stderr)
        done = command("flashattn.bench", "--rounds=0")
        self.assertEqual(
            done.stderr, "error: argument --rounds: expected a number of at least 1 but got '0'\n"
        )
        done = command("flashattn", "bench", "--device=cpu", FLASHATTN_LIBRARY="/nowhere")
        self.assertRegex(done.stderr, r"\Aerror: expected libFlashAttnC.so in /nowhere .*\n\Z")

    def test_refuses_what_is_no_record(self):
        done = command("flashattn.bench", "--from-json=record.json", "--check")
        self.assertIn(
            "expected only --only and --chart with --from-json but got --check", done.stderr
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "record.json")
            lines = []
            for text in (None, "{", "[]", '{"date": "", "commit": "", "rows": []}'):
                if text is not None:
                    path.write_text(text)
                done = command("flashattn.bench", f"--from-json={path}")
                self.assertEqual(done.returncode, 1)
                lines.append(done.stderr.strip())
            expected = f"error: expected a record of --json in {path} but got "
            for line in lines:
                self.assertTrue(line.startswith(expected), line)
            self.assertIn("No such file", lines[0])
            self.assertIn("JSON without date, ", lines[2])
            self.assertTrue(
                lines[3].endswith("JSON without machine, matmul_tflops, read_gbs, rounds")
            )

    def test_a_wrong_result_is_found(self):
        backend = bench.CPUBackend()
        shape = bench.for_cpu(
            {
                "name": "small",
                "B": 1,
                "Hq": 4,
                "Hkv": 4,
                "Nq": 64,
                "Nk": 64,
                "D": 16,
                "dtype": "f32",
                "mask": "causal",
            }
        )
        q, k, v = backend.tensors(shape)
        o = backend.ours(shape, q, k, v)()
        bench.check(backend, shape, q, k, v, o)
        o[0, 3, 63, 5] += 1e-3
        with self.assertRaisesRegex(ValueError, "error 1.00e-03 of batch 0, head 3 exceeds"):
            bench.check(backend, shape, q, k, v, o)

    def test_a_wrong_gradient_is_found(self):
        sizes = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 40, "Nk": 64, "D": 16}
        shape = {"name": "small", **sizes, "dtype": "f16", "mask": "causal"}
        for feature in (None, "softcap", "alibi", "attn_mask"):
            shape.update(feature=feature, documents=2)
            backend = bench.CPUBackend()
            backward = _backward.Backward(backend, shape, *backend.tensors(shape))
            found = backward.ours()()
            backward.check(found)
            for name, gradient in zip(("dq", "dk", "dv"), found):
                right = gradient[0, 0, 0, 3]
                gradient[0, 0, 0, 3] += 0.5
                with self.assertRaisesRegex(
                    ValueError, rf"^{name} of batch 0, head 0: error 5.00e-01 exceeds \d"
                ):
                    backward.check(found)
                gradient[0, 0, 0, 3] = right

    def test_counts_visible_pairs(self):
        shapes = {shape["name"]: shape for shape in bench.load_shapes()}
        self.assertEqual(bench.flops_of(shapes["seed-small"]), 4.0 * 64 * 128 * 1024 * 1024)
        self.assertEqual(
            bench.flops_of(shapes["causal-1k"]), 4.0 * 16 * 16 * 128 * (1024 * 1025 // 2)
        )
        window = sum(min(row + 1, 1024) for row in range(16384))
        self.assertEqual(bench.flops_of(shapes["swa-1k"]), 4.0 * 32 * 128 * window)
        sinks = sum(min(row + 1, 128) + min(4, max(0, row - 127)) for row in range(8192))
        self.assertEqual(bench.flops_of(shapes["gptoss-swa"]), 4.0 * 64 * 64 * sinks)
        self.assertEqual(
            bench.bytes_of(shapes["decode-gqa"]), 2.0 * 32 * 128 * (2 * 32 + 2 * 8 * 8192)
        )

    def test_counts_as_the_reference_does(self):
        for mask in ("none", "causal", "window", "sink"):
            for nq, nk in ((1, 50), (40, 40), (17, 60)):
                shape = {"Nq": nq, "Nk": nk, "mask": mask, "window": 9, "sinks": 3}
                expected = _reference.count_visible(bench.mask_of(shape), nq, nk)
                self.assertEqual(bench.visible_pairs(shape), expected, (mask, nq, nk))

    def test_sweep(self):
        shapes = bench.sweep_shapes()
        self.assertEqual({shape["Nq"] for shape in shapes}, {512 << n for n in range(7)})


class TuneTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        previous = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = self.folder

        def restore():
            if previous is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = previous

        self.addCleanup(restore)
        self.path = Path(self.folder, "flashattn", "schedules.json")

    def test_the_folder_is_the_librarys(self):
        self.assertEqual(_tuned.default_path(), self.path)
        for folder in ("", "relative"):
            os.environ["XDG_CACHE_HOME"] = folder
            expected = Path.home() / ".cache" / "flashattn" / "schedules.json"
            self.assertEqual(_tuned.default_path(), expected)

    def test_the_file_is_checked_before_the_trials(self):
        self.path.parent.write_text("not a folder")
        arguments = ["--device=cpu", "--head-dim=16", "--dtype=f32", "--heads=2", "--length=64"]
        done = command("flashattn.tune", *arguments)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "^error: cannot read '.*schedules.json': expected a folder but got something else")
        self.assertEqual(done.stdout, "")
        self.path.parent.unlink()

    def test_finds_keeps_and_uses_a_schedule(self):
        arguments = [
            "--device=cpu",
            "--head-dim=16",
            "--dtype=f32",
            "--mask=causal",
            "--heads=2",
            "--length=128",
        ]
        arguments += ["--tile-m=8,16", "--tile-n=2000,32", "--rounds=1", "--ms=1"]
        done = command("flashattn.tune", *arguments, "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.path.exists())
        done = command("flashattn.tune", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("between 1 and 1024 but got 2000", done.stdout)
        self.assertIn("best for cpu/16/16/f32/triangular: tile_m = ", done.stdout)
        self.assertEqual([entry.name for entry in self.path.parent.iterdir()], ["schedules.json"])
        found = _tuned.load()["cpu/16/16/f32/triangular"]
        self.assertGreater(found["ms"], 0)
        kernel = flashattn.compile(head_dim=16, dtype="f32", mask=causal, chip="cpu")
        self.assertEqual(kernel.schedule, found["schedule"])
        # What an earlier run has kept is tried too, and what becomes of it is said.
        slow = _module.format_schedule({"tile_m": 2, "tile_n": 8}, "f32", True)
        _tuned.store("cpu/16/16/f32/triangular", {"schedule": slow})
        done = command("flashattn.tune", *arguments)
        self.assertIn(f"| {slow} (kept so far) |", done.stdout)
        self.assertIn(f"the new schedule replaces {slow}", done.stdout)

    def test_lists_what_fits_a_chip(self):
        def fitting(*arguments):
            done = command("flashattn.tune", "--backward", "--chip=sm_90a", "--dtype=bf16", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            trials = [line.split(">: ") for line in done.stdout.splitlines() if "mapping = hopper<" in line]
            self.assertGreater(len(trials), 0)
            return [schedule for schedule, reason in trials if reason == "fits"]

        # Sums of wide heads, which consumers split or programs apart make: of three numbers of heads at once.
        wide = fitting("--head-dim=256", "--tile-n=48", "--stages=2", "--consumers=2")
        self.assertEqual(sum("cooperative = 1" in schedule for schedule in wide), 3)
        self.assertEqual(sum("algorithm = separate_dk_dv" in schedule for schedule in wide), 3)
        self.assertEqual(len(wide), 6)
        # Who adds shares of dq, through how many places, and whether blocks claim programs; in turns none does.
        shared = ["--head-dim=128", "--mask=causal", "--tile-m=128", "--tile-n=64", "--stages=2", "--consumers=2"]
        claiming = [schedule for schedule in fitting(*shared) if "dynamic_scheduler" in schedule]
        for places in ("dq_reduce_stages = 1", "dq_reduce_stages = 2"):
            self.assertTrue(any(places in schedule for schedule in claiming), claiming)
        in_turns = fitting(*shared, "--deterministic")
        self.assertTrue(all("dq_reduce_stages" in schedule for schedule in in_turns), in_turns)
        self.assertFalse(any("dynamic_scheduler" in schedule for schedule in in_turns), in_turns)

    def test_gradients_are_tuned_apart(self):
        arguments = [
            "--backward",
            "--device=cpu",
            "--head-dim=16",
            "--dtype=f32",
            "--heads=2",
            "--length=128",
        ]
        arguments += ["--tile-m=8,16", "--tile-n=2000,32", "--rounds=1", "--ms=1"]
        for flags, kind in (([], "backward"), (["--deterministic"], "backward/deterministic")):
            done = command("flashattn.tune", *arguments, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("between 1 and 1024 but got 2000", done.stdout)
            self.assertIn(f"best for cpu/16/16/f32/full/{kind}: tile_m = ", done.stdout)
        self.assertEqual(
            set(_tuned.load()),
            {"cpu/16/16/f32/full/backward", "cpu/16/16/f32/full/backward/deterministic"},
        )
        # What was found is what gradients take, and nobody else.
        own = flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule
        found = _module.format_schedule({"tile_m": 8, "tile_n": 24}, "f32", True)
        _tuned.store("cpu/16/16/f32/full/backward", {"schedule": found})
        x = numpy.zeros((1, 1, 4, 16), numpy.float32)
        o, lse = flashattn.attention(x, x, x, return_lse=True)
        for deterministic in (False, True):
            _cache.cache.clear()
            flashattn.attention_backward(x, x, x, o, lse, x, deterministic=deterministic)
            (kernel,) = _cache.cache.kernels.values()
            self.assertEqual(kernel.schedule == found, not deterministic)
        self.assertEqual(flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule, own)

    def test_deterministic_is_of_gradients(self):
        done = command("flashattn.tune", "--deterministic", "--device=cpu")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected --backward with --deterministic but got none", done.stderr)

    def test_a_finding_is_read_unless_told_not_to(self):
        own = flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule
        found = _module.format_schedule({"tile_m": 8, "tile_n": 16}, "f32", True)
        self.assertNotEqual(own, found)
        _tuned.store("cpu/16/16/f32/full", {"schedule": found})
        self.assertEqual(flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule, found)
        self.assertEqual(
            flashattn.compile(head_dim=16, dtype="f32", chip="cpu", tuned=False).schedule, own
        )
        self.assertEqual(
            flashattn.compile(head_dim=16, dtype="f32", mask=causal, chip="cpu").schedule, own
        )
        for off in ("0", "OFF", "false"):
            with mock.patch.dict(os.environ, FLASHATTN_TUNED=off):
                self.assertFalse(_tuned.enabled())
                self.assertEqual(flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule, own)
        with mock.patch.dict(os.environ, FLASHATTN_TUNED="maybe"):
            with self.assertWarnsRegex(UserWarning, "expected FLASHATTN_TUNED to be 0 or 1 but got 'maybe'; 1 is used"):
                self.assertTrue(_tuned.enabled())
            self.assertEqual(flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule, found)

    def test_a_cache_keeps_nobody_from_computing(self):
        own = flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule
        for text in (
            "{",
            "[]",
            '{"version": 1, "schedules": {}}',
            '{"version": 4, "schedules": {"cpu/16/16/f32/full": 3}}',
        ):
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(text)
            self.assertEqual(flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule, own)
            with self.assertRaisesRegex(
                flashattn.FlashAttnError, "expected tuned schedules of version 4 in"
            ):
                _tuned.store("key", {"schedule": own})
            self.assertEqual(self.path.read_text(), text)
        # A schedule of another version of the compiler, which this one refuses.
        self.path.unlink()
        _tuned.store("cpu/16/16/f32/full", {"schedule": "tile_m = 8, tile_n = 4096"})
        self.assertEqual(flashattn.compile(head_dim=16, dtype="f32", chip="cpu").schedule, own)

    def test_a_schedule_is_for_one_kernel(self):
        """Packed queries beside keys that are not packed have a kernel for each class of lengths."""
        tuned = "tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>"
        _tuned.store("sm_80/64/64/f16/full", {"schedule": tuned})
        own = {}
        for use in (False, True):
            for operands in ({"cu_seqlens_q": True}, {"cu_seqlens_q": True, "cu_seqlens_k": True}):
                kernel = flashattn.compile(head_dim=64, dtype="f16", chip="sm_80", tuned=use, **operands)
                own[use, len(operands)] = kernel.schedule
        self.assertEqual(own[True, 1], own[False, 1])
        self.assertIn("tile_n = 32, stages = 1", own[True, 2])
        self.assertNotEqual(own[True, 2], own[False, 2])

    def test_classes_of_masks(self):
        near = window(left=7, right=0)
        below = affine_set("(p, k)[nq, nk] : (p - k >= 0)")
        for mask, name in (
            (None, "full"),
            (causal, "triangular"),
            (below, "triangular"),
            (near, "banded"),
            (near | sink(4) & causal, "banded"),
            (window(right=3), "triangular"),
        ):
            kernel = flashattn.compile(head_dim=64, value_dim=128, mask=mask, chip="sm_90a")
            self.assertEqual(kernel.tuning_key, f"sm_90a/64/128/f16/{name}", str(mask))

    def test_reasons_without_a_gpu(self):
        done = command(
            "flashattn.tune",
            "--chip=sm_86",
            "--head-dim=256",
            "--tile-m=64,128",
            "--tile-n=32,128",
            "--stages=2",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(
            done.stdout,
            r"tile_m = 128, tile_n = 128, .*: needs \d+ bytes of shared memory .* of 101376 available",
        )

    def test_reasons_for_gradients(self):
        done = command(
            "flashattn.tune", "--backward", "--deterministic", "--chip=sm_90a", "--head-dim=128", "--tile-n=64,96",
            "--stages=2", "--consumers=2",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in (
            r"tile_m = 64, tile_n = 64, .* mapping = hopper<consumers = 2, .*: fits",
            r"tile_m = 128, tile_n = 64, .* mapping = hopper<consumers = 2, .*: fits",
            r"tile_m = 64, tile_n = 96, .*: needs \d+ registers per thread \(dk 64, dv 64, .* of \d+ that a consumer has",
        ):
            self.assertRegex(done.stdout, line)

    def test_reasons_for_roles(self):
        done = command(
            "flashattn.tune", "--chip=sm_90a", "--head-dim=128", "--tile-n=80,176", "--stages=2,3", "--tile-m=64",
            "--consumers=2,3", "--heads=6", "--kv-heads=2",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertTrue(all("mapping = hopper<consumers = " in line for line in lines), done.stdout)
        best = "tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = {}, registers = 160, producer_registers = 32, rescale_threshold = 4, l2_head_group = 1>: {}"  # fmt: skip
        self.assertIn(best.format("query_tile", "fits"), lines)
        self.assertIn(
            best.format(
                "head",
                "expected a static number of query heads for each key/value head that is a multiple of 3, the number "
                "of consumers",
            ),
            lines,
        )
        for reason in (
            r"tile_n = 176.*: needs 224 registers per thread \(o 64, .*\) of 160 that a consumer has",
            r"tile_n = 176, stages = 3.*: needs \d+ bytes of shared memory .* of 232448 available",
        ):
            self.assertRegex(done.stdout, reason)

    def test_candidates(self):
        self.assertTrue(
            all(
                "stages = 1, dot_type = f32" in s
                for s in tune.candidates("f16", "cpu")
            )
        )
        plain = "tile_m = 128, tile_n = 64, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 8>"
        roles = "tile_m = 64, tile_n = 80, stages = 2, dot_type = bf16, mapping = hopper<consumers = 3, along = %s, registers = 160, producer_registers = 32, rescale_threshold = 3, l2_head_group = 4>"  # fmt: skip
        found = list(tune.candidates("bf16", "sm_90a", 6))
        self.assertEqual(len(found), len(set(found)))
        for text in (plain, roles % "query_tile", roles % "head"):
            self.assertIn(text, found)
        self.assertNotIn(roles % "head", list(tune.candidates("bf16", "sm_90a", 8)))
        for chip, element in (("sm_80", "bf16"), ("sm_90a", "f32")):
            self.assertFalse([s for s in tune.candidates(element, chip) if "hopper" in s])
        narrowed = list(
            tune.candidates("f16", "sm_90a", 1, tile_n=[64], stages=[2], consumers=[2])
        )
        # With few rescalings, too, judged late.
        self.assertEqual(len(narrowed), 14)
        self.assertEqual(sum("rescale_threshold = 15" in s and "lazy_rescale = 1" in s for s in narrowed), 7)
        self.assertEqual(sum("dynamic_scheduler = 1" in s for s in narrowed), 6)
        self.assertTrue(all("consumers = 2, along = query_tile" in s for s in narrowed))
        given = list(
            tune.candidates(
                "f16", "sm_90a", 1, tile_m=[64], tile_n=[64], stages=[2], consumers=[2], registers=[216]
            )
        )
        self.assertEqual(len(given), 14)
        self.assertTrue(all("registers = 216, producer_registers = 24" in s for s in given))
        packed = list(
            tune.candidates("f16", "sm_90a", 8, tile_n=[32], stages=[2], consumers=[1], blocks_per_sm=[3], pack=[1, 8])
        )  # fmt: skip
        self.assertEqual(len(packed), 10)
        with self.assertRaisesRegex(flashattn.ArgumentError, "expected lists tile_m, .* but got blocks"):
            tune.candidates("f16", "sm_90a", blocks=[3])
        self.assertTrue(all("blocks_per_sm = 3" in s for s in packed))
        self.assertEqual(sum("dot_type = f16, pack = 8, mapping = hopper<" in s for s in packed), 3)
        # On the CPU, where a tile has as many rows of each head.
        packed = list(tune.candidates("f32", "cpu", 4, tile_m=[16, 6], tile_n=[32], pack=[1, 4]))
        self.assertEqual([re.findall(r"tile_m = \d+|pack = \d+", s) for s in packed],
                         [["tile_m = 16"], ["tile_m = 16", "pack = 4"], ["tile_m = 6"]])  # fmt: skip
        banded = list(
            tune.candidates("f16", "sm_90a", 8, True, tile_n=[48], stages=[2], consumers=[1], blocks_per_sm=[4], pack=[8])
        )  # fmt: skip
        self.assertEqual(sum("compact_kv = 1" in s for s in banded), 3)
        self.assertEqual(len(banded), 6)

    def test_tuned_only_by_more_than_the_spread(self):
        own = (0.95, 1.0, 1.05)
        for other, chosen in [
            ((0.80, 0.90, 0.94), "other"),
            ((0.80, 0.90, 0.96), ""),  # they overlap
            ((0.90, 0.985, 0.94), ""),  # less than the margin
        ]:
            times = {"": own, "other": other, "slow": (2, 2, 2)}
            self.assertEqual(tune.choose(times), chosen)
        self.assertEqual(tune.choose({"": own}), "")
        self.assertEqual(tune.quartiles([3, 1, 2, 5, 4]), (2, 3, 4))



if __name__ == "__main__":
    unittest.main()
