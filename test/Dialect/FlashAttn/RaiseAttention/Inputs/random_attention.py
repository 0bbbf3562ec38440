"""Random rewritings of attention: prints a module of COUNT functions from SEED, and before each what it
is raised to, as a FileCheck line.

random_attention.py COUNT SEED
"""
import random
import sys

import attention_forms as forms
from attention_forms import B, D, H, N, NK, M, cmpi, sel


def make_mask(m, s, r):
    """Hides scores in one of the ways; gives them and the op's mask."""
    kind = r.choice(["none", "causal", "window", "prefix"])
    if kind == "none":
        return s, ""
    el = r.choice(["i32", "i64"])
    shape = [N, NK]
    q, k = m.index(shape, 0, el), m.index(shape, 1, el)
    if r.random() < 0.5:
        flat = m.index([N], 0, el)
        q = m.reshape(flat, [[0, 1]], [N, 1])
    number = lambda x: m.fill(str(x), shape, el)
    causal = r.choice([lambda: cmpi(m, "sge", q, k, shape), lambda: cmpi(m, "sle", k, q, shape),
                       lambda: cmpi(m, "sle", m.ew("arith.subi", k, q), number(0), shape),
                       lambda: cmpi(m, "slt", k, m.ew("arith.addi", number(1), q), shape)])()
    text = "#flashattn.causal"
    if kind == "window":
        near = cmpi(m, "slt", m.ew("arith.subi", k, q), number(1), shape)
        far = r.choice([lambda: cmpi(m, "sgt", m.ew("arith.subi", k, q), number(-4), shape),
                        lambda: cmpi(m, "sle", m.ew("arith.subi", q, number(3), shape=shape,
                                                    maps=[m.bmap(m.t[q][0], shape), m.ident(shape)]),
                                     k, shape)])()
        causal = m.ew("arith.andi", r.choice([causal, near]), far)
        text = "#flashattn.window<left = 3, right = 0>"
    if kind == "prefix":
        causal = m.ew("arith.ori", causal, cmpi(m, "slt", k, number(5), shape))
        text = "#flashattn.any_of<[#flashattn.causal, #flashattn.sink<5>]>"
    low = r.choice(["0xFF800000", "-3.40282347E+38", "-1.0e9", "-2.38e38"])
    way = r.randrange(4)
    if way == 0:
        return sel(m, causal, s, low), text
    if way == 1:
        true = m.fill("true", shape, "i1")
        return sel(m, m.ew("arith.xori", causal, true), s, low, False), text
    if way == 2:
        f = m.ew("arith.uitofp", causal, el="f32")
        zero = m.fill("0.0", shape)
        c = m.generic([f, zero], [m.ident(shape)] * 2, shape, "i1",
                      lambda n, o: (["%%r = arith.cmpf une, %s, %s : f32" % tuple(n)], "%r"))
        return sel(m, c, s, low), text
    zeros = m.fill("0.0", shape)
    return m.ew("arith.addf", s, sel(m, causal, zeros, low)), text


def softmax_times(m, s, v, r):
    """The second product, with the division in one of its places."""
    way = r.randrange(4)
    if way == 0:
        e = m.ew("math.exp", s)
    else:
        e = m.ew("math.exp", m.ew("arith.subf", s, m.keepdim(m.reduce(s, "arith.maximumf", "0xFF800000"))))
    l = m.keepdim(m.reduce(e, "arith.addf", "0.0"))
    if way == 2:
        return m.ew("arith.divf", forms.pv(m, e, v), l)
    if way == 3:
        one = m.const("1.0")
        return forms.pv(m, m.ew("arith.mulf", e, m.scalar("arith.divf", l, one, flip=True)), v)
    return forms.pv(m, m.ew("arith.divf", e, l), v)


def make(name, r):
    m = M()
    isBSHD, groups = r.random() < 0.5, r.choice([1, 2, H])
    heads = H // groups

    def operand(n, h):
        return m.arg([B, n, h, D] if isBSHD else [B, h, n, D])

    def toHeads(x):
        return m.transpose(x, [0, 2, 1, 3]) if isBSHD else x

    def repeat(x):
        if groups == 1:
            return x
        n = m.t[x][0][2]
        y = m.generic([x], [["d0", "d1", "d3", "d4"]], [B, heads, groups, n, D], "f32",
                      lambda i, o: ([], i[0]))
        return m.reshape(y, [[0], [1, 2], [3], [4]], [B, H, n, D])

    q, k, v = operand(N, H), operand(NK, heads), operand(NK, heads)
    q, k, v = toHeads(q), repeat(toHeads(k)), repeat(toHeads(v))
    where = r.choice(["q", "k", "both", "scores", "divided"])
    scale = {"q": "0.125", "k": "0.125", "both": "0.35355339", "scores": "0.125", "divided": "8.0"}[where]
    c = m.const(scale)
    if where in ("q", "both"):
        q = m.scalar("arith.mulf", q, c)
    if where in ("k", "both"):
        k = m.scalar("arith.mulf", k, c)
    if r.random() < 0.5:
        kt = m.transpose(k, [0, 1, 3, 2])
        s = m.contract(q, kt, ["d0", "d1", "d2", "d4"], ["d0", "d1", "d4", "d3"], [B, H, N, NK], 5)
    else:
        s = forms.qk(m, q, k)
    if where in ("scores", "divided"):
        s = m.scalar("arith.mulf" if where == "scores" else "arith.divf", s, c)
    s, mask = make_mask(m, s, r)
    o = softmax_times(m, s, v, r)
    if isBSHD:
        o = m.transpose(o, [0, 2, 1, 3])
    text = m.text(o).replace("@NAME", "@" + name)
    expected = "mask(%s) " % mask if mask else ""
    expected += "scale({{1.250000e-01|0.12[45][0-9]*}}) " + ("layout(bshd) " if isBSHD else "")
    print("// CHECK-LABEL: func.func @%s(\n// CHECK-NOT: linalg.\n// CHECK: flashattn.attention "
          "%sins(%%arg0, %%arg1, %%arg2 :\n// CHECK-NOT: linalg." % (name, expected))
    print(text)


if __name__ == "__main__":
    generator = random.Random(int(sys.argv[2]))
    for i in range(int(sys.argv[1])):
        make("f%d" % i, generator)
