"""Attention as front ends are known to write it beside the modules that are kept here: one function each.

front_end_forms.py prints a module of all of them.
"""
from attention_forms import B, D, H, M, N, NK, T, cmpi, exp2, pv, qk, sel

forms = {}


def form(make):
    forms[make.__name__] = make
    return make


def named(m, op, inputs, shape, el="f32", text=""):
    """A named op of linalg; a product starts from 0."""
    init = m.fill("0.0", shape, el) if "matmul" in op else m.empty(shape, el)
    value = m.new()
    types = ", ".join(T(*m.t[i]) for i in inputs)
    m.op(f"{value} = {op} {text} ins({', '.join(inputs)} : {types}) outs({init} : {T(shape, el)}) -> {T(shape, el)}")
    m.t[value] = (shape, el)
    return value


def causal(m, s, low="0xFF800000", n=N, nk=NK):
    q, k = m.index([n, nk], 0), m.index([n, nk], 1)
    return sel(m, cmpi(m, "sle", k, q, [n, nk]), s, low)


@form
def packed_projection():
    """ViT: q, k and v of one tensor, the scale on q before the product."""
    m = M()
    qkv = m.arg([B, N, 3, H, D])

    def part(i):
        value = m.new()
        m.op(f"{value} = tensor.extract_slice {qkv}[0, 0, {i}, 0, 0] [{B}, {N}, 1, {H}, {D}] [1, 1, 1, 1, 1] : "
             f"{T([B, N, 3, H, D], 'f32')} to {T([B, N, H, D], 'f32')}")
        m.t[value] = ([B, N, H, D], "f32")
        return m.transpose(value, [0, 2, 1, 3])

    q, k, v = part(0), part(1), part(2)
    s = qk(m, m.scalar("arith.mulf", q, m.const("0.35355339")), k)
    o = m.transpose(pv(m, m.softmax(s), v), [0, 2, 1, 3])
    return m.text(m.reshape(o, [[0], [1], [2, 3]], [B, N, H * D]))


@form
def merged_heads_and_bias():
    """BLOOM: batch and heads are one, ALiBi is an argument and a finite minimum hides."""
    m = M()
    q, k, v, alibi = m.arg([B * H, N, D]), m.arg([B * H, D, NK]), m.arg([B * H, NK, D]), m.arg([B * H, 1, NK])
    s = m.scalar("arith.mulf", named(m, "linalg.batch_matmul", [q, k], [B * H, N, NK]), m.const("0.35355339"))
    s = causal(m, m.ew("arith.addf", s, alibi), "-3.40282347E+38")
    return m.text(named(m, "linalg.batch_matmul", [m.softmax(s), v], [B * H, N, D]))


@form
def named_softmax_in_f16():
    """Named ops alone; keys transposed by the product."""
    m = M()
    q, k, v = (m.arg([H, n, D], "f16") for n in (N, NK, NK))
    s = named(m, "linalg.batch_matmul", [q, m.transpose(k, [0, 2, 1])], [H, N, NK], "f16")
    s = m.scalar("arith.mulf", s, m.const("0.3535", "f16"))
    p = named(m, "linalg.softmax", [causal(m, s, "-6.550400e+04")], [H, N, NK], "f16", "dimension(2)")
    return m.text(named(m, "linalg.batch_matmul", [p, v], [H, N, D], "f16"))


@form
def two_triangles_added():
    """A window as two matrices of minus infinity."""
    m = M()
    q, k, v = m.arg([B, H, N, D]), m.arg([B, H, NK, D]), m.arg([B, H, NK, D])
    s = qk(m, q, k)
    i, j = m.index([N, NK], 0), m.index([N, NK], 1)
    zeros = m.fill("0.0", [N, NK])
    later = cmpi(m, "sle", j, i, [N, NK])
    near = cmpi(m, "sge", j, m.ew("arith.subi", i, m.fill("5", [N, NK], "i64")), [N, NK])
    for condition in (later, near):
        s = m.ew("arith.addf", s, sel(m, condition, zeros, "0xFF800000"))
    return m.text(pv(m, m.softmax(s), v))


