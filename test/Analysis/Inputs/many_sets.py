"""Prints attention and its gradients under a mask of many sets, with lengths that are not known.

usage: many_sets.py diagonals|remainders|divisions [COUNT [ELEMENT]]
"""

import sys

SETS = {
    "diagonals": lambda i: f"p - k - {100 * i} == 0",
    "remainders": lambda i: f"(3 * p + 5 * k) mod {64 + i} - 7 >= 0, (p + 2 * k) mod {63 + i} - 5 >= 0",
    # 64 of these have as many divisions as a mask may have.
    "divisions": lambda i: (
        f"(3 * p + 5 * k) mod {64 + i} - 7 >= 0, (p + 2 * k) mod {63 + i} - 5 >= 0, "
        f"(7 * p + 4 * k) floordiv {31 + i} - 1 >= 0, (5 * p - 9 * k) mod {23 + i} - 3 >= 0"
    ),
}


def main():
    text = SETS[sys.argv[1]]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    sets = ", ".join(f'set<"(p, k)[nq, nk] : ({text(i)})">' for i in range(count))
    element = sys.argv[3] if len(sys.argv) > 3 else "f32"
    rows, lse = f"memref<1x2x?x64x{element}>", "memref<1x2x?xf32>"
    names = ["q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv"]
    types = {name: lse if name == "lse" else rows for name in names}
    clause = lambda some: (
        ", ".join(f"%{name}" for name in some) + " : " + ", ".join(types[name] for name in some)
    )
    print(
        f"""func.func @f({', '.join(f'%{name}: {types[name]}' for name in names)}) {{
  flashattn.attention mask(any_of<[{sets}]>) ins({clause(names[:3])}) outs({clause(names[3:5])})
  flashattn.attention_backward mask(any_of<[{sets}]>) ins({clause(names[:6])}) outs({clause(names[6:])})
  return
}}"""
    )


main()
