"""Checks that the IR in the README is what the tools print.

usage: check_readme.py SOURCE_ROOT

A fenced block after a line `<!-- flash-opt ARGUMENTS -->` must hold lines of that command's output, in
order, apart from white space and the numbers of SSA values; a line `...` stands for any lines. Other
`mlir` blocks must be read by flash-opt.
"""

import re
import subprocess
import sys
import textwrap


def normal(line):
    return re.sub(r"%[A-Za-z0-9_#]+(:\d+)?", "%", " ".join(line.split()))


def run(arguments, text=None):
    done = subprocess.run(["flash-opt", *arguments], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"flash-opt {' '.join(arguments)} failed:\n{done.stderr}")
    # PTX is printed as one quoted string.
    return done.stdout.replace("\\0A", "\n").replace("\\09", " ")


def main(root):
    readme = open(f"{root}/README.md").read()
    blocks = re.findall(r"(?:<!-- flash-opt (.*?) -->\n)?```(mlir|ptx)\n(.*?)```", readme, re.S)
    checked = 0
    for arguments, language, body in blocks:
        if not arguments:
            run(["-"], textwrap.dedent(body))
            checked += 1
            continue
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
                sys.exit(f"README.md: not in the output of 'flash-opt {arguments}', or not in this order:\n{line}")
            at += 1
        checked += 1
    if checked < 5:
        sys.exit(f"README.md: expected at least 5 blocks of IR but found {checked}")
    print(f"{checked} blocks hold")


main(sys.argv[1])
