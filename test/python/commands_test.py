# What the commands share: files to write, environment variables, signals and the tuner's flags.
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

from flashattn import _bench_record, _bench_stack, _environment, _files, tune


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
        _bench_record.write_json({"a": 1}, str(self.folder / "new" / "record.json"))
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
                    [sys.executable, "-m", "flashattn.bench", "--device=cpu", "--rounds=1000"],
                    env={**os.environ, "TMPDIR": folder}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                end = time.monotonic() + 120
                while not os.listdir(folder) and time.monotonic() < end and process.poll() is None:
                    time.sleep(0.02)
                self.assertTrue(os.listdir(folder), "expected a temporary folder of the benchmark's")
                process.send_signal(number)
                self.assertEqual(process.wait(120), 128 + number)
                self.assertEqual(os.listdir(folder), [])


class ProgressTest(unittest.TestCase):
    def test_stacks_say_what_they_time(self):
        said = []
        with mock.patch.object(_bench_stack, "Timer") as timer:
            timer.return_value.step.side_effect = range(1, 100)
            _bench_stack.measure("llama3-8b", ["eager"], "cpu", None, False, 2, said.append)
        steps = ["making 4 layers", "first steps with flashattn", "first steps with eager", "round 1 of 2", "round 2 of 2"]
        self.assertEqual(said, [f"llama3-8b: {step}" for step in steps])


class TunerFlagsTest(unittest.TestCase):
    def refuse(self, *arguments):
        """What the tuner says of flags that it does not take."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            tune.main(list(arguments))
        code = ended.exception.code
        return code if isinstance(code, str) else said.getvalue().splitlines()[-1].split(": ", 1)[1]

    def test_a_shape_has_its_own_sizes(self):
        for flag in ("--head-dim=64", "--length=128", "--mask=causal", "--kv-heads=2"):
            name = flag.split("=")[0]
            self.assertEqual(
                self.refuse("--shape=causal-1k", flag), f"error: expected --shape or {name} but got both"
            )
        self.assertEqual(self.refuse("--window=9"), "error: expected --mask=window for --window but got --mask=none")

    def test_a_chip_alone_runs_nothing(self):
        for flag in ("--device=cpu", "--rounds=3", "--ms=4", "--dry-run"):
            name = flag.split("=")[0]
            self.assertEqual(self.refuse("--chip=sm_90a", flag), f"error: expected --chip or {name} but got both")

    def test_numbers(self):
        for flag, value in (("--head-dim", "-3"), ("--length", "0"), ("--batch", "many"), ("--rounds", "0")):
            self.assertEqual(
                self.refuse(f"{flag}={value}"),
                f"error: argument {flag}: expected a number of at least 1 but got '{value}'",
            )
        self.assertEqual(self.refuse("--ms=-1"), "error: argument --ms: expected a number above 0 but got '-1'")
        self.assertEqual(
            self.refuse("--tile-m=8;9"),
            "error: argument --tile-m: expected numbers with commas between them but got '8;9'",
        )
        self.assertIn("but got 300", self.refuse("--chip=sm_90a", "--head-dim=300"))


if __name__ == "__main__":
    unittest.main()
