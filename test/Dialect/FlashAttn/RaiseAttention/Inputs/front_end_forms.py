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
    keep = m.arg([B, 1, N, NK], "i1")
    mask = sel(m, keep, m.fill("0.0", [B, 1, N, NK]), "0xFF800000")
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


def dynamic(name, q, mask):
    """Lengths that are not known, of tensors of some rank."""
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
    first_dim = "%b0 = tensor.dim %q, %z : " + kind if q.startswith("?") else ""
    sizes = ("%b0, " if first_dim else "")
    return f"""func.func @{name}(%q: {kind}, %k: {kind}, %v: {kind}) -> {kind} {{
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
  %p = linalg.softmax dimension({rank - 1}) ins({'%m' if mask else '%s'} : {scores}) outs(%se : {scores}) -> {scores}
  %oe = tensor.empty({sizes}%n) : {kind}
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : {kind}) -> {kind}
  %o = {generic(f"ins(%p, %v : {scores}, {kind})", [batch + [n, x], batch + [x, d], batch + [n, d]], f"%o0 : {kind}", product, [x])} -> {kind}
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
