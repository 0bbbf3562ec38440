"""Attention whose mask compares integers of tensors: one function each.

data_masks.py prints a module of all of them. A row that sees no key gives 0 in each, as in the op.
"""
from attention_forms import B, D, H, M, N, NK, cmpi, pv, qk, qkv, sel

forms = {}


def form(make):
    forms[make.__name__] = make
    return make


def attend(m, q, k, v, mask):
    """jax.nn.softmax(where=mask): probabilities of hidden pairs, and of hidden rows, are 0."""
    s = sel(m, mask, qk(m, q, k), "0xFF800000")
    shifted = m.ew("arith.subf", s, m.keepdim(m.reduce(s, "arith.maximumf", "0xFF800000")))
    e = sel(m, mask, m.ew("math.exp", shifted), "0.0")
    p = m.ew("arith.divf", e, m.keepdim(m.reduce(e, "arith.addf", "0.0")))
    return m.text(pv(m, sel(m, mask, p, "0.0"), v))


def pairs(m, inputs, maps, lines, n=N, nk=NK, h=1, q="i32"):
    """A condition %c of each pair: %q and %k are its indices, and %i0, %i1, … elements of `inputs`."""
    body = [f"%n{name} = linalg.index {dim} : index" for name, dim in (("q", 2), ("k", 3))]
    body += [f"%{name} = arith.index_cast %n{name} : index to {q}" for name in "qk"]
    return m.generic(inputs, maps, [B, h, n, nk], "i1", lambda names, out: (body + lines, "%c"))


def repeat(m, x, times):
    shape = m.t[x][0]
    wide = shape[:2] + [times] + shape[2:]
    x = m.generic([x], [["d0", "d1", "d3", "d4"]], wide, "f32", lambda names, out: ([], names[0]))
    return m.reshape(x, [[0], [1, 2], [3], [4]], [shape[0], shape[1] * times] + shape[2:])