@form
def difference_and_select_of_conditions():
    """0 <= q - k < 6, of which select makes one condition."""
    m = M()
    q, k, v = m.arg([B, H, N, D]), m.arg([B, H, NK, D]), m.arg([B, H, NK, D])
    i, j = m.index([N, 1], 0, "i32"), m.index([1, NK], 1, "i32")
    shape = [N, NK]
    d = m.ew("arith.subi", i, j, shape=shape, maps=[["d0", "0"], ["0", "d1"]])
    first = cmpi(m, "sge", d, m.fill("0", shape, "i32"), shape)
    second = cmpi(m, "slt", d, m.fill("6", shape, "i32"), shape)
    no = m.fill("false", shape, "i1")
    both = m.generic([first, second, no], [m.ident(shape)] * 3, shape, "i1",
                     lambda n, o: ([f"%r = arith.select {n[0]}, {n[1]}, {n[2]} : i1"], "%r"))
    return m.text(pv(m, m.softmax(sel(m, both, qk(m, q, k), "-1.0e9")), v))


@form
def hides_by_or():
    """masked_fill of (k > q) | (k < q - 4)."""
    m = M()
    q, k, v = m.arg([B, H, N, D]), m.arg([B, H, NK, D]), m.arg([B, H, NK, D])
    shape = [N, NK]
    i, j = m.index(shape, 0), m.index(shape, 1)
    far = cmpi(m, "slt", j, m.ew("arith.addi", i, m.fill("-4", shape, "i64")), shape)
    hidden = m.ew("arith.ori", cmpi(m, "sgt", j, i, shape), far)
    return m.text(pv(m, m.softmax(sel(m, hidden, qk(m, q, k), "0xFF800000", False)), v))


@form
def heads_in_rows():
    """Multi-query: the heads are rows of one product, in both products."""
    m = M()
    q, k, v = m.arg([B, N, H, D]), m.arg([B, NK, D]), m.arg([B, NK, D])
    rows = m.reshape(q, [[0], [1, 2], [3]], [B, N * H, D])
    s = named(m, "linalg.batch_matmul", [rows, m.transpose(k, [0, 2, 1])], [B, N * H, NK])
    s = m.scalar("arith.divf", s, m.const("2.82842712"))
    s = m.reshape(s, [[0], [1, 2], [3]], [B, N, H, NK])
    i, j = m.index([N, 1, NK], 0), m.index([N, 1, NK], 2)
    s = sel(m, cmpi(m, "sge", i, j, [N, 1, NK]), s, "0xFF800000")
    p = m.reshape(m.softmax(s), [[0], [1, 2], [3]], [B, N * H, NK])
    return m.text(m.reshape(named(m, "linalg.batch_matmul", [p, v], [B, N * H, D]), [[0], [1, 2], [3]], [B, N, H, D]))


@form
def grouped_einsum():
    """bqkgd,bskd->bkgqs: query heads of a group in a dimension of their own, nothing repeated."""
    m = M()
    q, k, v = m.arg([B, N, 2, 2, D]), m.arg([B, NK, 2, D]), m.arg([B, NK, 2, D])
    s = m.contract(q, k, ["d0", "d3", "d1", "d2", "d5"], ["d0", "d4", "d1", "d5"], [B, 2, 2, N, NK], 6)
    s = causal(m, m.scalar("arith.mulf", s, m.const("0.35355339")), "-2.38197633E+38")
    o = m.contract(m.softmax(s), v, ["d0", "d2", "d3", "d1", "d5"], ["d0", "d5", "d2", "d4"], [B, N, 2, 2, D], 6)
    return m.text(m.reshape(o, [[0], [1], [2, 3], [4]], [B, N, 4, D]))


@form
def sinks_in_slices():
    """Logits beside the scores, written by two insert_slice, the maximum subtracted twice."""
    m = M()
    q, k, v, sinks = m.arg([B, H, N, D]), m.arg([B, H, NK, D]), m.arg([B, H, NK, D]), m.arg([H])
    shape, wide = [B, H, N, NK], [B, H, N, NK + 1]
    s = m.scalar("arith.mulf", qk(m, q, k), m.const("0.35355339"))
    last = m.generic([sinks], [["d1"]], [B, H, N, 1], "f32", lambda n, o: ([], n[0]))
    both = m.empty(wide, "f32")
    for value, sizes, at in ((s, shape, 0), (last, [B, H, N, 1], NK)):
        made = m.new()
        m.op(f"{made} = tensor.insert_slice {value} into {both}[0, 0, 0, {at}] {sizes} [1, 1, 1, 1] : "
             f"{T(sizes, 'f32')} into {T(wide, 'f32')}")
        m.t[made] = (wide, "f32")
        both = made
    both = m.ew("arith.subf", both, m.keepdim(m.reduce(both, "arith.maximumf", "0xFF800000")))
    p = m.softmax(both)
    kept = m.new()
    m.op(f"{kept} = tensor.extract_slice {p}[0, 0, 0, 0] {shape} [1, 1, 1, 1] : {T(wide, 'f32')} to {T(shape, 'f32')}")
    m.t[kept] = (shape, "f32")
    return m.text(pv(m, kept, v))


