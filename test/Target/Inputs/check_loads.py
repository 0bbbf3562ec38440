"""Compares kernels whose score_mod loads a slope for each head with kernels that compute the slope.

usage: check_loads.py PTXAS CHIP...

A load takes no place in an innermost loop with products, a forward kernel has just one, and no kernel spills more than the
address and the strides of the slopes in a loop over heads. Prints a line for each module.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "Pipelines" / "Inputs"))
import compare_ptx

BODY = """      score_mod {{
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
{load}        %d = arith.subi %key, %p : index
        %i = arith.index_cast %d : index to i32
        %x = arith.sitofp %i : i32 to f32
        %y = math.fma %x, %slope, %s : f32
        flashattn.yield %y : f32
      }}
"""
LOAD = "        %slope = memref.load %slopes[%b, %h] : memref<?x?xf32>\n"
COMPUTE = """        %j = arith.index_cast %h : index to i32
        %f = arith.sitofp %j : i32 to f32
        %n = arith.negf %f : f32
        %slope = math.exp2 %n : f32
"""


def module(op, dim, loads):
    q, argument = f"memref<?x?x?x{dim}xf16>", "%slopes: memref<?x?xf32>"
    body = BODY.format(load=LOAD if loads else COMPUTE)
    if op == "attention":
        return f"""func.func @f(%q: {q}, %k: {q}, %o: {q}, %lse: memref<?x?x?xf32>, {argument}) {{
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : {q}, {q}, {q})
{body}      outs(%o, %lse : {q}, memref<?x?x?xf32>)
  return
}}
"""
    return f"""func.func @f(%q: {q}, %k: {q}, %lse: memref<?x?x?xf32>, %dq: {q}, %dk: {q}, %dv: {q}, {argument}) {{
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %k, %q, %lse, %q : {q}, {q}, {q}, {q}, memref<?x?x?xf32>, {q})
{body}      outs(%dq, %dk, %dv : {q}, {q}, {q})
  return
}}
"""


def count_loads(ptx):
    """The scalar loads from global memory: in all, and in innermost loops with products."""
    lines = ptx.splitlines()
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\$L\w+):", line))}
    loops = [(labels[m[1]], i) for i, line in enumerate(lines)
             if (m := re.search(r"\bbra(?:\.uni)?\s+(\$L\w+)", line)) and labels.get(m[1], i + 1) <= i]
    inner = [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c and d <= b for c, d in loops)
             and any("mma" in line for line in lines[a:b])]
    found = [i for i, line in enumerate(lines) if re.search(r"\bld\.global(\.nc)?\.[bfu](16|32)\b", line)]
    return len(found), sum(any(a <= i <= b for a, b in inner) for i in found)


def count_spills(ptxas, chip, ptx):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kernel.ptx")
        path.write_text(ptx)
        done = subprocess.run([ptxas, "-v", f"-arch={chip}", path, "-o", "/dev/null"], capture_output=True, text=True,
                              check=True)
    return sum(map(int, re.findall(r"(\d+) bytes spill", done.stderr)))


def check(ptxas, chip, op, dim):
    loaded, computed = (compare_ptx.compile_module("flash-opt", chip, module(op, dim, loads)) for loads in (True, False))
    if loaded.keys() != computed.keys() or "refused" in loaded:
        return f"expected the same kernels but got {[*loaded]} and {[*computed]}"
    # On sm_80, programs over keys have no spare register.
    allowance = 24 if (chip, op) == ("sm_80", "attention_backward") else 0
    total = 0
    for name, ptx in loaded.items():
        all_loads, in_loops = count_loads(ptx)
        all_others, others_in_loops = count_loads(computed[name])
        more = all_loads - all_others
        total += more
        if op == "attention" and more > 1:
            return f"{name}: expected a load but got {more}"
        if in_loops != others_in_loops:
            return f"{name}: expected {others_in_loops} loads in innermost loops but got {in_loops}"
        spills, others = (count_spills(ptxas, chip, text) for text in (ptx, computed[name]))
        if spills > others + allowance:
            return f"{name}: expected at most {others + allowance} bytes of spills but got {spills}"
    if total < (1 if op == "attention" else 2):
        return f"expected a load for each program but got {total}"
    return ""


def main(ptxas, *chips):
    failures = 0
    for chip in chips:
        for op in ("attention", "attention_backward"):
            for dim in (64, 128):
                reason = check(ptxas, chip, op, dim)
                failures += bool(reason)
                print(f"{chip} {op} {dim}: {reason or 'ok'}", flush=True)
    print(f"{failures} failures")


main(*sys.argv[1:])
