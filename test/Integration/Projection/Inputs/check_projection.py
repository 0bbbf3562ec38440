"""Runs attention and the projection behind it in many shapes and compares with flash-run's reference.

usage: check_projection.py DEVICE [OPTION...]
       check_projection.py ptxas PTXAS CHIP [OPTION...]

Options are handed to flash-run, or to the pipeline. With ptxas it compiles the kernels instead, and a spill, local memory or
a warning C75xx is a failure. Prints a line per case.
"""

import os
import re
import subprocess
import sys
import tempfile

# name: element, output's element, layout, (B, Hq, Hkv, Nq, Nk, D, Dv, E), what of these is static,
# on tensors, mask
CASES = {
    "whole tiles": ("f16", "f16", "bhsd", (2, 4, 4, 128, 128, 64, 64, 256), "BHNE", True, ""),
    "odd rows and columns": ("f16", "f16", "bhsd", (2, 4, 2, 133, 77, 64, 64, 203), "", False, ""),
    "f32 result": ("f16", "f32", "bhsd", (1, 3, 1, 70, 70, 32, 32, 130), "", False, "causal"),
    "columns in eights": ("bf16", "bf16", "bhsd", (2, 4, 2, 100, 100, 64, 128, 200), "HE", True, "causal"),
    "columns in pairs": ("bf16", "bf16", "bhsd", (1, 2, 2, 65, 65, 16, 24, 30), "E", False, ""),
    "columns in pairs, f32": ("f32", "f32", "bhsd", (1, 2, 2, 65, 65, 16, 24, 30), "E", False, ""),
    "static odd columns": ("bf16", "f32", "bshd", (1, 2, 2, 65, 65, 16, 24, 37), "HE", True, ""),
    "one column": ("f16", "f16", "bshd", (2, 3, 3, 50, 60, 8, 8, 1), "", False, ""),
    "sequence first": ("f16", "f16", "bshd", (2, 6, 2, 190, 190, 64, 64, 136), "E", True, "causal"),
    "padded heads": ("f16", "f16", "bhsd", (1, 5, 5, 33, 100, 40, 40, 96), "HE", False, ""),
    "wide heads": ("bf16", "bf16", "bshd", (1, 3, 3, 70, 70, 64, 256, 144), "E", True, ""),
    "heads in uneven parts": ("f16", "f16", "bhsd", (1, 3, 3, 70, 70, 64, 112, 144), "E", False, ""),
    "f32": ("f32", "f32", "bhsd", (2, 4, 2, 133, 77, 64, 64, 203), "", False, "causal"),
    "f32 whole": ("f32", "f32", "bshd", (1, 8, 8, 128, 128, 128, 128, 256), "BHNE", True, ""),
    "f32 wide": ("f32", "f32", "bhsd", (1, 2, 2, 40, 40, 192, 192, 72), "E", True, ""),
    "many heads, f32": ("f32", "f32", "bhsd", (1, 96, 96, 20, 20, 8, 64, 48), "", False, ""),
    "one query of many batches": ("bf16", "bf16", "bhsd", (37, 8, 2, 1, 300, 64, 64, 136), "NE", True, ""),
    "few queries, sequence first": ("f16", "f16", "bshd", (5, 4, 4, 7, 90, 32, 32, 61), "N", False, "causal"),
    "few queries, f32": ("f32", "f32", "bhsd", (3, 4, 2, 3, 90, 32, 32, 61), "N", False, ""),
    "one row": ("f32", "f32", "bhsd", (1, 1, 1, 1, 1, 8, 8, 8), "", False, ""),
    "no batch": ("f16", "f16", "bhsd", (0, 2, 2, 16, 16, 16, 16, 16), "", False, ""),
    "no head": ("f16", "f16", "bhsd", (1, 0, 0, 16, 16, 16, 16, 16), "", False, ""),
    "no column": ("f16", "f16", "bhsd", (1, 2, 2, 16, 16, 16, 16, 0), "", False, ""),
    "no keys": ("f16", "f16", "bhsd", (1, 2, 2, 16, 0, 16, 16, 16), "", False, ""),
}


