"""Checks that a pipeline stands simplification between any two of its passes.

usage: simplify_between.py PIPELINE [--filter=REGEX] [--except=PASS,…] [--flash-opt=PATH] [-j=N] [--each]

Compiles modules (attention_modules.py) by the passes of a PIPELINE of flash-opt, such as
flashattn-to-nvvm=chip=sm_90a, then with canonicalize and cse behind every one of them, in nested
pipelines too, but for those that --except names. For a GPU the kernels' PTX must be the same, byte for
byte; for the CPU LLVM's IR behind its optimiser, without the names of values. Where it is not, each
place is tried alone (with --each always), and those that change something are named. The exit status
is 1 then.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

import attention_modules
import compare_ptx

SIMPLIFY = ("canonicalize", "cse")


def parse(text):
    """A textual pipeline as [(name with options, passes nested in it or None)]."""
    passes, at = [], 0

    def read():
        nonlocal at
        found = []
        while at < len(text) and text[at] != ")":
            name = re.compile(r"[\s,]*([\w.-]+)").match(text, at)
            if not name:
                break
            at = name.end()
            options = ""
            if text[at:at + 1] == "{":
                end, depth = at, 0
                while True:
                    depth += {"{": 1, "}": -1}.get(text[end], 0)
                    end += 1
                    if depth == 0:
                        break
                options, at = text[at:end], end
            nested = None
            if text[at:at + 1] == "(":
                at += 1
                nested = read()
                at += 1  # the closing parenthesis
            found.append((name[1] + options, nested))
            while at < len(text) and text[at] in " \n,":
                at += 1
        return found

    passes = read()
    return passes


def write(passes, places=frozenset(), prefix=()):
    """The text of a pipeline with simplification behind the passes of `places`: their numbers, those
    of nested ones behind their parent's."""
    parts = []
    for number, (name, nested) in enumerate(passes):
        here = prefix + (number,)
        parts.append(name if nested is None else f"{name}({write(nested, places, here)})")
        if here in places:
            parts += SIMPLIFY
    return ",".join(parts)


def places_of(passes, prefix=()):
    """All places, with the names of the passes before them."""
    for number, (name, nested) in enumerate(passes):
        here = prefix + (number,)
        if nested is not None:
            yield from places_of(nested, here)
        yield here, name.split("{")[0]


class Pipeline:
    def __init__(self, flash_opt, option, excepted):
        self.flash_opt, self.is_cpu = flash_opt, "cpu" in option
        done = subprocess.run(
            [flash_opt, f"-{option}", "--dump-pass-pipeline"],
            input="module {}", capture_output=True, text=True, check=True,
        )  # fmt: skip
        ((_, self.passes),) = parse(done.stderr[done.stderr.index("builtin.module") :])
        # Behind the last pass is not between two.
        *places, _ = places_of(self.passes)
        self.places = [(place, name) for place, name in places if name not in excepted]

    def compile(self, text, places=frozenset()):
        """The kernels' texts by name; for the CPU the host's; or the message of a refusal."""
        commands = [[self.flash_opt, f"--pass-pipeline=builtin.module({write(self.passes, places)})"]]
        if self.is_cpu:
            commands += [["mlir-translate", "--mlir-to-llvmir"], ["opt", "-passes=default<O3>,strip", "-S"]]
        for command in commands:
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            if done.returncode != 0:
                return {"refused": done.stderr or f"exit status {done.returncode}"}
            text = done.stdout
        return {"host": text} if self.is_cpu else compare_ptx.kernels_of(text)


def compare(old, new):
    """How two results differ, in words; None where they do not. The same instructions in the same order
    are the same code, whatever registers are called."""
    if old == new:
        return None
    if "refused" in new:
        return new["refused"].splitlines()[0]
    if old.keys() != new.keys():
        return f"{len(old)} kernels became {len(new)}"
    words = (compare_ptx.compare_texts(old[k], new[k]) for k in old)
    return "; ".join(w for w in words if w and not w.startswith("renumbered")) or None


def check(pipeline, name, text, each):
    """Lines of what differs, and the number of kernels."""
    plain = pipeline.compile(text)
    if "refused" in plain:
        return [f"{name}: {plain['refused']}"], 0
    words = compare(plain, pipeline.compile(text, frozenset(p for p, _ in pipeline.places)))
    lines = [f"{name}: behind every pass: {words}"] if words else []
    if words or each:
        for place, before in pipeline.places:
            words = compare(plain, pipeline.compile(text, frozenset([place])))
            if words:
                lines.append(f"{name}: behind {before} ({'.'.join(map(str, place))}): {words}")
    return lines, len(plain)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline")
    parser.add_argument("--filter", default="", help="modules whose name this matches")
    parser.add_argument("--except", dest="excepted", default="", help="passes to leave out")
    parser.add_argument("--flash-opt", default="flash-opt")
    parser.add_argument("--each", action="store_true", help="try each place alone too")
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="compilations at once")
    arguments = parser.parse_args()

    pipeline = Pipeline(arguments.flash_opt, arguments.pipeline, arguments.excepted.split(","))
    modules = {name: text for name, text in attention_modules.modules().items()
               if re.search(arguments.filter, name)}  # fmt: skip
    if not modules:
        sys.exit(f"expected a name of a module to match {arguments.filter!r} but got none")
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        results = list(
            pool.map(lambda m: check(pipeline, *m, arguments.each), modules.items())
        )
    differ = [lines for lines, _ in results if lines]
    for lines in differ:
        print("\n".join(lines))
    print(
        f"{len(pipeline.places)} places, {len(modules)} modules, "
        f"{sum(kernels for _, kernels in results)} kernels, {len(differ)} differ"
    )
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
