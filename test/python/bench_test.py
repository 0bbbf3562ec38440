# What the benchmark reads of a GPU's instruments, with stand-ins for them, and its peers that are no part of torch.
# REQUIRES: python-package, cc
# RUN: %flashattn_python %s

import collections
import contextlib
import importlib.util
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from flashattn import _reference
from flashattn.bench import _backends, _command as bench, _counters, _peers, _power, _stack

try:
    import torch
except ImportError:
    torch = None

INPUTS = Path(__file__).parent / "Inputs"
BUS_ID = "00000000:1B:00.0"
SHAPE = {"name": "tiny", "B": 1, "Hq": 2, "Hkv": 2, "Nq": 32, "Nk": 32, "D": 16, "dtype": "f32", "mask": "causal"}  # fmt: skip


def enter(test, patch):
    """Until the test ends."""
    patch.start()
    test.addCleanup(patch.stop)


class FakeCard(_backends.CPUBackend):
    """The CPU in place of a GPU."""

    name = "cuda"
    read_size = 1 << 20

    def bus_id(self):
        return BUS_ID


class InstrumentsTest(unittest.TestCase):
    """Each test has a folder, and the stand-ins on PATH and in place of NVML."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        ncu = Path(cls.folder, "bin", "ncu")
        ncu.parent.mkdir()
        ncu.write_text(f'#!/bin/sh\nexec {sys.executable} {INPUTS / "fake_ncu.py"} "$@"\n')
        ncu.chmod(0o755)
        cls.nvml = str(Path(cls.folder, "libnvml.so"))
        source = str(INPUTS / "fake_nvml.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", cls.nvml, source], check=True)

    def setUp(self):
        self.calls = Path(self.folder, "calls")
        self.calls.write_text("")
        path = os.pathsep.join([str(Path(self.folder, "bin")), os.environ["PATH"]])
        enter(self, mock.patch.object(_power, "LIBRARY", self.nvml))
        self.set(PATH=path, FAKE_NCU="", FAKE_NVML="", FAKE_NCU_CALLS=str(self.calls))

    def set(self, **environment):
        enter(self, mock.patch.dict(os.environ, environment))

    def run_bench(self, *arguments):
        """The status, the table and the progress of a run on the stand-in of a card."""
        out, progress = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            for name, value in (
                ("choose_backend", lambda device: FakeCard()),
                ("load_shapes", lambda: [SHAPE]),
            ):
                stack.enter_context(mock.patch.object(bench, name, value))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(progress))
            status = bench.main(["--peers=numpy", "--rounds=1", "--ms=1", *arguments])
        return status, out.getvalue(), progress.getvalue()

    def refusal(self, *arguments):
        with self.assertRaises(SystemExit) as caught:
            self.run_bench(*arguments)
        return str(caught.exception)


class CountersTest(InstrumentsTest):
    def test_in_the_table_and_the_record(self):
        path = Path(self.folder, "record.json")
        status, table, _ = self.run_bench("--counters", f"--json={path}")
        self.assertEqual(status, 0)
        # Ours: 1 us of the first kernel and 3 of the second; numpy's: 1 and 4.
        self.assertRegex(table, r"\| limit \| tensor % \| XU % \| issue % \| DRAM % \| L2 % \|")
        self.assertRegex(table, r"\| (read|matmul) \| 60 \| 25 \| 35 \| 30 \| 30 \|\n")
        self.assertIn("| tiny | ours | 60 | 25 | 35 | 30 | 30 | 2 | 4.0 |", table)
        self.assertIn("| tiny | numpy | 64 | 26 | 36 | 26 | 28 | 2 | 5.0 |", table)
        rows = {row["peer"]: row for row in json.loads(path.read_text())["rows"]}
        self.assertEqual(rows["ours"]["counters"]["tensor"], 60.0)
        kernels = rows["numpy"]["counters"]["kernels"]
        self.assertEqual([kernel["name"] for kernel in kernels], ["numpy_prepare", "numpy_main"])
        self.assertEqual(kernels[1]["us"], 4.0)
        again = io.StringIO()
        with contextlib.redirect_stdout(again):
            self.assertEqual(bench.main([f"--from-json={path}"]), 0)
        self.assertEqual(again.getvalue(), table)

    def test_how_ncu_is_called(self):
        self.run_bench("--counters")
        (call,) = map(json.loads, self.calls.read_text().splitlines())
        options = " ".join(call)
        for option in (
            "--csv",
            "--clock-control none",
            "--cache-control none",
            "--profile-from-start off",
        ):
            self.assertIn(option, options)
        self.assertEqual(call[-3:-1], ["-m", "flashattn.bench._counters"])
        self.assertEqual(
            json.loads(call[-1]), {"shape": SHAPE, "names": ["ours", "numpy"], "backward": False}
        )

    def test_a_figure_that_is_lacking(self):
        self.set(FAKE_NCU="lacking")
        status, table, _ = self.run_bench("--counters")
        self.assertEqual(status, 0)
        self.assertIn("| tiny | ours | 60 | n/a | 35 | 30 | 30 | 2 | 4.0 |", table)
        self.assertIn("ncu gave no figure for n/a, of sm__inst_executed_pipe_xu.avg.", table)

    def test_a_metric_that_ncu_does_not_know(self):
        self.set(FAKE_NCU="unknown")
        status, table, _ = self.run_bench("--counters")
        self.assertEqual(status, 0)
        self.assertIn("| tiny | ours | 60 | 25 | 35 | 30 | n/a | 2 | 4.0 |", table)
        self.assertIn("ncu gave no figure for n/a, of lts__throughput.avg.", table)
        first, second = self.calls.read_text().splitlines()
        self.assertIn("lts__throughput", first)
        self.assertNotIn("lts__throughput", second)

    def test_what_goes_wrong(self):
        messages = {
            "permission": "expected the right to read the GPU's counters but got ERR_NVGPUCTRPERM: run as root, or "
            "have an administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0",
            "library": "ncu ended with status 1: ==ERROR== Failed to initialize the profiler: LibraryNotLoaded",
            "program": "ncu ended with status 1: RuntimeError: out of memory",
            "none": "expected kernels in ncu's output but found none: ==WARNING== No kernels were profiled.",
            "marker": "expected the kernels of 2 calls in ncu's output but found those of 1",
            "empty": "expected kernels of ours in ncu's output but found none",
            "untimed": "expected gpu__time_duration.sum of ours_prepare in ncu's output but found none",
        }
        for mode, message in messages.items():
            with self.subTest(mode):
                self.set(FAKE_NCU=mode)
                status, table, progress = self.run_bench("--counters")
                self.assertEqual(status, 1)
                self.assertIn(f"[1/1] tiny: no counters: {message}\n", progress)
                # What was timed is not lost.
                self.assertRegex(table, r"\| tiny \| [\d.e-]+ \|")
                self.assertIn(f" No counters: {message}.", table)

    def test_what_it_needs(self):
        self.set(PATH="/nowhere")
        message = "error: expected ncu, of Nsight Compute, on PATH for --counters but found none"
        self.assertEqual(self.refusal("--counters"), message)
        with mock.patch.object(FakeCard, "name", "cpu"):
            message = "error: expected a CUDA device for --%s but got the CPU"
            self.assertEqual(self.refusal("--counters"), message % "counters")
            self.assertEqual(self.refusal("--sustained"), message % "sustained")

    def test_what_it_cannot_run(self):
        profiler = _counters.Profiler()
        profiler.ncu = str(INPUTS / "fake_nvml.c")  # no program
        with self.assertRaisesRegex(_counters.CountersError, "^cannot run ncu: ") as caught:
            profiler.count(SHAPE, ["ours"], False)
        self.assertTrue(caught.exception.is_final)
        slow = subprocess.TimeoutExpired("ncu", 1)
        with mock.patch.object(_counters.subprocess, "run", side_effect=slow):
            with self.assertRaisesRegex(
                _counters.CountersError, "^expected ncu to end within 600 s but it did not$"
            ):
                _counters.Profiler().count(SHAPE, ["ours"], False)

    def test_the_program_that_ncu_runs(self):
        events = []
        cuda = types.SimpleNamespace(
            synchronize=lambda: None,
            _sleep=lambda cycles: events.append("marker"),
            profiler=types.SimpleNamespace(
                start=lambda: events.append("start"), stop=lambda: events.append("stop")
            ),
        )
        backend = FakeCard()
        backend.torch = types.SimpleNamespace(cuda=cuda)
        backend.ours = lambda *given: lambda: events.append("ours")
        backend.numpy_peer = lambda *given: lambda: events.append("numpy")
        names = ["ours", "numpy"]
        _counters.run_marked(backend, {"shape": SHAPE, "names": names, "backward": False})
        expected = [e for name in names for e in (name, name, "start", "marker", name, "stop")]
        self.assertEqual(events, expected)


class SustainedTest(InstrumentsTest):
    def test_in_the_table_and_the_record(self):
        path = Path(self.folder, "record.json")
        status, table, _ = self.run_bench("--sustained=0.2", f"--json={path}")
        self.assertEqual(status, 0)
        self.assertIn("Sustained: 0.2 s of each without a pause, 3 times in turns, medians", table)
        self.assertIn("| shape |  | TFLOP/s | W | MHz | J/TFLOP | ours / peer |", table)
        self.assertRegex(table, r"\| tiny \| ours \| [\d.e-]+ \| \d+ \| 1500 \| [\d.e+]+ \| - \|")
        self.assertRegex(
            table, r"\| tiny \| numpy \| [\d.e-]+ \| \d+ \| 1500 \| [\d.e+]+ \| [\d.]+ \|"
        )
        record = json.loads(path.read_text())
        self.assertEqual(record["sustained_seconds"], 0.2)
        for row in record["rows"]:
            held = row["sustained"]
            self.assertGreaterEqual(held["seconds"], 0.2)
            self.assertAlmostEqual(held["tflops"], bench.flops_of(SHAPE) / held["ms"] / 1e9)
            self.assertAlmostEqual(held["joules_per_tflop"], held["watts"] / held["tflops"])
        again = io.StringIO()
        with contextlib.redirect_stdout(again):
            bench.main([f"--from-json={path}"])
        self.assertEqual(again.getvalue(), table)
        # Records of before had one turn each, of calls.
        del record["sustained_turns"]
        path.write_text(json.dumps(record))
        with contextlib.redirect_stdout(io.StringIO()) as older:
            bench.main([f"--from-json={path}"])
        text = older.getvalue()
        self.assertIn("0.2 s of each without a pause, one implementation after the other.", text)
        self.assertNotIn("CUDA graphs", text)

    def test_energy_or_else_power(self):
        clock = mock.Mock(side_effect=iter(range(1000)))
        with mock.patch.object(_power.time, "perf_counter", clock):
            meter = _power.Meter(BUS_ID)
            meter.start()
            for _ in range(6):
                meter.sample()
            # 8.75 J in each second of this clock, which goes on when it is read.
            found = meter.stop()
            self.assertEqual((found["watts"], found["mhz"]), (8.75, 1500))
            self.set(FAKE_NVML="energy")  # the card counts none
            meter.start()
            meter.sample()
            self.assertEqual(meter.stop()["watts"], 700.0)
            meter.close()

    def test_calls_go_on_without_a_pause(self):
        events = []
        timer = types.SimpleNamespace(mark=lambda: lambda: events.append("wait"))
        meter = _power.Meter(BUS_ID)
        found = _power.sustain(
            lambda: events.append("batch"), 2, timer, 0.01, meter
        )
        # A second batch before the first is waited for.
        self.assertEqual(events[:3], ["batch", "batch", "wait"])
        self.assertEqual(events.count("batch"), events.count("wait"))
        # What is measured are half of the milliseconds of a batch, and no more than all of the time.
        self.assertTrue(0 < found["ms"] <= 1e3 * found["seconds"] / 2)

    def test_turns(self):
        seen = []

        def sustain(batch, repeats, timer, seconds, meter):
            batch()
            seen.append((seen.pop(), repeats))
            # The first turn, of a card that was idle, would be the slowest by far.
            return {"ms": 100.0 if len(seen) == 1 else len(seen), "watts": 700.0}

        calls = {name: functools.partial(seen.append, name) for name in ("ours", "fa3")}
        call_ms = {"ours": _power.BATCH_MS, "fa3": _power.BATCH_MS / 3.5}
        timer = types.SimpleNamespace(repeat=lambda call, count: call)
        with mock.patch.object(_power, "sustain", sustain):
            found = _power.sustain_all(calls, timer, call_ms, 1.0, None, 2e9)
        first, second = (name for name, _ in seen[1:3])
        self.assertEqual(
            [name for name, _ in seen], [first, *([first, second] * _power.TURNS)]
        )
        self.assertEqual(dict(seen), {"ours": 1, "fa3": 3})
        # Medians of turns 2, 4 and 6, and of 3, 5 and 7.
        self.assertEqual((found[first]["ms"], found[second]["ms"]), (4, 5))
        self.assertEqual(found[first]["tflops"], 0.5)
        self.assertEqual(found[first]["joules_per_tflop"], 1400)

    def test_graphs(self):
        events, graph = [], mock.Mock()

        @contextlib.contextmanager
        def record(given):
            self.assertIs(given, graph)
            yield
            if refuses:
                raise RuntimeError("operation not permitted when stream is capturing")

        synchronize = lambda: events.append("synchronize")  # noqa: E731
        cuda = types.SimpleNamespace(
            CUDAGraph=lambda: graph, graph=record, synchronize=synchronize
        )
        timer = _backends.CUDATimer(types.SimpleNamespace(cuda=cuda))
        for refuses in (False, True):
            batch = timer.repeat(lambda: events.append("call"), 3)
            self.assertEqual(events, ["call"] * 3 + ["synchronize"] * refuses)
            events.clear()
            batch()
            self.assertEqual(graph.replay.call_count, 1)
            self.assertEqual(events, ["call"] * 3 * refuses)
            events.clear()

    def test_what_it_needs(self):
        with mock.patch.object(_power, "LIBRARY", "/nowhere/libnvidia-ml.so.1"):
            self.assertRegex(
                self.refusal("--sustained"),
                "^error: expected NVML \\(/nowhere/libnvidia-ml.so.1\\) for --sustained but got: .*No such file",
            )
        messages = {
            "driver": "expected nvmlInit_v2 of NVML to succeed but got error 9: Driver Not Loaded",
            "power": "expected nvmlDeviceGetPowerUsage of NVML to succeed but got error 4: Insufficient Permissions",
        }
        for mode, message in messages.items():
            self.set(FAKE_NVML=mode)
            self.assertEqual(self.refusal("--sustained"), f"error: {message}")
        self.set(FAKE_NVML="")
        message = "expected nvmlDeviceGetHandleByPciBusId_v2 of NVML to succeed but got error 6: Not Found"
        with mock.patch.object(FakeCard, "bus_id", lambda self: "00000000:00:00.0"):
            self.assertEqual(self.refusal("--sustained"), f"error: {message}")

    def test_the_bus_id(self):
        self.set(FLASHATTN_CUDA_DRIVER=self.nvml)
        self.assertEqual(_power.bus_id(0), BUS_ID)
        with self.assertRaisesRegex(
            _power.PowerError, "^expected the PCI bus id of device 1 but got CUDA error 101$"
        ):
            _power.bus_id(1)
        self.set(FLASHATTN_CUDA_DRIVER="/nowhere/libcuda.so.1")
        with self.assertRaisesRegex(
            _power.PowerError,
            "^expected the CUDA driver for --sustained but got: .*No such file",
        ):
            _power.bus_id(0)

    def test_arguments(self):
        for given in ("0", "-1", "inf", "nan"):
            error = io.StringIO()
            with contextlib.redirect_stderr(error), self.assertRaises(SystemExit):
                bench.parse_arguments([f"--sustained={given}"])
            self.assertEqual(
                error.getvalue(), f"error: argument --sustained: expected a number above 0 but got '{given}'\n"
            )
        for flag in ("--counters", "--sustained"):
            error = io.StringIO()
            with contextlib.redirect_stderr(error), self.assertRaises(SystemExit):
                bench.parse_arguments(["--from-json=record.json", flag])
            self.assertIn(
                f"expected only --only and --chart with --from-json but got {flag}", error.getvalue()
            )
        self.assertEqual(bench.parse_arguments(["--sustained"]).sustained, 1.0)


class PeerNamesTest(unittest.TestCase):
    def test_those_that_there_are_not(self):
        def refusal(backend, *names):
            with self.assertRaises(SystemExit) as caught:
                bench.check_peers(list(names), backend)
            return str(caught.exception)

        bench.check_peers(None, _backends.CPUBackend)
        bench.check_peers([], _backends.CPUBackend)
        bench.check_peers(["numpy"], _backends.CPUBackend)
        message = "error: expected peers numpy, torch but got fa3"
        self.assertEqual(refusal(_backends.CPUBackend, "numpy", "fa3"), message)
        message = "error: expected peers cudnn, fa2, fa3, fa4, efficient, flex but got fa5"
        self.assertEqual(refusal(_backends.CUDABackend, "cudnn", "fa5"), message)
        with mock.patch.object(_peers.importlib.util, "find_spec", lambda module: None):
            message = "error: expected flash_attn.cute, the peer fa4, but it is not installed"
            self.assertEqual(refusal(_backends.CUDABackend, "fa4"), message)
        self.assertEqual(bench.parse_arguments(["--peers="]).peers, [])
        self.assertEqual(bench.parse_arguments(["--peers=a,b"]).peers, ["a", "b"])


class LimitTest(unittest.TestCase):
    def test_a_read_of_as_many_bytes(self):
        """Where reading takes longer than the products, the limit is a read in the same rounds."""
        sizes = []

        class Card(FakeCard):
            def readers(self, size):
                sizes.append(size)
                return super().readers(size)

        chosen = bench.parse_arguments(["--peers=numpy", "--rounds=1", "--ms=1"])
        for limits, limit in (
            (bench.Limits(1e9, 1.0), "read"),
            (bench.Limits(1e-9, 1e9), "matmul"),
        ):
            rows = bench.run_shape(Card(), SHAPE, chosen, limits)
            self.assertEqual([row["peer"] for row in rows], ["ours", "numpy"])
            self.assertEqual({row["limit"] for row in rows}, {limit})
        self.assertEqual(sizes, [int(bench.bytes_of(SHAPE))])
        # The share of the matmul's rate, as ever.
        self.assertAlmostEqual(rows[0]["of_limit"], rows[0]["tflops"] / 1e-9)

    def test_the_rate(self):
        self.assertGreater(_backends.read_gbs(FakeCard(), 1, 1), 0)


@unittest.skipUnless(torch, "torch is not installed")
class PeersTest(unittest.TestCase):
    def setUp(self):
        """Packages that take what FlashAttention's take, and compute with torch."""
        self.given = {}

        def package(name, *, gives_lse):
            def flash_attn_func(q, k, v, **options):
                self.given[name] = options
                x, y, z = (t.transpose(1, 2) for t in (q, k, v))
                o = torch.nn.functional.scaled_dot_product_attention(
                    x, y, z, is_causal=options["causal"], enable_gqa=True
                ).transpose(1, 2)
                return (o, None) if gives_lse else o

            return types.SimpleNamespace(flash_attn_func=flash_attn_func)

        modules = {
            "flash_attn_interface": package("fa3", gives_lse=False),
            "flash_attn.cute": package("fa4", gives_lse=True),
        }
        enter(self, mock.patch.object(_peers.importlib.util, "find_spec", modules.get))
        find = modules.__getitem__
        enter(self, mock.patch.object(_peers.importlib, "import_module", find))
        torch.manual_seed(0)
        sizes = ((2, 4, 8, 16), (2, 2, 8, 16), (2, 2, 8, 16), (2, 4, 8, 16))
        self.q, self.k, self.v, self.do = (torch.randn(size) for size in sizes)
        self.shape = dict(SHAPE, B=2, Hq=4, Hkv=2, Nq=8, Nk=8)

    def test_forward_and_gradients(self):
        leaves = tuple(x.clone().requires_grad_() for x in (self.q, self.k, self.v))
        o = torch.nn.functional.scaled_dot_product_attention(
            *leaves, is_causal=True, enable_gqa=True
        )
        wanted = torch.autograd.grad(o, leaves, self.do)
        calls = _peers.forward_makers(self.shape, self.q, self.k, self.v)
        gradients = _peers.gradient_makers(torch, self.shape, self.q, self.k, self.v, self.do)
        self.assertEqual((list(calls), list(gradients)), (["fa3", "fa4"], ["fa3", "fa4"]))
        for name in calls:
            found = calls[name]()().transpose(1, 2)
            torch.testing.assert_close(found, o.detach())
            for gradient, expected in zip(gradients[name]()(), wanted):
                torch.testing.assert_close(gradient.transpose(1, 2), expected)

    def test_masks(self):
        def options_of(**fields):
            shape = dict(self.shape, **fields)
            self.given.clear()
            for make in _peers.forward_makers(shape, self.q, self.k, self.v).values():
                make()()
            return self.given

        plain = {"causal": False}
        self.assertEqual(options_of(mask="none"), {"fa3": plain, "fa4": plain})
        near = {"causal": False, "window_size": (2, 0)}
        self.assertEqual(options_of(mask="window", window=3), {"fa3": near, "fa4": near})
        # One query: the keys go to as many blocks as FlashAttention-3 chooses.
        decoding = {"fa3": {"causal": False, "num_splits": 0}, "fa4": plain}
        self.assertEqual(options_of(mask="none", Nq=1), decoding)
        self.assertEqual(options_of(mask="causal", feature="softcap"), {})

    def test_sinks(self):
        """Only FlashAttention-4, whose stand-in sees what the function and the lists of blocks show."""
        shape = dict(self.shape, mask="sink", window=40, sinks=3, B=1, Nq=300, Nk=500)
        lists = collections.namedtuple(
            "BlockSparseTensorsTorch", "some_count some all_count all block_size"
        )
        utils = types.SimpleNamespace(scalar_to_ssa=lambda number, kind: number)
        cute = types.ModuleType("flash_attn.cute")
        cute.utils = utils
        modules = {
            "cutlass": types.SimpleNamespace(
                Int32=int, cute=types.SimpleNamespace(jit=lambda f: f)
            ),
            "flash_attn": types.ModuleType("flash_attn"),
            "flash_attn.cute": cute,
            "flash_attn.cute.block_sparsity": types.SimpleNamespace(BlockSparseTensorsTorch=lists),
        }
        enter(self, mock.patch.dict(sys.modules, modules))

        def shown(blocks, *lengths):
            """What the lists show: wholly, and at all."""
            self.assertEqual(blocks.block_size, (128, 128))
            whole, some = (torch.zeros(lengths, dtype=torch.bool) for _ in range(2))
            for count, order, targets in (
                (blocks.all_count, blocks.all, (whole, some)),
                (blocks.some_count, blocks.some, (some,)),
            ):
                for row in range(count.shape[2]):
                    for column in order[0, 0, row, : count[0, 0, row]].tolist():
                        for target in targets:
                            target[
                                128 * row : 128 * row + 128, 128 * column : 128 * column + 128
                            ] = True
            return whole, some

        def flash_attn_func(q, k, v, mask_mod, block_sparse_tensors, block_sparse_tensors_bwd=None):
            nq, nk = q.shape[1], k.shape[1]
            rows, keys = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
            seen = mask_mod(0, 0, rows, keys, None, None)
            whole, some = shown(block_sparse_tensors, nq, nk)
            self.assertTrue(bool((whole <= seen).all()) and bool((seen <= some).all()))
            self.assertLess(some.sum(), nq * nk)
            if block_sparse_tensors_bwd is not None:
                turned = shown(block_sparse_tensors_bwd, nk, nq)
                self.assertTrue(torch.equal(turned[0].T, whole) and torch.equal(turned[1].T, some))
            self.given["seen"] = seen
            x, y, z = (t.transpose(1, 2) for t in (q, k, v))
            call = torch.nn.functional.scaled_dot_product_attention
            return call(x, y, z, attn_mask=seen, enable_gqa=True).transpose(1, 2), None

        enter(self, mock.patch.object(
            _peers.importlib, "import_module", lambda name: types.SimpleNamespace(flash_attn_func=flash_attn_func)
        ))  # fmt: skip
        q, do = (torch.randn(1, 4, 300, 16) for _ in range(2))
        k, v = (torch.randn(1, 2, 500, 16) for _ in range(2))
        makers = _peers.forward_makers(shape, q, k, v)
        self.assertEqual(list(makers), ["fa4"])
        makers["fa4"]()()
        rows, keys = (torch.arange(n).numpy() for n in (300, 500))
        wanted = _reference.visible(
            bench.mask_of(shape), rows[:, None] + 200, keys[None, :], 300, 500
        )
        self.assertTrue((self.given["seen"].numpy() == wanted).all())
        gradients = _peers.gradient_makers(torch, shape, q, k, v, do)["fa4"]()()
        self.assertEqual(
            [tuple(x.shape) for x in gradients], [(1, 300, 4, 16)] + 2 * [(1, 500, 2, 16)]
        )

    def test_only_those_that_are_installed(self):
        with mock.patch.object(_peers.importlib.util, "find_spec", side_effect=ImportError):
            self.assertEqual(_peers.forward_makers(self.shape, self.q, self.k, self.v), {})


