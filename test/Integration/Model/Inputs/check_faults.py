"""Plants each fault of faults.py into a kernel and asks the model to find it.

    check_faults.py FOLDER [--filter=TEXT] [--seeds=N]

Works in FOLDER. Fails where a fault is not found within N interleavings, or not by the message that it should
be, or where the kernels without a fault have a report.
"""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from faults import FAULTS, NUMBERS

HERE = os.path.dirname(os.path.abspath(__file__))


def run(arguments):
    result = subprocess.run(["flash-run"] + arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


class Kernels:
    """The kernels of a program for a chip, as text, and their outputs."""

    def __init__(self, folder, program, chip):
        self.chip = chip
        self.prefix = os.path.join(folder, f"{program}-{chip}")
        status, text = run([os.path.join(HERE, program + ".mlir"), "--chip=" + chip, "--dump-dir=" + self.prefix])
        assert status == 0, text
        stage = [name for name in os.listdir(self.prefix) if name.endswith("-gpu-kernel-outlining.mlir")]
        with open(os.path.join(self.prefix, stage[0])) as file:
            self.lines = file.read().split("\n")
        self.output = self.prefix + ".npy"
        status, text = self.run(self.lines, "plain", [f"--output=@{self.output}"])
        assert status == 0 and "no report" in text, text

    def run(self, lines, name, flags):
        path = f"{self.prefix}-{name}.mlir"
        with open(path, "w") as file:
            file.write("\n".join(lines))
        return run([path, "--device=model:" + self.chip, *flags])

    def find(self, lines, op):
        name, number = op.split("#")
        found = [i for i, line in enumerate(lines) if re.search(r"(^|\s)" + re.escape(name) + r"\s*(\W|$)", line)]
        assert int(number) < len(found), f"expected more than {number} of {name} but got {len(found)}"
        return found[int(number)]

    def plant(self, edits):
        """The lines with the edits, each of whose ops is meant as it stood before all of them."""
        places = [self.find(self.lines, op) for op, _ in edits]
        lines = [[line] for line in self.lines]
        for place, (_, what) in zip(places, edits):
            if what[0] == "drop":
                lines[place] = []
            elif what[0] == "add":
                lines[place].insert(0, self.resolve(what[1], place))
            elif what[0] == "before":
                other = self.find(self.lines, what[1])
                moved = self.find_number(place, other) + [place]
                lines[other][:0] = [self.lines[i] for i in moved]
                for i in moved:
                    lines[i] = []
            else:
                changed, count = re.subn(what[1], self.resolve(what[2], place), lines[place][-1], count=1)
                assert count, f"expected {what[1]!r} but got {lines[place][-1]!r}"
                lines[place][-1] = changed
        return [line for group in lines for line in group]

    def find_number(self, place, other):
        """The line, if it is behind `other`, of the number of the barrier at `place`."""
        number = re.search(r"\[(%\w+)\]", self.lines[place])
        made = [i for i in range(other, place) if number and self.lines[i].lstrip().startswith(number.group(1) + " = ")]
        return made[-1:]

    def resolve(self, text, place):
        """Names of values that an edit takes from the kernel."""
        if "%SHARED" in text:  # the barrier of the ring before
            expect = self.lines[self.find(self.lines, "hopper.barrier_expect#3")]
            text = text.replace("%SHARED", re.search(r"\[(%\w+)\]", expect).group(1))
        if "%SIGNALS" in text:  # whether a thread is its group's first, as the producer asks
            signals = self.lines[self.find(self.lines, "scf.if#2")]
            text = text.replace("%SIGNALS", re.search(r"scf\.if (%\w+)", signals).group(1))
        if "%ROW" in text:
            text = text.replace("%ROW", re.search(r", (%\w+)\] to", self.lines[place]).group(1))
        return text


def check(kernels, number, fault, seeds):
    what, program, edits, message = fault
    kernels = kernels[program]
    # Numbers do not depend on the interleaving.
    flags = [f"--model-seeds={1 if message == NUMBERS else seeds}", f"--expected-output=@{kernels.output}", "--timeout=60"]
    try:
        lines = kernels.plant(edits)
    except AssertionError as error:
        return f"FAIL {what} ({' '.join(program)}): {error}"
    status, text = kernels.run(lines, f"fault-{number}", flags)
    if status and re.search(message, text):
        return None
    why = "was not found" if not status else f"is not what was found, {message!r}"
    return f"FAIL {what} ({' '.join(program)}): {why}:\n{text}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--filter", default="")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    chosen = [(i, fault) for i, fault in enumerate(FAULTS) if arguments.filter in fault[0]]
    kernels = {program: Kernels(arguments.folder, *program) for program in {fault[1] for _, fault in chosen}}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = list(pool.map(lambda one: check(kernels, one[0], one[1], arguments.seeds), chosen))
    for failure in filter(None, failures):
        print(failure)
    found = failures.count(None)
    print(f"{found} of {len(chosen)} faults found")
    sys.exit(found != len(chosen))


main()