def fused(shapes, maps, lines, el="i32", n=N, nk=NK, h=1, heads=H, index="i32"):
    """A form whose whole condition is one op that reads tensors of these shapes."""
    m = M()
    q, k, v = m.arg([B, heads, n, D]), m.arg([B, H, nk, D]), m.arg([B, H, nk, D])
    if heads != H:
        k, v = repeat(m, k, heads // H), repeat(m, v, heads // H)
    inputs = [m.arg(shape, el) for shape in shapes]
    return attend(m, q, k, v, pairs(m, inputs, maps, lines, n, nk, h, index))


OF_QUERY, OF_KEY, OF_BATCH, OF_ALL = ["d0", "d2"], ["d0", "d3"], ["d0"], []


@form
def segments():
    """jax.experimental.pallas: q_segment_ids == kv_segment_ids, each broadcast by a copy first."""
    m = M()
    q, k, v = qkv(m)
    a, b = m.arg([B, N], "i32"), m.arg([B, NK], "i32")
    a = m.generic([a], [["d0", "d1"]], [B, N, NK], "i32", lambda n, o: ([], n[0]))
    b = m.generic([b], [["d0", "d2"]], [B, N, NK], "i32", lambda n, o: ([], n[0]))
    return attend(m, q, k, v, m.reshape(cmpi(m, "eq", a, b, [B, N, NK]), [[0], [1, 2], [3]], [B, 1, N, NK]))


@form
def causal_segments():
    m = M()
    q, k, v = qkv(m)
    a, b = m.arg([B, N], "i32"), m.arg([B, NK], "i32")
    c = pairs(m, [a, b], [OF_QUERY, OF_KEY], ["%c = arith.cmpi eq, %i0, %i1 : i32"])
    causal = cmpi(m, "sge", m.index([N, NK], 0), m.index([N, NK], 1), [N, NK])
    return attend(m, q, k, v, m.ew("arith.andi", causal, c, shape=[B, 1, N, NK]))


@form
def documents():
    """torch: doc[:, None] == doc[None, :], one tensor for queries and keys of all batches."""
    m = M()
    q, k, v = qkv(m)
    doc = m.arg([N], "i32")
    rows, columns = m.reshape(doc, [[0, 1]], [N, 1]), m.reshape(doc, [[0, 1]], [1, NK])
    same = cmpi(m, "eq", rows, columns, [N, NK])
    causal = cmpi(m, "sge", m.index([N, NK], 0), m.index([N, NK], 1), [N, NK])
    return attend(m, q, k, v, m.ew("arith.andi", same, causal))


def same(shape, el, predicate="eq"):
    m = M()
    q, k, v = qkv(m)
    doc = m.arg(shape, el)
    rows, columns = m.reshape(doc, [[0], [1, 2, 3]], [B, 1, N, 1]), m.reshape(doc, [[0], [1, 2, 3]], [B, 1, 1, NK])
    return attend(m, q, k, v, cmpi(m, predicate, rows, columns, [B, 1, N, NK]))


@form
def wide_documents():
    """Ids of 64 bits are equal if both of their halves are."""
    return same([B, N], "i64")


@form
def other_documents():
    return same([B, N], "i32", "ne")


def gathered(lines, index):
    """doc[rows] == doc[columns] with arange for both, which the gather limits to the size of `doc`."""
    m = M()
    q, k, v = qkv(m)
    doc = m.arg([N], "i32")
    rows, columns = m.reshape(m.index([N], 0, index), [[0, 1]], [N, 1]), m.reshape(m.index([NK], 0, index), [[0, 1]], [1, NK])

    def body(names, out):
        text = [f"%zero = arith.constant 0 : {index}", f"%size = arith.constant {N} : {index}", f"%last = arith.constant {N - 1} : {index}"]
        for i, name in enumerate(names):
            text += [line.replace("%i", name).replace("%w", f"%w{i}").replace("%x", f"%x{i}").replace("%y", f"%y{i}") for line in lines]
            text += [f"%z{i} = arith.index_cast %y{i} : {index} to index", f"%d{i} = tensor.extract {doc}[%z{i}] : tensor<{N}xi32>"]
        return text + ["%c = arith.cmpi eq, %d0, %d1 : i32"], "%c"

    return attend(m, q, k, v, m.generic([rows, columns], [["d0", "0"], ["0", "d1"]], [N, NK], "i1", body))


@form
def documents_from_the_end():
    """torch-mlir: an index below 0 counts from the end."""
    return gathered(["%w = arith.cmpi slt, %i, %zero : i64", "%x = arith.addi %i, %size : i64", "%y = arith.select %w, %x, %i : i64"], "i64")


@form
def limited_documents():
    """JAX: an index is limited to the first and the last one."""
    return gathered(["%w = arith.maxsi %i, %zero : i32", "%y = arith.minsi %w, %last : i32"], "i32")


@form
def short_documents():
    return same([B, N], "i8")


@form
def prefix():
    return fused([[B]], [OF_BATCH], ["%p = arith.cmpi slt, %k, %i0 : i32", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.ori %p, %d : i1"])


@form
def wide_prefix():
    return fused([[B]], [OF_BATCH], ["%p = arith.cmpi slt, %k, %i0 : i64", "%d = arith.cmpi sle, %k, %q : i64", "%c = arith.ori %p, %d : i1"], "i64", index="i64")


@form
def left_padding():
    return fused([[B]], [OF_BATCH], ["%p = arith.cmpi sge, %k, %i0 : i32", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.andi %p, %d : i1"])


@form
def hides_padding():
    return fused([[B]], [OF_BATCH], ["%p = arith.cmpi slt, %k, %i0 : i32", "%d = arith.cmpi sgt, %k, %q : i32", "%e = arith.ori %p, %d : i1", "%t = arith.constant true", "%c = arith.xori %e, %t : i1"])


@form
def two_lengths():
    """Lengths of keys are kv_len, lengths of queries a symbol."""
    return fused([[B], [B]], [OF_BATCH, OF_BATCH], ["%p = arith.cmpi slt, %k, %i0 : i32", "%d = arith.cmpi slt, %q, %i1 : i32", "%c = arith.andi %p, %d : i1"])


@form
def last_key():
    return fused([[B]], [OF_BATCH], ["%c = arith.cmpi sle, %k, %i0 : i32"])


@form
def starts_and_ends():
    return fused([[B, N], [B, N]], [OF_QUERY, OF_QUERY], ["%p = arith.cmpi sge, %k, %i0 : i32", "%d = arith.cmpi slt, %k, %i1 : i32", "%c = arith.andi %p, %d : i1"])


@form
def ends_of_keys():
    """FlashMask: a key is visible to the queries before a row, of each head of keys."""
    return fused([[B, H, NK]], [["d0", "d1", "d3"]], ["%p = arith.cmpi slt, %q, %i0 : i32", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.andi %p, %d : i1"], h=H)


@form
def starts_of_heads():
    return fused([[B, 8, N]], [["d0", "d1", "d2"]], ["%c = arith.cmpi sge, %k, %i0 : i32"], h=8, heads=8)


@form
def wrapping_constants():
    """The sum is computed for each query, where it wraps as here."""
    return fused([[B, N]], [OF_QUERY], ["%t = arith.constant 2 : i32", "%s = arith.addi %i0, %t : i32", "%c = arith.cmpi sge, %k, %s : i32"])


@form
def window():
    return fused([[]], [OF_ALL], ["%s = arith.subi %q, %k : i32", "%p = arith.cmpi slt, %s, %i0 : i32", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.andi %p, %d : i1"])


@form
def wrapping_window():
    """q - w may wrap: it is a number of each query."""
    return fused([[1]], [["0"]], ["%s = arith.subi %q, %i0 : i32", "%p = arith.cmpi sgt, %k, %s : i32", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.andi %p, %d : i1"])


@form
def extended_window():
    """q - w does not wrap in 64 bits, so that it is a sum of the set."""
    return fused([[B]], [OF_BATCH], ["%w = arith.extsi %i0 : i32 to i64", "%s = arith.subi %q, %w : i64", "%p = arith.cmpi sgt, %k, %s : i64", "%d = arith.cmpi sle, %k, %q : i64", "%c = arith.andi %p, %d : i1"], index="i64")


@form
def sinks_or_window():
    return fused([[B], [B]], [OF_BATCH, OF_BATCH], ["%s = arith.subi %q, %k : i32", "%p = arith.cmpi slt, %s, %i0 : i32", "%z = arith.cmpi slt, %k, %i1 : i32", "%pz = arith.ori %p, %z : i1", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.andi %pz, %d : i1"])


@form
def causal_if():
    return fused([[B]], [OF_BATCH], ["%z = arith.constant 0 : i32", "%p = arith.cmpi eq, %i0, %z : i32", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.ori %p, %d : i1"])


@form
def chosen_by_segment():
    """where(same segment, causal, key in the prefix), as a select of booleans."""
    return fused([[B, N], [B, NK], [B]], [OF_QUERY, OF_KEY, OF_BATCH], ["%e = arith.cmpi eq, %i0, %i1 : i32", "%d = arith.cmpi sle, %k, %q : i32", "%p = arith.cmpi slt, %k, %i2 : i32", "%c = arith.select %e, %d, %p : i1"])


@form
def segments_as_numbers():
    """A product of conditions as f32, as ONNX and flax write it."""
    lines = ["%e = arith.cmpi eq, %i0, %i1 : i32", "%d = arith.cmpi sle, %k, %q : i32", "%x = arith.uitofp %e : i1 to f32",
             "%y = arith.uitofp %d : i1 to f32", "%s = arith.mulf %x, %y : f32", "%z = arith.constant 0.0 : f32", "%c = arith.cmpf une, %s, %z : f32"]
    return fused([[B, N], [B, NK]], [OF_QUERY, OF_KEY], lines)


@form
def shifted_queries():
    """Fewer queries than keys: positions of the causal mask are those of the last keys."""
    lines = ["%t = arith.constant 8 : i32", "%p = arith.addi %q, %t : i32", "%d = arith.cmpi sle, %k, %p : i32", "%e = arith.cmpi eq, %i0, %i1 : i32", "%c = arith.andi %d, %e : i1"]
    return fused([[B, 8], [B, NK]], [OF_QUERY, OF_KEY], lines, n=8)


@form
def shifted_window():
    lines = ["%t = arith.constant 8 : i32", "%p = arith.addi %q, %t : i32", "%d = arith.cmpi sle, %k, %p : i32", "%s = arith.subi %p, %k : i32", "%e = arith.cmpi slt, %s, %i0 : i32", "%c = arith.andi %d, %e : i1"]
    return fused([[B]], [OF_BATCH], lines, n=8)


@form
def decode_step():
    """One query at a position of each batch."""
    return fused([[B], [B]], [OF_BATCH, OF_BATCH], ["%d = arith.cmpi sle, %k, %i0 : i32", "%e = arith.cmpi sge, %k, %i1 : i32", "%c = arith.andi %d, %e : i1"], n=1)


@form
def compared_as_indices():
    """torch-mlir: lengths of 64 bits become indices."""
    return fused([[B]], [OF_BATCH], ["%x = arith.index_cast %i0 : i64 to index", "%p = arith.cmpi sle, %nk, %x : index", "%d = arith.cmpi sle, %nk, %nq : index", "%c = arith.ori %p, %d : i1"], "i64")


@form
def flags_or_causal():
    """A boolean of each key, within other conditions, is a number that is 0 or 1."""
    m = M()
    q, k, v = qkv(m)
    flag, kind = m.arg([B, NK], "i1"), m.arg([B, N], "i32")
    lines = ["%d = arith.cmpi sle, %k, %q : i32", "%z = arith.constant 0 : i32", "%e = arith.cmpi ne, %i1, %z : i32",
             "%f = arith.andi %i0, %e : i1", "%c = arith.ori %d, %f : i1"]
    return attend(m, q, k, v, pairs(m, [flag, kind], [OF_KEY, OF_QUERY], lines))


@form
def segments_and_flags():
    """A boolean of each key alone is broadcast as before."""
    return fused([[B, N], [B, NK]], [OF_QUERY, OF_KEY], ["%e = arith.cmpi eq, %i0, %i1 : i32", "%z = arith.constant 0 : i32", "%f = arith.cmpi ne, %i1, %z : i32", "%c = arith.andi %e, %f : i1"])


@form
def segments_in_the_bias():
    """A bias of 0 or minus infinity."""
    m = M()
    q, k, v = qkv(m)
    c = pairs(m, [m.arg([B, N], "i32"), m.arg([B, NK], "i32")], [OF_QUERY, OF_KEY], ["%e = arith.cmpi eq, %i0, %i1 : i32", "%d = arith.cmpi eq, %k, %q : i32", "%c = arith.ori %e, %d : i1"])
    bias = m.generic([c], [["d0", "d1", "d2", "d3"]], [B, 1, N, NK], "f32", lambda n, o: (["%l = arith.constant 0xFF800000 : f32", "%z = arith.constant 0.0 : f32", f"%r = arith.select {n[0]}, %z, %l : f32"], "%r"))
    s = m.ew("arith.addf", qk(m, q, k), bias)
    return m.text(pv(m, m.softmax(s), v))


@form
def positions_of_batches():
    """Continuous batching: each batch has a position, a window and padding of its own."""
    lines = ["%p = arith.addi %i0, %q : i32", "%d = arith.cmpi sle, %k, %p : i32", "%l = arith.subi %p, %i1 : i32", "%e = arith.cmpi sgt, %k, %l : i32",
             "%f = arith.cmpi sge, %k, %i2 : i32", "%de = arith.andi %d, %e : i1", "%c = arith.andi %de, %f : i1"]
    return fused([[B], [B], [B]], [OF_BATCH] * 3, lines, n=4)


@form
def offset_and_padding():
    """One position for all batches is still the offset: a small number, as positions are taken to be."""
    m = M()
    q, k, v = qkv(m, n=4)
    position, padding = m.arg([], "i8"), m.arg([B], "i32")
    lines = ["%x = arith.extsi %i0 : i8 to i32", "%p = arith.addi %x, %q : i32", "%d = arith.cmpi sle, %k, %p : i32", "%f = arith.cmpi sge, %k, %i1 : i32", "%c = arith.andi %d, %f : i1"]
    return attend(m, q, k, v, pairs(m, [position, padding], [OF_ALL, OF_BATCH], lines, n=4))


@form
def queries_beside_heads():
    """Grouped heads after the queries, whose number is not that of the keys."""
    m = M()
    q, k, v = m.arg([B, 6, H, 2, D]), m.arg([B, NK, H, D]), m.arg([B, NK, H, D])
    a, b = m.arg([B, 6], "i32"), m.arg([B, NK], "i32")
    s = m.contract(q, k, ["d0", "d2", "d1", "d3", "d5"], ["d0", "d4", "d1", "d5"], [B, H, 6, 2, NK], 6)
    c = m.generic([a, b], [["d0", "d2"], ["d0", "d4"]], [B, 1, 6, 1, NK], "i1", lambda n, o: ([f"%c = arith.cmpi sge, {n[0]}, {n[1]} : i32"], "%c"))
    s = sel(m, c, s, "0xFF800000")
    e = sel(m, c, m.ew("math.exp", m.ew("arith.subf", s, m.keepdim(m.reduce(s, "arith.maximumf", "0xFF800000")))), "0.0")
    p = sel(m, c, m.ew("arith.divf", e, m.keepdim(m.reduce(e, "arith.addf", "0.0"))), "0.0")
    return m.text(m.contract(p, v, ["d0", "d1", "d2", "d3", "d5"], ["d0", "d5", "d1", "d4"], [B, H, 6, 2, D], 6))


@form
def cut_twice():
    """Two numbers that differ only in the type to which they are cut."""
    lines = []
    for width, name in ((8, "a"), (16, "b")):
        lines += [f"%t{name} = arith.trunci %i0 : i64 to i{width}", f"%{name} = arith.extsi %t{name} : i{width} to i32"]
    return fused([[B]], [OF_BATCH], lines + ["%d = arith.cmpi sge, %k, %a : i32", "%e = arith.cmpi sge, %k, %b : i32", "%c = arith.andi %d, %e : i1"], "i64")


@form
def prefix_and_low_number():
    """Every row sees its own key, whatever the prefix is, so that a low number hides as minus infinity does."""
    m = M()
    q, k, v = qkv(m)
    c = pairs(m, [m.arg([B], "i32")], [OF_BATCH], ["%p = arith.cmpi slt, %k, %i0 : i32", "%d = arith.cmpi sle, %k, %q : i32", "%c = arith.ori %p, %d : i1"])
    return m.text(pv(m, m.softmax(sel(m, c, qk(m, q, k), "-1.0e30")), v))


@form
def six_documents():
    """As many sets as a mask may have; the last condition would need twice as many."""
    lines = [f"%c{i} = arith.cmpi ne, %i{2 * i}, %i{2 * i + 1} : i32" for i in range(7)]
    lines += [f"%a{i} = arith.andi %{'c0' if i == 1 else f'a{i - 1}'}, %c{i} : i1" for i in range(1, 6)] + ["%c = arith.andi %a5, %c6 : i1"]
    return fused([[B, N], [B, NK]] * 7, [OF_QUERY, OF_KEY] * 7, lines)


@form
def stays_order_of_wide():
    """Order of two numbers of 64 bits."""
    return fused([[B, N], [B, NK]], [OF_QUERY, OF_KEY], ["%c = arith.cmpi sge, %i0, %i1 : i64"], "i64")


@form
def stays_wrapping_difference():
    """A difference of positions plus a number of 32 bits may wrap for some pairs only."""
    return fused([[B]], [OF_BATCH], ["%z = arith.constant 0 : i32", "%s = arith.subi %k, %q : i32", "%t = arith.addi %s, %i0 : i32", "%c = arith.cmpi sgt, %t, %z : i32"])


@form
def stays_wrapping_wide_sum():
    return fused([[B]], [OF_BATCH], ["%z = arith.constant 0 : i64", "%s = arith.subi %k, %q : i64", "%t = arith.addi %s, %i0 : i64", "%c = arith.cmpi sgt, %t, %z : i64"], "i64", index="i64")


@form
def stays_unsigned():
    return fused([[B]], [OF_BATCH], ["%c = arith.cmpi uge, %k, %i0 : i32"])


@form
def stays_of_pairs():
    return fused([[N, NK]], [["d2", "d3"]], ["%z = arith.constant 5 : i32", "%c = arith.cmpi slt, %i0, %z : i32"])


@form
def stays_of_query_heads():
    """Keys that differ between the query heads of one key head."""
    return fused([[B, 8, NK]], [["d0", "d1", "d3"]], ["%c = arith.cmpi sge, %q, %i0 : i32"], h=8, heads=8)


@form
def stays_of_too_many():
    """Nine numbers of a batch are more than an op takes."""
    lines = [f"%c{i} = arith.cmpi eq, %k, %i{i} : i32" for i in range(9)]
    lines += [f"%a{i} = arith.ori %{'c0' if i == 1 else f'a{i - 1}'}, %c{i} : i1" for i in range(1, 8)] + ["%c = arith.ori %a7, %c8 : i1"]
    return fused([[B]] * 9, [OF_BATCH] * 9, lines)


@form
def products_of_keys():
    """A product is computed for each key, where it wraps as here."""
    return fused([[B]], [OF_BATCH], ["%s = arith.muli %k, %i0 : i32", "%c = arith.cmpi sle, %s, %q : i32"])


if __name__ == "__main__":
    for name, make in forms.items():
        print("//", (make.__doc__ or name).splitlines()[0])
        print(make().replace("@NAME", "@" + name))
