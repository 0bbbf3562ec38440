# Kernels compiled ahead of time: which there are, and that a call finds its own.
# REQUIRES: bundle, python-package, fakecuda
# RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda %flashattn_python %s %if ptxas %{ %ptxas %}

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from flashattn import _kernel, _library
from flashattn.bench import _command as bench, _timing

MAKER = Path(__file__).resolve().parents[2] / "tools" / "kernels" / "make_kernels.py"
PTXAS = sys.argv.pop() if len(sys.argv) > 1 else None
NARROW = {"B": 1, "Hq": 6, "Hkv": 2, "Nq": 32, "Nk": 32, "D": 96, "dtype": "f16", "mask": "none"}

# In a process of its own, which reads the archive once: calls, and prints what was found.
CALL = """
import time
from flashattn import _library
from flashattn.bench import _timing
for shape in {shapes!r}:
    _timing.measure(time.perf_counter(), shape, False, True)
print(_library.get().disk_cache().archive_found)
"""


def load_maker():
    spec = importlib.util.spec_from_file_location("make_kernels", MAKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(folder, *arguments, **environment):
    archive = Path(folder, "flashattn-kernels.a")
    done = subprocess.run(
        [
            sys.executable, str(MAKER), f"--library={_library.find()}", f"--output={archive}",
            f"--work={folder}", *arguments,
        ],
        env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    return archive, done


def call(*shapes, **environment):
    """How many groups of kernels a process found that calls with these shapes, and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(shapes=shapes)],
        env={**os.environ, "FLASHATTN_CACHE": "off", **environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]), done.stderr


def doctor(**environment):
    done = subprocess.run(
        [sys.executable, "-m", "flashattn", "doctor"],
        env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    return next(line for line in done.stdout.splitlines() if " ahead of time " in line)


class Asked(Exception):
    """For a kernel of this problem."""


class KernelsTest(unittest.TestCase):
    def test_benchmark_has_them_all(self):
        def ask(problem, device):
            raise Asked(problem)

        listed, driver = set(load_maker().list_problems()), _timing._open_driver()
        shapes = bench.load_shapes()
        for shape, backward in [(shape, False) for shape in shapes] + [
            (shape, True) for shape in bench._backward.with_gradients(shapes)
        ]:
            # As large as they are, they have no room here.
            small = {**shape, "B": 1, "Nq": min(shape["Nq"], 32), "Nk": 64}
            with self.subTest(shape=shape["name"], backward=backward):
                attend = _timing._make_call(
                    small, backward, lambda *array: _timing._DeviceArray(driver, *array)
                )
                with mock.patch.object(_kernel, "cached", ask):
                    with self.assertRaises(Asked) as asked:
                        attend()
                self.assertIn(asked.exception.args[0], listed)

    def test_bad_archives(self):
        warning = "flashattn: warning: every kernel is compiled, because "
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernels.a")
            path.write_bytes(b"!<arch>\nno member")
            # Once a process, whatever it compiles.
            found, said = call(NARROW, {**NARROW, "D": 64}, FLASHATTN_KERNELS=str(path))
            self.assertEqual(found, 0)
            self.assertRegex(said, f"^{warning}'{path}' cannot be read: [^\n]*truncated[^\n]*\n$")
            self.assertRegex(doctor(FLASHATTN_KERNELS=str(path)), f"^note +ahead of time +{path}: ")
            missing = f"{folder}/none.a"
            self.assertEqual(
                call(NARROW, FLASHATTN_KERNELS=missing),
                (0, f"{warning}'{missing}' cannot be read: No such file or directory\n"),
            )
        self.assertEqual(call(NARROW, FLASHATTN_KERNELS="off"), (0, ""))
        self.assertRegex(
            doctor(FLASHATTN_KERNELS="0"),
            "^note +ahead of time +FLASHATTN_KERNELS=0; no kernel is compiled ahead of time$",
        )

    @unittest.skipUnless(PTXAS, "there is no ptxas")
    def test_calls_find_theirs(self):
        with tempfile.TemporaryDirectory() as folder:
            which = "--match=element='f16', d=96.*mask=None.*layout='bhsd', lse=False"
            archive, done = make(folder, which, FLASHATTN_PTXAS=PTXAS)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, rf"^{archive}: 1 kernels with \d+ cubins, ")
            count = 1 + int(done.stdout.split()[4])
            named = {"FLASHATTN_KERNELS": str(archive)}
            self.assertRegex(doctor(**named), rf"^ok +ahead of time +{count} members in {archive}$")
            # The kernels serve any head counts, and this dtype alone.
            self.assertEqual(call(NARROW, **named), (count, ""))
            self.assertEqual(call({**NARROW, "Hq": 4, "Nk": 500}, **named), (count, ""))
            self.assertEqual(call({**NARROW, "dtype": "bf16"}, **named), (0, ""))
            # The same again, byte for byte.
            before = archive.read_bytes()
            make(folder, which, FLASHATTN_PTXAS=PTXAS)
            self.assertEqual(archive.read_bytes(), before)
            # Damaged code is compiled, but for its PTX's machine code.
            damaged = bytearray(before)
            damaged[damaged.index(b"flashattn 1\n") + 1000] ^= 1
            archive.write_bytes(damaged)
            launched, said = call(NARROW, **named)
            self.assertEqual((launched, said), (count, ""))

    def test_without_ptxas(self):
        maker, said = load_maker(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            # One of a build before has nothing for this one.
            archive = Path(folder, "flashattn-kernels.a")
            archive.write_text("!<arch>\n")
            arguments = ["make_kernels.py", f"--library={_library.find()}", f"--output={archive}"]
            with mock.patch.object(maker, "find_ptxas", return_value=None), mock.patch.dict(
                os.environ
            ), mock.patch.object(sys, "argv", [*arguments, f"--work={folder}", "--match=d=192"]):
                with contextlib.redirect_stderr(said):
                    maker.main()
            self.assertFalse(archive.exists())
        self.assertEqual(said.getvalue(), "make_kernels.py: no ptxas, so none of 8 kernels is made\n")

    def test_maker_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, environment, error in (
                (["--match=d=95"], {}, "error: expected problems that match 'd=95' but got none"),
                (
                    ["--match=d=96"],
                    {"FLASHATTN_PTXAS": "/nowhere/ptxas"},
                    "error: expected ptxas in FLASHATTN_PTXAS but got '/nowhere/ptxas'",
                ),
                (
                    ["--match=element='f16', d=96.*mask=None.*lse=True"],
                    {"FLASHATTN_PTXAS": "/bin/false"},
                    "error: expected /bin/false to assemble ",
                ),
            ):
                with self.subTest(error=error):
                    environment.setdefault("FLASHATTN_PTXAS", "/bin/true")
                    archive, done = make(folder, *arguments, **environment)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn(error, done.stderr)
                    self.assertFalse(archive.exists())


unittest.main()