def run_stacks(*arguments):
    """What `--stacks` prints on the CPU, or its refusal."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            bench.main(["--device=cpu", "--rounds=1", *arguments])
        except SystemExit as refused:
            return f"{error.getvalue()}{refused}"
    return out.getvalue()


class StacksTest(unittest.TestCase):
    @unittest.skipIf(torch is None or not importlib.util.find_spec("transformers"), "transformers")
    def test_a_step_of_each(self):
        _, _, *rows = run_stacks("--stacks").splitlines()
        self.assertEqual([row.split()[1] for row in rows], list(_stack.STACKS))
        for row in rows:
            self.assertRegex(row, r"^\| \S+ \| eager \| [\d.]+ \| eager [\d.]+ \([\d.]+\) \|$")
        alone = run_stacks("--stacks=gpt-oss", "--peers=", "--tokens=7").splitlines()
        self.assertRegex(alone[-1], r"^\| gpt-oss \| eager \| [\d.]+ \| - \|$")

    def test_bad_arguments(self):
        for arguments, message in (
            (["--stacks=llama4"], "expected stacks llama3-8b, gemma2-9b, gpt-oss but got llama4"),
            (["--stacks", "--peers=fa3"], "expected peers eager but got fa3"),
            (["--tokens=8"], "expected --stacks with --compiled or --tokens but got none"),
            (["--compiled"], "expected --stacks with --compiled or --tokens but got none"),
            (["--stacks", "--tokens=0"], "--tokens: expected a number of at least 1 but got '0'"),
            (["--stacks", "--check"], "--compiled and --tokens with --stacks but got --check"),
            (["--stacks", "--keep-going"], "with --stacks but got --keep-going"),
            (["--stacks", "--ms=5"], "with --stacks but got --ms"),
            (["--stacks", "--kv-heads=2"], "with --stacks but got --kv-heads"),
        ):
            with self.subTest(arguments):
                self.assertIn(message, run_stacks(*arguments))

    def test_without_transformers(self):
        with mock.patch.dict(sys.modules, transformers=None):
            self.assertIn("expected transformers for --stacks but it is not installed", run_stacks("--stacks"))


if __name__ == "__main__":
    unittest.main()