@form
def guarded_rows_of_a_bias():
    """A row of minus infinity alone gives 0: known from the maximum of the added mask."""
    m = M()
    q, k, v = m.arg([B, H, N, D]), m.arg([B, H, NK, D]), m.arg([B, H, NK, D])
    attn_mask = m.arg([B, 1, N, NK], "i1")
    mask = sel(m, attn_mask, m.fill("0.0", [B, 1, N, NK]), "0xFF800000")
    p = m.softmax(m.ew("arith.addf", qk(m, q, k), mask))
    low, zero = m.const("0xFF800000"), m.const("0.0")
    most = m.keepdim(m.reduce(mask, "arith.maximumf", "0xFF800000"))
    shape = [B, H, N, NK]
    p = m.generic([p, most], [m.ident(shape), ["d0", "0", "d2", "0"]], shape, "f32",
                  lambda n, o: ([f"%c = arith.cmpf oeq, {n[1]}, {low} : f32",
                                 f"%r = arith.select %c, {zero}, {n[0]} : f32"], "%r"))
    return m.text(pv(m, p, v))


@form
def decode_at_position():
    """One query at a position of the run, over a cache of all keys."""
    m = M()
    q, k, v, at = m.arg([B, H, 1, D]), m.arg([B, H, NK, D]), m.arg([B, H, NK, D]), m.arg([], "i32")
    j = m.index([NK], 0, "i32")
    near = m.generic([j, at], [["d0"], []], [NK], "i1", lambda n, o: ([f"%r = arith.cmpi sle, {n[0]}, {n[1]} : i32"], "%r"))
    return m.text(pv(m, m.softmax(sel(m, near, qk(m, q, k), "-3.40282347E+38")), v))


@form
def reciprocal_of_two_powers():
    """2^(s - max), times the reciprocal of the sum, behind the second product."""
    m = M()
    q, k, v = m.arg([B, H, N, D]), m.arg([B, H, NK, D]), m.arg([B, H, NK, D])
    s = m.scalar("arith.mulf", qk(m, q, m.scalar("arith.divf", k, m.const("2.82842712"))), m.const("1.44269504"))
    e = exp2(m, causal(m, s), None)
    r = m.scalar("arith.divf", m.keepdim(m.reduce(e, "arith.addf", "0.0")), m.const("1.0"), flip=True)
    return m.text(m.ew("arith.mulf", pv(m, e, v), r))


def hide(m, x, low="-1.0e9"):
    """(1 - x) * low, of an x that is 0 or 1."""
    return m.scalar("arith.mulf", m.scalar("arith.subf", x, m.const("1.0"), flip=True), m.const(low))


def operands(m, n=N, el="f32"):
    return m.arg([B, H, n, D], el), m.arg([B, H, n, D], el), m.arg([B, H, n, D], el)


def matrix(m, shows, yes, no, el):
    """A constant of all pairs."""
    value = m.new()
    rows = ", ".join("[" + ", ".join(yes if shows(i, j) else no for j in range(NK)) + "]" for i in range(N))
    m.op(f"{value} = arith.constant dense<[{rows}]> : {T([N, NK], el)}")
    m.t[value] = ([N, NK], el)
    return value


def cast(m, op, x, el):
    """An elementwise conversion, whatever it is."""
    shape, source = m.t[x]
    return m.generic([x], [m.ident(shape)], shape, el, lambda n, o: ([f"%r = {op} {n[0]} : {source} to {el}"], "%r"))


def scattered(i, j):
    return (7 * i + 3 * j * j) % 5 != 0 or i == j


def hides_row(i, j):
    return scattered(i, j) and i != 4


@form
def padding_of_zeros_and_ones():
    """BERT: numbers that are 0 or 1, times a number that hides."""
    m = M()
    q, k, v = operands(m)
    x = hide(m, m.ew("arith.uitofp", m.arg([B, 1, 1, NK], "i1"), el="f32"))
    return m.text(pv(m, m.softmax(m.ew("arith.addf", qk(m, q, k), x)), v))


