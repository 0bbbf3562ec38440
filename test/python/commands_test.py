# What the commands share: their names and flags, files to write, environment variables and signals.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import contextlib
import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

import flashattn
from flashattn import __main__, _environment, _files, _signals, tune
from flashattn.bench import _command as bench, _record, _stack


class OutputTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content=b"new"):
        _files.write_output(str(self.folder / name), content)

    def test_links_stay(self):
        (self.folder / "real").write_text("old")
        (self.folder / "real").chmod(0o640)
        (self.folder / "link").symlink_to("real")
        (self.folder / "dangling").symlink_to(self.folder / "made")
        self.write("link")
        self.write("dangling", b"made")
        self.assertTrue((self.folder / "link").is_symlink() and (self.folder / "dangling").is_symlink())
        self.assertEqual((self.folder / "real").read_text(), "new")
        self.assertEqual(stat.S_IMODE((self.folder / "real").stat().st_mode), 0o640)
        self.assertEqual((self.folder / "made").read_text(), "made")
        self.assertEqual(len(list(self.folder.iterdir())), 4)

    def test_what_is_no_file_is_written_to(self):
        got = []
        os.mkfifo(self.folder / "fifo")
        reader = threading.Thread(target=lambda: got.append((self.folder / "fifo").read_bytes()))
        reader.start()
        self.write("fifo")
        reader.join()
        self.assertEqual(got, [b"new"])
        # By way of a link: a fault must not replace the machine's own.
        (self.folder / "full").symlink_to("/dev/full")
        with self.assertRaisesRegex(SystemExit, "error: cannot write '.*full': No space left on device"):
            self.write("full")
        self.assertTrue(stat.S_ISCHR((self.folder / "full").stat().st_mode))
        self.assertTrue(_files.is_stream(str(self.folder / "full")) and _files.is_stream("/dev/fd/1"))
        with open(self.folder / "file", "wb") as file:
            file.write(b"first ")
            file.flush()
            _files.write_output(f"/proc/self/fd/{file.fileno()}", b"then")
        self.assertEqual((self.folder / "file").read_text(), "first then")

    def test_whole_or_not_at_all(self):
        (self.folder / "file").write_text("old")
        with mock.patch("os.replace", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(SystemExit, "error: cannot write '.*file': No space left on device"):
                self.write("file")
        self.assertEqual([path.read_text() for path in self.folder.iterdir()], ["old"])
        with self.assertRaisesRegex(SystemExit, "error: cannot write '.*': Is a directory"):
            self.write("")
        _record.write_json({"a": 1}, str(self.folder / "new" / "record.json"))
        self.assertEqual((self.folder / "new" / "record.json").read_text(), '{\n "a": 1\n}\n')


class EnvironmentTest(unittest.TestCase):
    def test_switches(self):
        for value, expected in (("0", False), ("OFF", False), ("no", False), ("1", True), ("On", True), ("", None)):
            with mock.patch.dict(os.environ, FLASHATTN_TEST=value), warnings.catch_warnings():
                warnings.simplefilter("error")
                for default in (False, True):
                    found = _environment.switch("FLASHATTN_TEST", default)
                    self.assertEqual(found, default if expected is None else expected)

    def test_what_makes_no_sense_is_a_warning_and_the_default(self):
        for read, value, default, expected in (
            (_environment.switch, "maybe", False, "0 or 1 but got 'maybe'; 0 is used"),
            (_environment.switch, "2", True, "0 or 1 but got '2'; 1 is used"),
            (_environment.number, "many", 7, "a number of at least 1 but got 'many'; 7 is used"),
            (_environment.number, "0", 7, "a number of at least 1 but got '0'; 7 is used"),
            (_environment.number, "-3", 7, "a number of at least 1 but got '-3'; 7 is used"),
            (_environment.number, "9" * 30, 7, f"a number of at least 1 but got '{'9' * 30}'; 7 is used"),
        ):
            with mock.patch.dict(os.environ, FLASHATTN_TEST=value):
                with self.assertWarns(UserWarning) as caught:
                    self.assertEqual(read("FLASHATTN_TEST", default), default)
                self.assertEqual(str(caught.warning), f"expected FLASHATTN_TEST to be {expected}")


class SignalTest(unittest.TestCase):
    def test_what_ends_a_benchmark_leaves_nothing_behind(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with tempfile.TemporaryDirectory() as folder:
                process = subprocess.Popen(
                    [sys.executable, "-m", "flashattn", "bench", "--device=cpu", "--rounds=1000"],
                    env={**os.environ, "TMPDIR": folder}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                end = time.monotonic() + 120
                while time.monotonic() < end and process.poll() is None:
                    # Python itself creates a file, to see whether it may, and removes it.
                    if any(Path(folder).glob("flashattn-bench-*")):
                        break
                    time.sleep(0.001)
                self.assertIsNone(process.poll(), "expected a benchmark with a temporary folder")
                process.send_signal(number)
                self.assertEqual(process.wait(120), 128 + number)
                self.assertEqual(os.listdir(folder), [])

    def test_no_temporary_folder_is_left_between_its_creation_and_its_removal(self):
        with tempfile.TemporaryDirectory() as parent:
            create_folder = tempfile.mkdtemp

            def interrupted(suffix, prefix, _):
                folder = create_folder(suffix, prefix, parent)
                os.kill(os.getpid(), signal.SIGTERM)
                return folder

            with mock.patch.object(tempfile, "mkdtemp", interrupted), self.assertRaises(SystemExit) as ended:
                with _signals.ending_in_order():
                    _signals.temporary_folder("test")
            self.assertEqual(ended.exception.code, 128 + signal.SIGTERM)
            self.assertEqual(os.listdir(parent), [])

    def test_a_signal_ends_no_write(self):
        replace = os.replace

        def interrupted(*arguments):
            replace(*arguments)
            os.kill(os.getpid(), signal.SIGHUP)

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "replace", interrupted):
            with self.assertRaises(SystemExit) as ended, _signals.ending_in_order():
                _files.write_output(os.path.join(folder, "file"), b"whole")
            self.assertEqual(ended.exception.code, 128 + signal.SIGHUP)
            self.assertEqual([path.read_bytes() for path in Path(folder).iterdir()], [b"whole"])


class ProgressTest(unittest.TestCase):
    def test_stacks_say_what_they_time(self):
        said = []
        with mock.patch.object(_stack, "Timer") as timer:
            timer.return_value.step.side_effect = range(1, 100)
            _stack.measure("llama3-8b", ["eager"], "cpu", None, False, 2, said.append)
        steps = ["making 4 layers", "first steps with flashattn", "first steps with eager", "round 1 of 2", "round 2 of 2"]
        self.assertEqual(said, [f"llama3-8b: {step}" for step in steps])


class CommandsTest(unittest.TestCase):
    def said(self, *arguments, status=0):
        """What `python -m flashattn` prints, on either stream."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            with self.assertRaises(SystemExit) as ended:
                __main__.main(list(arguments))
        self.assertEqual(ended.exception.code, status)
        return said.getvalue()

    def test_the_version(self):
        self.assertEqual(self.said("--version"), f"flashattn {flashattn.__version__}\n")

    def test_commands_have_modules(self):
        text = self.said("--help")
        for name in ("doctor", "bench", "tune"):
            self.assertRegex(text, rf"\n +{name} ")
        for name, flag in (("bench", "--sustained"), ("tune", "--dry-run"), ("doctor", "--timing")):
            text = self.said(name, "--help")
            self.assertTrue(text.startswith(f"usage: python -m flashattn {name} "), text)
            self.assertIn(flag, text)

    def test_mistakes_are_one_line(self):
        for arguments, expected in (
            ((), "the following arguments are required: command"),
            (("measure",), "argument command: invalid choice: 'measure' .*doctor.*bench.*tune.*"),
            (("--timing", "bench"), "unrecognized arguments: --timing"),
            (("bench", "tune"), "unrecognized arguments: tune"),
            (("tune", "--heads=no"), "argument --heads: expected a number of at least 1 but got 'no'"),
        ):
            self.assertRegex(self.said(*arguments, status=2), rf"\Aerror: {expected}\n\Z")


class ShapeFlagsTest(unittest.TestCase):
    def refuse(self, command, *arguments):
        """What a command says, in one line, of flags that it does not take."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            command.main(list(arguments))
        code = ended.exception.code
        (line,) = (code if isinstance(code, str) else said.getvalue()).splitlines()
        return line

    def test_what_a_shape_is(self):
        def shape_of(*arguments):
            return bench.parse_arguments(list(arguments)).own_shape

        self.assertIsNone(shape_of())
        plain = {"B": 1, "Hq": 16, "Hkv": 16, "Nq": 4096, "Nk": 4096, "D": 64, "dtype": "f16", "mask": "none"}
        self.assertEqual(shape_of("--head-dim=64"), {"name": "d64-f16-none@1x16x4096", **plain})
        self.assertEqual(
            shape_of("--mask=sink", "--sinks=0", "--queries=1", "--length=9", "--heads=6", "--kv-heads=2", "--dtype=bf16"),
            {"name": "d128-bf16-sink@1x6/2x1x9", "B": 1, "Hq": 6, "Hkv": 2, "Nq": 1, "Nk": 9, "D": 128,
             "dtype": "bf16", "mask": "sink", "window": 1024, "sinks": 0},
        )  # fmt: skip
        own = shape_of("--mask=window", "--window=7", "--queries=5", "--length=3", "--batch=2")
        self.assertEqual((own["window"], own["Nq"], own["Nk"], own["B"]), (7, 5, 3, 2))
        self.assertNotIn("sinks", own)
        # The tuner's flags are the same.
        self.assertEqual(tune.parse_arguments(["--head-dim=64"]).own_shape, shape_of("--head-dim=64"))

    def test_a_shape_has_its_own_sizes(self):
        for flag in ("--head-dim=64", "--length=128", "--mask=causal", "--kv-heads=2"):
            name = flag.split("=")[0]
            for command, leader in (
                (tune, "--shape=causal-1k"), (bench, "--only=causal-1k"), (bench, "--sweep"), (bench, "--features"),
            ):  # fmt: skip
                self.assertEqual(
                    self.refuse(command, leader, flag), f"error: expected {leader.split('=')[0]} or {name} but got both"
                )
            self.assertEqual(
                self.refuse(bench, "--from-json=record.json", flag),
                f"error: expected only --only and --chart with --from-json but got {name}",
            )

    def test_flags_that_say_nothing(self):
        for command in (bench, tune):
            for arguments, expected in (
                (["--window=9"], "--mask=window or --mask=sink for --window but got --mask=none"),
                (["--sinks=9", "--mask=window"], "--mask=sink for --sinks but got --mask=window"),
                (["--heads=4", "--kv-heads=3"], "--heads to be a multiple of --kv-heads but got 4 and 3"),
            ):
                self.assertEqual(self.refuse(command, *arguments), f"error: expected {expected}")

    def test_a_chip_alone_runs_nothing(self):
        for flag in ("--device=cpu", "--rounds=3", "--ms=4", "--dry-run"):
            name = flag.split("=")[0]
            self.assertEqual(self.refuse(tune, "--chip=sm_90a", flag), f"error: expected --chip or {name} but got both")

    def test_numbers(self):
        for command in (bench, tune):
            for flag, value in (("--head-dim", "-3"), ("--length", "0"), ("--batch", "many"), ("--rounds", "0")):
                self.assertEqual(
                    self.refuse(command, f"{flag}={value}"),
                    f"error: argument {flag}: expected a number of at least 1 but got '{value}'",
                )
            for value in ("-1", "nan", "inf", "soon"):
                self.assertEqual(
                    self.refuse(command, f"--ms={value}"),
                    f"error: argument --ms: expected a number above 0 but got '{value}'",
                )
            self.assertEqual(
                self.refuse(command, "--mask=sink", "--sinks=-1"),
                "error: argument --sinks: expected a number of at least 0 but got '-1'",
            )
        self.assertEqual(
            self.refuse(tune, "--tile-m=8;9"),
            "error: argument --tile-m: expected comma-separated numbers but got '8;9'",
        )
        self.assertIn("but got 300", self.refuse(tune, "--chip=sm_90a", "--head-dim=300"))


if __name__ == "__main__":
    unittest.main()
