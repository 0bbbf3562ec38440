"""Prints attention and its gradients with a score_mod whose ops share their operands: each step of it reads both values
of the step before twice, so that what follows operands without a note of those that it has seen takes 2^40 steps.

usage: shared_values.py logic|choices|integers|floats
"""

import sys

STEPS = 40
COMPARE = ["%a0 = arith.cmpi sge, %p, %k : index", "%b0 = arith.cmpi ne, %p, %k : index"]
SELECT = f"%y = arith.select %a{STEPS}, %s, %low : f32"
#: The values before the first step, the ops of a step, and the op that makes the result, %y.
KINDS = {
    "logic": (COMPARE, ("arith.andi {a}, {b} : i1", "arith.ori {a}, {b} : i1"), [SELECT]),
    "choices": (
        COMPARE,
        (
            "arith.select %below{i}, {a}, {b} : i1",
            "arith.select %above{i}, {a}, {b} : i1",
        ),
        [SELECT],
    ),
    "integers": (
        ["%a0 = arith.addi %p, %k : index", "%b0 = arith.subi %p, %k : index"],
        ("arith.andi {a}, {b} : index", "arith.xori {a}, {b} : index"),
        [
            f"%n = arith.index_cast %a{STEPS} : index to i32",
            "%f = arith.sitofp %n : i32 to f32",
            "%y = arith.addf %s, %f : f32",
        ],
    ),
    "floats": (
        ["%a0 = arith.negf %s : f32", "%b0 = arith.addf %s, %low : f32"],
        ("arith.maximumf {a}, {b} : f32", "arith.minimumf {a}, {b} : f32"),
        [f"%y = arith.addf %s, %a{STEPS} : f32"],
    ),
}


def main():
    first, (a, b), last = KINDS[sys.argv[1]]
    lines = ["%low = arith.constant -3.0 : f32", *first]
    for i in range(STEPS):
        if "{i}" in a:
            lines += [
                f"%n{i} = arith.constant {3 * i + 3} : index",
                f"%below{i} = arith.cmpi slt, %p, %n{i} : index",
                f"%above{i} = arith.cmpi sgt, %k, %n{i} : index",
            ]
        for name, op in (("a", a), ("b", b)):
            lines.append(f"%{name}{i + 1} = {op.format(a=f'%a{i}', b=f'%b{i}', i=i)}")
    body = "\n".join(f"        {line}" for line in [*lines, *last, "flashattn.yield %y : f32"])
    score_mod = f"""score_mod {{
      ^bb0(%s: f32, %batch: index, %h: index, %p: index, %k: index):
{body}
      }}"""
    rows, lse = "memref<1x1x20x16xf16>", "memref<1x1x20xf32>"
    print(
        f"""func.func @f(%q: {rows}, %key: {rows}, %v: {rows}, %o: {rows}, %lse: {lse}, %d_o: {rows}, %dq: {rows},
    %dk: {rows}, %dv: {rows}) {{
  flashattn.attention ins(%q, %key, %v : {rows}, {rows}, {rows})
      {score_mod} outs(%o, %lse : {rows}, {lse})
  flashattn.attention_backward ins(%q, %key, %v, %o, %lse, %d_o : {rows}, {rows}, {rows}, {rows}, {lse}, {rows})
      {score_mod} outs(%dq, %dk, %dv : {rows}, {rows}, {rows})
  return
}}"""
    )


main()