@form
def padding_before_the_scale():
    """(mask - 1) * 1e9, added before the scale."""
    m = M()
    q, k, v = operands(m)
    x = cast(m, "arith.sitofp", cast(m, "arith.extui", m.arg([B, 1, N, NK], "i1"), "i32"), "f32")
    x = m.scalar("arith.mulf", m.scalar("arith.subf", x, m.const("1.0")), m.const("1.0e9"))
    s = m.scalar("arith.mulf", m.ew("arith.addf", qk(m, q, k), x), m.const("0.125"))
    return m.text(pv(m, m.softmax(s), v))


@form
def padding_rounded():
    """The same number as f16, where it is minus infinity; another summand in bf16."""
    m = M()
    q, k, v = operands(m)
    x = hide(m, m.ew("arith.uitofp", m.arg([B, 1, 1, NK], "i1"), el="f32"))
    s = m.ew("arith.addf", qk(m, q, k), m.ew("arith.extf", m.ew("arith.truncf", x, el="f16"), el="f32"))
    b = m.scalar("arith.mulf", m.arg([1, H, N, NK]), m.const("3.3"))
    s = m.ew("arith.addf", s, m.ew("arith.extf", m.ew("arith.truncf", b, el="bf16"), el="f32"))
    return m.text(pv(m, m.softmax(s), v))


@form
def row_bias_and_lse():
    """A summand of each row and one of all scores: they cancel out in the weights, not in their sum."""
    m = M()
    q, k, v, rows = *operands(m), m.arg([B, H, N, 1])
    s = m.scalar("arith.addf", m.ew("arith.addf", qk(m, q, k), rows), m.const("0.75"))
    most = m.reduce(s, "arith.maximumf", "0xFF800000")
    e = m.ew("math.exp", m.ew("arith.subf", s, m.keepdim(most)))
    total = m.reduce(e, "arith.addf", "0.0")
    lse = m.ew("arith.addf", most, m.ew("math.log", m.ew("math.absf", total)))
    return m.text(pv(m, m.ew("arith.divf", e, m.keepdim(total)), v), lse)


@form
def large_summand():
    """A summand of all scores that leaves nothing of their differences."""
    m = M()
    q, k, v = operands(m)
    return m.text(pv(m, m.softmax(m.scalar("arith.addf", qk(m, q, k), m.const("-1.0e9"))), v))


@form
def sinks_and_row_bias():
    """A summand of each row that the sinks do not have."""
    m = M()
    q, k, v, rows, sinks = *operands(m), m.arg([B, H, N, 1]), m.arg([H])
    shape, wide = [B, H, N, NK], [B, H, N, NK + 1]
    s = m.ew("arith.addf", qk(m, q, k), rows)
    last = m.generic([sinks], [["d1"]], [B, H, N, 1], "f32", lambda n, o: ([], n[0]))
    both, kept = m.new(), m.new()
    m.op(f"{both} = tensor.concat dim(3) {s}, {last} : ({T(shape, 'f32')}, {T([B, H, N, 1], 'f32')}) -> {T(wide, 'f32')}")
    m.t[both] = (wide, "f32")
    m.op(f"{kept} = tensor.extract_slice {m.softmax(both)}[0, 0, 0, 0] {shape} [1, 1, 1, 1] : {T(wide, 'f32')} to {T(shape, 'f32')}")
    m.t[kept] = (shape, "f32")
    return m.text(pv(m, kept, v))


@form
def weights_of_absolute_lse():
    """e^(s - lse), where the sum behind the logarithm is made positive first."""
    m = M()
    q, k, v = operands(m)
    s = causal(m, qk(m, q, k))
    most = m.reduce(s, "arith.maximumf", "0xFF800000")
    total = m.reduce(m.ew("math.exp", m.ew("arith.subf", s, m.keepdim(most))), "arith.addf", "0.0")
    lse = m.ew("arith.addf", m.ew("math.log", m.ew("math.absf", total)), most)
    return m.text(pv(m, m.ew("math.exp", m.ew("arith.subf", s, m.keepdim(lse))), v))


