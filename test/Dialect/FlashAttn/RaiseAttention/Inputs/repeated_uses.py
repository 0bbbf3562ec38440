"""Attention of values that are each used twice, 60 times over: what is taken apart by paths takes for ever.

repeated_uses.py prints a module of all of them.
"""
from attention_forms import B, H, M, N, NK, pv, qk, qkv, sel


def twice(m, x, op):
    for _ in range(60):
        x = m.ew(op, x, x)
    return x


def make(name, queries=None, scores=None, bias=None, condition=None, probabilities=None, values=None):
    """An attention of which one part is combined with itself by an op."""
    m = M()
    q, k, v = qkv(m)
    s = qk(m, twice(m, q, queries) if queries else q, k)
    if scores:
        s = twice(m, s, scores)
    if bias:
        s = m.ew("arith.addf", s, twice(m, m.arg([B, H, N, NK]), bias))
    if condition:
        s = sel(m, twice(m, m.arg([B, 1, N, NK], "i1"), condition), s, "0xFF800000")
    p = m.softmax(s)
    if probabilities:
        p = twice(m, p, probabilities)
    print(m.text(pv(m, p, twice(m, v, values) if values else v)).replace("@NAME", "@" + name))


if __name__ == "__main__":
    make("queries", queries="arith.mulf")
    make("scores", scores="arith.addf")
    make("squares", scores="arith.mulf")
    make("maxima", scores="arith.maximumf")
    make("biases", bias="arith.mulf")
    make("conditions", condition="arith.xori")
    make("conjunctions", condition="arith.andi")
    make("probabilities", probabilities="arith.mulf")
    make("values", values="arith.addf")
