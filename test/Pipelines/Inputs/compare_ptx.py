#!/usr/bin/env python3
"""Compares the PTX of two builds of flash-opt, byte for byte.

usage: compare_ptx.py OLD NEW [--filter=REGEX] [--chip=CHIP] [--option=OPTION] [--keep=DIR] [-j=N]

OLD and NEW are each a flash-opt, or a folder of texts that --keep left. Both compile every shape and
feature of the benchmark and a list of variants (attention_modules.py) for sm_80 and sm_90a. Prints a
line per kernel that differs, and a summary; the exit status is 1 where anything does. Of two texts
that differ it says how much:

  renumbered  the same instructions in the same order, with other registers and labels
  reordered   the same instructions, names of registers and labels aside, in another order
  other       other instructions, which are counted: "+2 add.s32" are two more in the new text
"""

import argparse
import collections
import concurrent.futures
import difflib
import os
import pathlib
import re
import subprocess
import sys

import attention_modules

BINARY = re.compile(r'gpu\.binary @(\w+).*?assembly = "((?:[^"\\]|\\.)*)"')
NAMES = re.compile(r"%[a-z]+\d+|\$L_\w+")
ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t"}


def unescape(text):
    """The text of a quoted string attribute."""
    return re.sub(
        r"\\([0-9A-F]{2}|.)",
        lambda m: ESCAPES[m[1]] if len(m[1]) == 1 else chr(int(m[1], 16)),
        text,
    )


def kernels_of(ir):
    """The PTX of every kernel, by name."""
    return {name: unescape(text).rstrip("\0") for name, text in BINARY.findall(ir)}


def compile_module(flash_opt, chip, text, options=""):
    """The kernels' PTX by name; where flash-opt refuses, its message as the only one."""
    pipeline = f"-flashattn-to-nvvm=chip={chip} {options}".rstrip()
    done = subprocess.run([flash_opt, pipeline], input=text, capture_output=True, text=True)
    if done.returncode < 0:
        return {"refused": f"killed by signal {-done.returncode}"}
    if done.returncode != 0:
        # Where a pass stands in which library is no part of a message.
        errors = [line for line in done.stderr.splitlines() if " error: " in line]
        return {"refused": "\n".join(errors) or done.stderr}
    return kernels_of(done.stdout)


def instructions(ptx):
    """The lines that say what is done, with numbers for the names of registers and labels."""
    numbers = {}
    numbered = lambda m: f"%{numbers.setdefault(m[0], len(numbers))}"
    lines = (line.split("//")[0].strip() for line in ptx.splitlines())
    return [NAMES.sub(numbered, line) for line in lines if line and not line.startswith(".reg")]


def histogram(ptx):
    """How often each instruction stands in a text, by its name."""
    # Braces hold the registers of one operand; what stands between them is no statement.
    text = re.sub(r"//.*|\$L_\w+:|@!?%\w+", "", ptx)
    starts = (re.match(r"\s*([a-z][\w.:]*)", part) for part in re.split(r"[;{}]", text))
    return collections.Counter(start[1] for start in starts if start)


def compare_texts(old, new):
    """How two texts differ, in words; None where they do not."""
    if old == new:
        return None
    lines = [text.splitlines() for text in (old, new)]
    changed = sum(line[0] in "+-" for line in list(difflib.unified_diff(*lines, n=0))[2:])
    counts = f"{changed} lines of {len(lines[0])}"
    if instructions(old) == instructions(new):
        return f"renumbered, {counts}"
    anonymous = [collections.Counter(NAMES.sub("%", line) for line in text) for text in lines]
    if anonymous[0] == anonymous[1]:
        return f"reordered, {counts}"
    before, after = histogram(old), histogram(new)
    changes = {name: after[name] - before[name] for name in before.keys() | after.keys()}
    most = sorted((name for name in changes if changes[name]), key=lambda n: (-abs(changes[n]), n))
    named = ", ".join(f"{changes[name]:+} {name}" for name in most[:8])
    if len(most) > 8:
        named += f" and {len(most) - 8} more"
    return f"other, {counts}: {named or 'as many of each, with other operands'}"


def file_name(chip, name):
    return re.sub(r"[^\w.=-]+", "-", f"{chip} {name}")


def keep(folder, kernels):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in kernels.items():
        (folder / f"{name}.ptx").write_text(text)


def load(folder):
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.ptx"))}


def compare_module(arguments, chip, name, text):
    """(kernels that differ, in words; how many kernels; whether the old side refuses)."""
    found = []
    for side, build in (("old", arguments.old), ("new", arguments.new)):
        if os.path.isdir(build):
            kernels = load(pathlib.Path(build) / file_name(chip, name))
        else:
            options = arguments.option if side == "new" else ""
            kernels = compile_module(build, chip, text, options)
        if arguments.keep:
            keep(pathlib.Path(arguments.keep) / side / file_name(chip, name), kernels)
        found.append(kernels)
    old, new = found
    if old.keys() != new.keys():
        words = [k.get("refused") or ", ".join(k) or "no kernel" for k in found]
        return [f"{chip} {name}: expected {words[0]} but got {words[1]}"], len(old), "refused" in old
    differ = []
    for kernel in old:
        words = compare_texts(old[kernel], new[kernel])
        if words:
            differ.append(f"{chip} {name} @{kernel}: {words}")
    return differ, len(old), "refused" in old


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--filter", default="", help="compare modules whose name this matches")
    parser.add_argument("--chip", action="append", help="instead of sm_80 and sm_90a")
    parser.add_argument("--option", default="", help="of the new build's pipeline, as schedule=…")
    parser.add_argument("--keep", help="a folder for the texts: DIR/old and DIR/new")
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="compilations at once")
    arguments = parser.parse_args()

    modules = attention_modules.modules()
    chosen = [(chip, name) for chip in arguments.chip or ("sm_80", "sm_90a")
              for name in modules if re.search(arguments.filter, name)]  # fmt: skip
    if not chosen:
        sys.exit(f"expected a name of a module to match {arguments.filter!r} but got none")
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        results = list(
            pool.map(lambda c: compare_module(arguments, *c, modules[c[1]]), chosen)
        )
    differ = [line for lines, _, _ in results for line in lines]
    print("\n".join(differ), end="\n" if differ else "")
    refused = sum(is_refused for _, _, is_refused in results)
    kernels = sum(count for _, count, _ in results) - refused
    print(f"{len(chosen)} modules, {refused} refused, {kernels} kernels, {len(differ)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