def bounded_maximum(start, above):
    m = M()
    q, k, v = operands(m)
    s = qk(m, q, k)
    most = m.reduce(s, "arith.maximumf", start)
    if above:
        most = m.scalar("arith.maximumf", most, m.const(above))
    e = m.ew("math.exp", m.ew("arith.subf", s, m.keepdim(most)))
    return m.text(pv(m, m.ew("arith.divf", e, m.keepdim(m.reduce(e, "arith.addf", "0.0"))), v))


@form
def maximum_from_zero():
    return bounded_maximum("0.0", None)


@form
def maximum_from_a_number():
    return bounded_maximum("-5.0", "-2.0")


@form
def factor_of_heads():
    """Swin: each head divides by a temperature of its own; grouped heads, causal."""
    m = M()
    q, k, v, t = m.arg([B, H, N, D]), m.arg([B, 2, NK, D]), m.arg([B, 2, NK, D]), m.arg([H])

    def repeat(x):
        y = m.generic([x], [["d0", "d1", "d3", "d4"]], [B, 2, 2, NK, D], "f32", lambda n, o: ([], n[0]))
        return m.reshape(y, [[0], [1, 2], [3], [4]], [B, H, NK, D])

    t = m.reshape(m.scalar("arith.addf", m.ew("math.absf", t), m.const("0.5")), [[0, 1, 2]], [H, 1, 1])
    s = causal(m, m.ew("arith.divf", qk(m, q, repeat(k)), t))
    return m.text(pv(m, m.softmax(s), repeat(v)))


@form
def factor_of_keys_and_rows():
    m = M()
    q, k, v, a, b = *operands(m), m.arg([B, 1, 1, NK]), m.arg([1, H, N, 1])
    return m.text(pv(m, m.softmax(m.ew("arith.mulf", m.ew("arith.mulf", qk(m, q, k), a), b)), v))


@form
def factor_within_the_cap():
    m = M()
    q, k, v, a, c = *operands(m), m.arg([1, H, 1, 1]), m.const("5.0")
    s = m.scalar("arith.divf", m.ew("arith.mulf", qk(m, q, k), a), c)
    return m.text(pv(m, m.softmax(m.scalar("arith.mulf", m.ew("math.tanh", s), c)), v))


@form
def reshaped_by_a_tensor():
    """A shape that is data, where the types say what it is."""
    m = M()
    q, k, v = operands(m)
    s, sizes, merged = qk(m, q, k), m.new(), m.new()
    m.op(f"{sizes} = arith.constant dense<[{B * H}, {N}, {NK}]> : tensor<3xi64>")
    m.op(f"{merged} = tensor.reshape {s}({sizes}) : ({T([B, H, N, NK], 'f32')}, tensor<3xi64>) -> {T([B * H, N, NK], 'f32')}")
    m.t[merged] = ([B * H, N, NK], "f32")
    return m.text(pv(m, m.reshape(m.softmax(merged), [[0, 1], [2], [3]], [B, H, N, NK]), v))


@form
def product_of_triangles():
    """flax: masks as numbers that are multiplied, and compared with a half."""
    m = M()
    q, k, v = operands(m)
    i, j = m.index([N, NK], 0), m.index([N, NK], 1)
    near = cmpi(m, "sgt", j, m.ew("arith.subi", i, m.fill("5", [N, NK], "i64")), [N, NK])
    x = m.ew("arith.mulf", m.ew("arith.uitofp", cmpi(m, "sle", j, i, [N, NK]), el="f32"), m.ew("arith.uitofp", near, el="f32"))
    half = m.const("0.5")
    shows = m.generic([x], [m.ident([N, NK])], [N, NK], "i1", lambda n, o: ([f"%r = arith.cmpf ogt, {n[0]}, {half} : f32"], "%r"))
    return m.text(pv(m, m.softmax(sel(m, shows, qk(m, q, k), "-1.0e9")), v))


@form
def triangle_or_prefix_of_numbers():
    m = M()
    q, k, v = operands(m)
    i, j = m.index([N, NK], 0), m.index([N, NK], 1)
    first = cmpi(m, "slt", j, m.fill("3", [N, NK], "i64"), [N, NK])
    x = m.ew("arith.maximumf", m.ew("arith.uitofp", cmpi(m, "sle", j, i, [N, NK]), el="f32"), m.ew("arith.uitofp", first, el="f32"))
    return m.text(pv(m, m.softmax(m.ew("arith.addf", qk(m, q, k), hide(m, x))), v))