def module(element, out, layout, sizes, static, on_tensors, mask):
    """The module's text and, in the order of its arguments, their --input."""
    batch, heads, kv_heads, queries, keys, d, dv, width = sizes

    def size(name, value):
        return (str(value) if name in static else "?", value)

    b, h, hkv = size("B", batch), size("H", heads), size("H", kv_heads)
    n, nk, e = size("N", queries), size("N", keys), size("E", width)
    order = (lambda x: [x[0], x[2], x[1], x[3]]) if layout == "bshd" else list
    shapes = {
        "q": (order([b, h, n, (str(d), d)]), element),
        "k": (order([b, hkv, nk, (str(d), d)]), element),
        "v": (order([b, hkv, nk, (str(dv), dv)]), element),
        "w": ([h, (str(dv), dv), e], element),
        "o": (order([b, h, n, (str(dv), dv)]), element),
        "p": ([b, n, e], out),
    }
    kind = "tensor" if on_tensors else "memref"
    types = {name: f"{kind}<{'x'.join([s for s, _ in dims] + [scalar])}>"
             for name, (dims, scalar) in shapes.items()}
    arguments = ", ".join(f"%{name}: {types[name]}" for name in shapes)
    clauses = f"layout({layout})"
    attention = (f"flashattn.attention {f'mask(#flashattn.{mask}) ' if mask else ''}{clauses} "
                 f"ins(%q, %k, %v : {types['q']}, {types['k']}, {types['v']}) outs(%o : {types['o']})")
    project = (f"flashattn.project {clauses} ins(%o, %w : {types['o']}, {types['w']}) "
               f"outs(%p : {types['p']})")
    if on_tensors:
        project = project.replace("%o,", "%a,")
        body = (f"  %a = {attention} -> {types['o']}\n  %r = {project} -> {types['p']}\n"
                f"  return %r : {types['p']}\n")
    else:
        body = f"  {attention}\n  {project}\n  return\n"
    result = f" -> {types['p']}" if on_tensors else ""
    text = f"func.func @f({arguments}){result} {{\n{body}}}\n"
    inputs = ["--input=" + "x".join([str(v) for _, v in dims] + [scalar]) +
              ("=poison" if name in "op" else "=random")
              for name, (dims, scalar) in shapes.items()]
    return text, inputs


def run(device, options, name, case):
    text, inputs = module(*case)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f.mlir")
        with open(path, "w") as file:
            file.write(text)
        done = subprocess.run(["flash-run", path, f"--device={device}", "--verify", *options, *inputs],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("verify p")]
    if 0 in (case[3][0], case[3][7]):  # no batch, no column
        passed = lines == ["verify p: no elements to compare"]
    else:
        passed = done.returncode == 0 and lines and lines[0].endswith("PASS")
    print(f"{name}: {lines[0] if lines else done.stderr.strip()}: {'ok' if passed else 'wrong'}", flush=True)
    if not passed:
        print(text, " ".join(inputs), done.stdout, done.stderr, sep="\n", flush=True)
    return passed


def compile_kernels(ptxas, chip, options, name, case):
    text, _ = module(*case)
    done = subprocess.run(["flash-opt", f"-flashattn-to-nvvm={' '.join([f'chip={chip}', *options])}"], input=text,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{name}: {done.stderr[:1000]}: wrong")
        return False
    problems, registers = [], []
    # The projection's kernel is the last one.
    for quoted in re.findall(r'"(//(?:[^"\\]|\\.)*)"', done.stdout)[-1:]:
        ptx = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), quoted).rstrip("\0")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernel.ptx")
            with open(path, "w") as file:
                file.write(ptx)
            report = subprocess.run([ptxas, "-v", f"-arch={chip}", "-o", os.devnull, path],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", report)
        problems += re.findall(r"C75\d\d.*", report)
        problems += [] if memory and not any(map(int, memory.groups())) else [report]
        registers += re.findall(r"Used (\d+) registers", report)
    good = registers and not problems
    print(f"{name}: {', '.join(registers)} registers: {'ok' if good else f'wrong: {problems}'}")
    return good


def main():
    device, *options = sys.argv[1:]
    if device == "ptxas":
        passed = [compile_kernels(*options[:2], options[2:], name, case) for name, case in CASES.items()]
    else:
        passed = [run(device, options, name, case) for name, case in CASES.items()]
    print(f"{len(passed)} cases, {passed.count(False)} failures")


main()
