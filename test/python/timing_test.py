# Where the time of a first call goes: `doctor --timing`, and the lines of FLASHATTN_TIMING behind it.
# REQUIRES: python-package, fakecuda
# RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda %flashattn_python %s

import os
import re
import subprocess
import sys
import unittest

CODE = """
import flashattn, numpy
kernel = flashattn.compile(head_dim=64, chip="cpu")
"""


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def table(**environment):
    """The rows of the table: problem, process, and milliseconds by the names of columns."""
    # What others would compile, too.
    environment["FLASHATTN_KERNELS"] = "off"
    done = run("-m", "flashattn", "doctor", "--timing", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    title, head, *lines = done.stdout.splitlines()
    names = re.split(r" +(?!code|call)", head.strip())[2:]
    rows = []
    for line in lines:
        problem, process, numbers = re.match(r"(.*\S) +(first|second) +(.*)", line).groups()
        rows.append((problem, process, dict(zip(names, map(float, numbers.split())))))
    return title, rows


class TimingTest(unittest.TestCase):
    def check(self, rows):
        for problem, process, took in rows:
            with self.subTest(problem=problem, process=process):
                stages = list(took)[2:-3]
                self.assertEqual(
                    stages,
                    "device,parse,passes,host code,kernels,disk,link,driver".split(","),
                )
                for name in ("import", "parse", "disk", "link", "first call", "next call"):
                    self.assertGreater(took[name], 0, name)
                # Only the first process compiles.
                for name in ("passes", "host code"):
                    (self.assertGreater if process == "first" else self.assertEqual)(
                        took[name], 0, name
                    )
                parts = sum(took[name] for name in stages) + took["other"]
                self.assertAlmostEqual(parts, took["first call"], delta=0.1 * len(stages))
                self.assertLess(took["next call"], took["first call"])

    def test_on_a_gpu(self):
        title, rows = table()
        self.assertEqual(title, "milliseconds of a new process on cuda:0, f16")
        self.assertEqual(
            [row[:2] for row in rows],
            [
                (problem, process)
                for problem in (
                    "(1,4/2,512:4096,64)",
                    "(1,4/2,512:4096,128)",
                    "(1,16/16,4096:4096,128) causal",
                    "(1,4/2,1:4096,128)",
                )
                for process in ("first", "second")
            ],
        )
        self.check(rows)

    def test_on_the_cpu(self):
        title, rows = table(FLASHATTN_CUDA_DRIVER="/nowhere/libcuda.so")
        self.assertEqual(title, "milliseconds of a new process on the CPU, f16")
        self.assertEqual(len(rows), 4)
        self.check(rows)
        for _, _, took in rows:
            # Nothing to do, however long a busy machine takes over it.
            self.assertLess(took["kernels"] + took["driver"], 20)

    def test_failing_driver(self):
        done = run("-m", "flashattn", "doctor", "--timing", FAKE_CUDA_FAIL="cuMemAlloc=2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing  the process for (1,4/2,512:4096,64) failed: ", done.stdout)
        self.assertIn("cuMemAlloc failed with error 2 of the CUDA driver", done.stdout)

    def test_lines_only_on_request(self):
        line = (
            r"flashattn: compile: device \d+\.\d, parse \d+\.\d, passes \d+\.\d, host code \d+\.\d, "
            r"kernels \d+\.\d, disk \d+\.\d, link \d+\.\d, all \d+\.\d ms\n"
        )
        self.assertRegex(run("-c", CODE, FLASHATTN_TIMING="1").stderr, f"^{line}$")
        for value in ("0", "", "OFF", "no"):
            self.assertEqual(run("-c", CODE, FLASHATTN_TIMING=value).stderr, "")


unittest.main()
