"""Checks that the IR in the README and in docs is what the tools print.

usage: check_readme.py SOURCE_ROOT

A fenced block after a line `<!-- flash-opt ARGUMENTS -->` must hold lines of that command's output, in
order, apart from white space and the numbers of SSA values; a line `...` stands for any lines. Other
`mlir` blocks must be read by flash-opt.
"""

import glob
import os
import re
import subprocess
import sys
import textwrap

COMMAND = "<!-- flash-opt "


def normal(line):
    return re.sub(r"%[A-Za-z0-9_#]+(:\d+)?", "%", " ".join(line.split()))


def run(arguments, text=None):
    done = subprocess.run(["flash-opt", *arguments], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"flash-opt {' '.join(arguments)} failed:\n{done.stderr}")
    # PTX is printed as one quoted string.
    return done.stdout.replace("\\0A", "\n").replace("\\09", " ")


def check_output(name, arguments, body, root):
    words = [w if not w.endswith(".mlir") else f"{root}/{w}" for w in arguments.split()]
    output = [normal(line) for line in run(words).splitlines()]
    at = 0
    for line in body.splitlines():
        wanted = normal(line)
        if not wanted or wanted == "...":
            continue
        while at < len(output) and wanted not in output[at]:
            at += 1
        if at == len(output):
            sys.exit(f"{name}: not in the output of 'flash-opt {arguments}', or not in this order:\n{line}")
        at += 1


def check_document(name, root):
    """Returns how many blocks of IR it holds."""
    text = open(f"{root}/{name}", encoding="utf-8").read()
    blocks = re.findall(rf"(?:{COMMAND}(.*?) -->\n)?```(mlir|ptx)\n(.*?)```", text, re.S)
    commands = sum(bool(arguments) for arguments, _, _ in blocks)
    if commands == 0 or commands != text.count(COMMAND):
        sys.exit(
            f"{name}: expected a block of IR behind each of {text.count(COMMAND)} commands, and at least one, "
            f"but found {commands}"
        )
    for arguments, _, body in blocks:
        if arguments:
            check_output(name, arguments, body, root)
        else:
            run(["-"], textwrap.dedent(body))
    return len(blocks)


def main(root):
    # The bundle has no docs.
    names = ["README.md"] + sorted(os.path.relpath(p, root) for p in glob.glob(f"{root}/docs/*.md"))
    print(f"{sum(check_document(name, root) for name in names)} blocks hold")


main(sys.argv[1])