@form
def triangle_constant_of_numbers():
    m = M()
    q, k, v = operands(m)
    x = hide(m, matrix(m, lambda i, j: j <= i, "1.0", "0.0", "f32"), "-3.40282347E+38")
    return m.text(pv(m, m.softmax(m.ew("arith.addf", qk(m, q, k), x)), v))


@form
def numbers_that_hide_rows():
    """Neither is a mask that the op has: the rows are the mean of the values, so they are biases."""
    m = M()
    q, k, v = operands(m)
    i, j = m.index([N, NK], 0), m.index([N, NK], 1)
    strictly = m.ew("arith.uitofp", cmpi(m, "slt", j, i, [N, NK]), el="f32")
    s = m.ew("arith.addf", qk(m, q, k), hide(m, strictly))
    x = matrix(m, hides_row, "0.0", "2.0e9", "f32")
    return m.text(pv(m, m.softmax(m.scalar("arith.mulf", m.ew("arith.subf", s, x), m.const("0.5"))), v))


@form
def scattered_constants():
    """No set; each row keeps a key."""
    m = M()
    q, k, v = operands(m)
    return m.text(pv(m, m.softmax(sel(m, matrix(m, scattered, "true", "false", "i1"), qk(m, q, k), "-1.0e9")), v))


@form
def constants_cut_to_one_bit():
    """Not what is 0, but what is even, hides."""
    m = M()
    q, k, v = operands(m)
    shows = cast(m, "arith.trunci", matrix(m, lambda i, j: j <= i, "3", "2", "i32"), "i1")
    return m.text(pv(m, m.softmax(sel(m, shows, qk(m, q, k), "-1.0e9")), v))


@form
def products_of_positions():
    m = M()
    q, k, v = operands(m)
    i, j = m.index([N, NK], 0), m.index([N, NK], 1)
    rest = m.ew("arith.remsi", m.ew("arith.muli", i, j), m.fill("3", [N, NK], "i64"))
    shows = cmpi(m, "eq", rest, m.fill("0", [N, NK], "i64"), [N, NK])
    return m.text(pv(m, m.softmax(sel(m, shows, qk(m, q, k), "-1.0e9")), v))


@form
def hidden_rows_set_to_zero():
    """Rows that a finite number hides whole, and whose weights are 0 all the same."""
    m = M()
    q, k, v = operands(m)
    i, j = m.index([N, NK], 0), m.index([N, NK], 1)
    shows = cmpi(m, "slt", j, i, [N, NK])
    return m.text(pv(m, sel(m, shows, m.softmax(sel(m, shows, qk(m, q, k), "-1.0e9")), "0.0"), v))


def causal_of(n, el, convert=None):
    m = M()
    q, k, v = operands(m, n)
    i, j = m.index([n, n], 0, el), m.index([n, n], 1, el)
    if convert:
        i, j = convert(m, i), convert(m, j)
    return m.text(pv(m, m.softmax(sel(m, cmpi(m, "sle", j, i, [n, n]), qk(m, q, k), "0xFF800000")), v))


@form
def positions_that_fit_a_byte():
    return causal_of(128, "i8")


@form
def positions_that_wrap():
    return causal_of(140, "i8")


@form
def positions_cut_to_a_byte():
    return causal_of(140, "i64", lambda m, x: cast(m, "arith.trunci", x, "i8"))


@form
def products_that_wrap():
    return causal_of(140, "i16", lambda m, x: m.scalar("arith.muli", x, m.const("300", "i16")))


@form
def differences_without_a_sign():
    """A negative difference, extended without its sign, is a large one."""
    m = M()
    q, k, v = operands(m)
    i, j = m.index([N, NK], 0, "i32"), m.index([N, NK], 1, "i32")
    d = cast(m, "arith.index_castui", m.ew("arith.subi", i, j), "index")
    shows = cmpi(m, "slt", d, m.fill("4", [N, NK], "index"), [N, NK])
    return m.text(pv(m, m.softmax(sel(m, shows, qk(m, q, k), "0xFF800000")), v))


@form
def window_without_an_end():
    """A limit that no distance reaches hides nothing."""
    m = M()
    q, k, v = operands(m)
    i, j = m.index([N, NK], 0), m.index([N, NK], 1)
    near = cmpi(m, "slt", m.ew("arith.subi", i, j), m.fill("9223372036854775807", [N, NK], "i64"), [N, NK])
    shows = m.ew("arith.andi", cmpi(m, "sle", j, i, [N, NK]), near)
    return m.text(pv(m, m.softmax(sel(m, shows, qk(m, q, k), "-1.0e9")), v))


