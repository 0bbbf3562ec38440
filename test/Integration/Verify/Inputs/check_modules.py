"""Runs the modules of a file with --verify, as they are and with elements made wrong.

usage: check_modules.py FILE.mlir

Each line `// MODULE FUNCTION FLAGS: OPS` is a run on the CPU. OPS are what is compared, in the order of the
report, with the results of each op: `attention(o lse) 3 x project(p)`; 3 x: in three runs. What is not reached
is named so. The run must succeed and compare just these, each with PASS. With an element of each result made
wrong, each must FAIL; with one of a single result, just that one.
"""

import re
import subprocess
import sys


def run(path, arguments):
    done = subprocess.run(["flash-run", path, "--device=cpu", "--verify", *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def read(text):
    """The ops of a report, and of each result, by number of the op and name, whether it passed."""
    ops, passed = [], {}
    for line in text.splitlines():
        head = re.fullmatch(r"verify: (flashattn\..*?), (not reached|(?:(\d+) runs, )?all \d+ rows)", line)
        result = re.fullmatch(r"verify (\w+)\b.*: (PASS|FAIL)", line)
        if head:
            names = re.findall(r"flashattn\.(\w+) at ", head[1])
            ops.append(["not reached" if head[2] == "not reached" else "+".join(names), head[3], []])
        elif result:
            ops[-1][2].append(result[1])
            passed[len(ops) - 1, result[1]] = result[2] == "PASS"
    return " ".join((f"{runs} x " if runs else "") + name + (f"({' '.join(results)})" if results else "")
                    for name, runs, results in ops), passed


def check(path, function, flags, expected):
    def fail(what, text):
        sys.exit(f"{function} {' '.join(flags)}: {what}\n{text}")

    arguments = [f"--function={function}", *flags]
    code, text = run(path, arguments)
    ops, passed = read(text)
    if code != 0 or ops != expected or not all(passed.values()) or not passed:
        fail(f"expected '{expected}' to be compared but got '{ops}', exit status {code}", text)
    count = len(re.findall(r"\w+(?=[(+])", ops))
    reached = re.search(r"^verify: (\d+) of (\d+) ops compared$", text, re.M)
    if not reached or int(reached[1]) != count or int(reached[2]) != count + ops.count("not reached"):
        fail(f"expected a summary of {count} ops", text)

    code, text = run(path, [*arguments, "--verify-plant-fault=all:37"])
    faulty = read(text)
    if code != 1 or faulty[0] != expected or any(faulty[1].values()):
        fail(f"expected each planted error to be found but got exit status {code}", text)
    if len(passed) > 1:
        op, result = list(passed)[-1]
        code, text = run(path, [*arguments, f"--verify-plant-fault={op}.{result}:1000003"])
        wrong = [key for key, good in read(text)[1].items() if not good]
        if code != 1 or wrong != [(op, result)]:
            fail(f"expected one error, in {result} of op {op}, but got {wrong}, exit status {code}", text)


def main():
    path = sys.argv[1]
    with open(path) as file:
        text = file.read()
    modules = re.findall(r"^// MODULE (\w+)(.*?): (.*)$", text, re.M)
    functions = re.findall(r"^func\.func @(\w+)", text, re.M)
    if sorted(set(functions)) != sorted({name for name, _, _ in modules}):
        sys.exit("expected a line MODULE for each public function")
    for name, flags, ops in modules:
        check(path, name, flags.split(), ops)
    print(f"{len(functions)} modules")


main()