def dynamic(name, q, mask, reshaped=None):
    """Lengths that are not known, of tensors of some rank; scores or probabilities may be reshaped by sizes of the run time."""
    kind = f"tensor<{q}?x8xf32>"
    rank = q.count("x") + 2
    dims = [f"d{i}" for i in range(rank + 1)]
    batch = dims[:rank - 2]

    def generic(inputs, maps, out, body, reduction):
        text = ", ".join(f"affine_map<({', '.join(dims)}) -> ({', '.join(x)})>" for x in maps)
        kinds = ", ".join('"reduction"' if d in reduction else '"parallel"' for d in dims)
        return f"linalg.generic {{indexing_maps = [{text}], iterator_types = [{kinds}]}} {inputs} outs({out}) {{ {body} }}"

    n, d, x = dims[rank - 2], dims[rank - 1], dims[rank]
    scores = f"tensor<{q}?x?xf32>"
    product = "^bb0(%a: f32, %b: f32, %c: f32): %x = arith.mulf %a, %b : f32 %y = arith.addf %c, %x : f32 linalg.yield %y : f32"
    hide = ("^bb0(%a: f32): %i = linalg.index {0} : index %j = linalg.index {1} : index %c = arith.cmpi sle, %j, %i : index "
            "%r = arith.select %c, %a, %low : f32 linalg.yield %r : f32").format(rank - 2, rank - 1)
    square = dims[:rank]
    ident = f"affine_map<({', '.join(square)}) -> ({', '.join(square)})>"
    parallel = ", ".join(['"parallel"'] * rank)
    masked = (f"%m = linalg.generic {{indexing_maps = [{ident}], iterator_types = [{parallel}]}} outs(%s : {scores}) {{ {hide} }} -> {scores}"
              if mask else "")
    at = rank - 2
    sizes_type = f"tensor<{rank}xindex>"

    def reshape(kind, value):
        if reshaped != kind:
            return value, ""
        made = f"%{kind}"
        return made, f"{made} = tensor.reshape {value}(%sizes) : ({scores}, {sizes_type}) -> {scores}"

    s, s_text = reshape("scores", "%m" if mask else "%s")
    p, p_text = reshape("probabilities", "%p")
    first_dim = "%b0 = tensor.dim %q, %z : " + kind if q.startswith("?") else ""
    sizes = ("%b0, " if first_dim else "")
    more = f", %sizes: {sizes_type}" if reshaped else ""
    return f"""func.func @{name}(%q: {kind}, %k: {kind}, %v: {kind}{more}) -> {kind} {{
  %z = arith.constant 0 : index
  %at = arith.constant {at} : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  {first_dim}
  %n = tensor.dim %q, %at : {kind}
  %nk = tensor.dim %k, %at : {kind}
  %se = tensor.empty({sizes}%n, %nk) : {scores}
  %s0 = linalg.fill ins(%zero : f32) outs(%se : {scores}) -> {scores}
  %s = {generic(f"ins(%q, %k : {kind}, {kind})", [batch + [n, x], batch + [d, x], batch + [n, d]], f"%s0 : {scores}", product, [x])} -> {scores}
  {masked}
  {s_text}
  %p = linalg.softmax dimension({rank - 1}) ins({s} : {scores}) outs(%se : {scores}) -> {scores}
  {p_text}
  %oe = tensor.empty({sizes}%n) : {kind}
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : {kind}) -> {kind}
  %o = {generic(f"ins({p}, %v : {scores}, {kind})", [batch + [n, x], batch + [x, d], batch + [n, d]], f"%o0 : {kind}", product, [x])} -> {kind}
  return %o : {kind}
}}
"""


if __name__ == "__main__":
    for name, make in forms.items():
        print(make().replace("@NAME", "@" + name))
    print(dynamic("dynamic", "2x4x", True))
    print(dynamic("dynamic_batches", "?x4x", False))
    print(dynamic("dynamic_rank_3", "8x", True))
    print(dynamic("dynamic_rank_2", "", False))
    print(dynamic("dynamic_rank_5", "2x2x2x", False))
    print(dynamic("reshaped_scores", "2x4x", True, "scores"))
    print(dynamic("reshaped_probabilities", "2x4x", False, "probabilities"))
