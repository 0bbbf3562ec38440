"""Compares the tiles that kernels visit under masks that read tensors with the least number that is possible.

    visited_tiles.py FOLDER

Each kernel runs on a model, whose statistics count its products. From them follows the number of visited pairs of
query and key tiles. The least number, of pairs of tiles that hold a visible pair, is counted pair by pair. Fails if a
kernel visits more or fewer.
"""

import os
import random
import re
import struct
import subprocess
import sys

LENGTH = 312  # queries and keys: 4 tiles of 64 and a shorter one
DEPTH = 64


def documents(*bounds):
    """The first position and the end of the document of each position."""
    found = [(a, b) for a, b in zip(bounds, bounds[1:]) for _ in range(a, b)]
    assert len(found) == LENGTH
    return found


# Two heads or, for values per sequence, two sequences.
DOCUMENTS = [documents(0, 100, 130, 250, LENGTH), documents(0, 64, 128, 290, 291, LENGTH)]
STARTS = [[start for start, _ in head] for head in DOCUMENTS]
ENDS = [[end for _, end in head] for head in DOCUMENTS]
PREFIXES = [70, 200]
# In no order, within 50 of a number for each tile of 64.
RANDOM = random.Random(0)
UNSORTED = [
    [RANDOM.randrange(tiles[i // 64], tiles[i // 64] + 50) for i in range(LENGTH)]
    for tiles in ((200, 10, 140, 270, 70), (310, 0, 0, 200, 130))
]

# Name: clause of the values, values, sets, and whether query p sees key k.
MASKS = {
    "documents by starts": (
        "per_query", STARTS, ["p - k >= 0, k - x >= 0"], lambda x, p, k: x[p] <= k <= p),
    "documents by ends": (
        "per_key", ENDS, ["p - k >= 0, x - 1 - p >= 0"], lambda x, p, k: k <= p < x[k]),
    "a prefix": (
        "per_sequence", PREFIXES, ["p - k >= 0", "x - 1 - k >= 0"], lambda x, p, k: k <= p or k < x),
    "keys from any start on": (
        "per_query", UNSORTED, ["k - x >= 0"], lambda x, p, k: k >= x[p]),
    "queries before any end": (
        "per_key", UNSORTED, ["x - 1 - p >= 0"], lambda x, p, k: p < x[k]),
}  # fmt: skip


class Kernel:
    """A kind of kernel. `products` are those of a visited tile, for each kernel that has any."""

    def __init__(self, chip, backward, rows, columns, products, hopper=None, consumers=1):
        self.chip, self.backward, self.rows, self.columns = chip, backward, rows, columns
        self.products, self.hopper, self.consumers = products, hopper, consumers

    def get_schedule(self):
        adds = self.rows == 128 and self.backward
        text = "tile_m = %d, tile_n = %d, stages = 2, dot_type = f16, " % (self.rows, self.columns)
        if self.backward:
            text += "algorithm = %s, " % ("accumulate_dq" if adds else "separate_dq")
        if not self.hopper:
            return text + "mapping = mma_sync<warps = 4>"
        return text + (
            "mapping = hopper<consumers = %d, cooperative = %d, along = query_tile, registers = %s, "
            "rescale_threshold = 0, l2_head_group = 1%s>" % ((self.consumers, adds) + self.hopper)
        )

    def count_visits(self, statistics):
        """The tiles that each kernel with products visits."""
        if self.hopper:
            # Each thread of a consumer runs one op for a product. In the backward pass, consumers share a tile.
            op, runs = "hopper.wgmma", 128 * (self.consumers if self.backward else 1)
        else:
            # Each thread of a warp runs one op for 16 rows, 8 columns and a depth of 16.
            op, runs = "nvvm.mma.sync", 32 * self.rows * self.columns * DEPTH // (16 * 8 * 16)
        counts = re.findall(r"^  %s +runs by threads of each warpgroup:([ 0-9]+)" % re.escape(op), statistics, re.M)
        counts = [sum(map(int, count.split())) for count in counts]
        assert len(counts) == len(self.products), statistics
        for count, products in zip(counts, self.products):
            assert count % (runs * products) == 0, (count, runs, products)
        return [count // (runs * products) for count, products in zip(counts, self.products)]


# The products of a tile: two forward; four for dk and dv; three for dq; or five for all gradients.
KERNELS = {
    "forward, sm_90a": Kernel("sm_90a", False, 64, 64, [2], ("160, producer_registers = 32", "")),
    "forward, sm_90a, two programs in a block": Kernel(
        "sm_90a", False, 64, 64, [2], ("160, producer_registers = 32", ""), consumers=2),
    "forward, sm_80": Kernel("sm_80", False, 64, 64, [2]),
    "backward, sm_90a": Kernel("sm_90a", True, 64, 64, [4, 3], ("240, producer_registers = 24", "")),
    "backward, sm_90a, dq with dk and dv": Kernel(
        "sm_90a", True, 128, 128, [5], ("240, producer_registers = 24", ", dq_reduce_stages = 2"), consumers=2),
    "backward, sm_80": Kernel("sm_80", True, 64, 64, [4, 3]),
}  # fmt: skip


def write_values(path, shape, values):
    """Writes a NumPy file of i32."""
    numbers = [n for row in values for n in row] if isinstance(values[0], list) else values
    header = "{'descr': '<i4', 'fortran_order': False, 'shape': %s, }" % repr(tuple(shape))
    header = header.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack("<%di" % len(numbers), *numbers))


def get_module(kernel, clause, shape, sets):
    batches, heads = (2, 1) if clause == "per_sequence" else (1, 2)
    t = "tensor<%dx%dx%dx%dxf16>" % (batches, heads, LENGTH, DEPTH)
    lse = "tensor<%dx%dx%dxf32>" % (batches, heads, LENGTH)
    x = "tensor<%sxi32>" % "x".join(map(str, shape))
    union = ", ".join('set<"(p, k)[nq, nk, x] : (%s)">' % constraints for constraints in sets)
    mask = "mask(any_of<[%s]>) schedule(<%s>)" % (union, kernel.get_schedule())
    if not kernel.backward:
        return f"""func.func @f(%q: {t}, %k: {t}, %v: {t}, %x: {x}) -> {t} {{
  %o = flashattn.attention {mask}
      ins(%q, %k, %v : {t}, {t}, {t}) {clause}(%x : {x}) outs(%q : {t}) -> {t}
  return %o : {t}
}}
"""
    return f"""func.func @f(%q: {t}, %k: {t}, %v: {t}, %o: {t}, %l: {lse}, %d: {t}, %x: {x}) -> ({t}, {t}, {t}) {{
  %dq, %dk, %dv = flashattn.attention_backward {mask}
      ins(%q, %k, %v, %o, %l, %d : {t}, {t}, {t}, {t}, {lse}, {t}) {clause}(%x : {x})
      outs(%q, %q, %q : {t}, {t}, {t}) -> {t}, {t}, {t}
  return %dq, %dk, %dv : {t}, {t}, {t}
}}
"""


def count_least(visible, values, rows, columns, together):
    """The number of visits if each program visits the tiles with a visible pair of `together` programs."""
    programs, count = -(-LENGTH // rows), 0
    for x in values:
        pairs = ((p, k) for p in range(LENGTH) for k in range(LENGTH) if visible(x, p, k))
        for block, _ in {(p // (rows * together), k // columns) for p, k in pairs}:
            count += min(together, programs - block * together)
    return count


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    failed = False
    for name, kernel in KERNELS.items():
        for mask, (clause, values, sets, visible) in MASKS.items():
            shape = [2] if clause == "per_sequence" else [1, 2, LENGTH]
            path = os.path.join(folder, "module.mlir")
            with open(path, "w") as file:
                file.write(get_module(kernel, clause, shape, sets))
            write_values(os.path.join(folder, "values.npy"), shape, values)
            inputs = ["--input=random"] * (6 if kernel.backward else 3) + ["--input=@" + folder + "/values.npy"]
            done = subprocess.run(
                ["flash-run", path, "--device=model:" + kernel.chip, "--model-statistics", "--verify"] + inputs,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)  # fmt: skip
            if done.returncode:
                sys.exit("%s, %s:\n%s%s" % (name, mask, done.stdout, done.stderr))
            # Tiles of rows are tiles of keys in programs for dk and dv, but these tiles are square. The programs of a
            # block that visit tiles from a list have one list, of the tiles that any of them sees.
            together = kernel.consumers if clause == "per_key" and not kernel.backward else 1
            least = count_least(visible, values, kernel.rows, kernel.columns, together)
            note = ""
            if together > 1:
                alone = count_least(visible, values, kernel.rows, kernel.columns, 1)
                note = f" for {together} programs with one list, {alone} for one"
            visits = kernel.count_visits(done.stdout)
            tiles = 2 * -(-LENGTH // kernel.rows) * -(-LENGTH // kernel.columns)
            counts = " and ".join(map(str, visits))
            print(f"{name}: {mask}: {counts} of {tiles} tiles, least number {least}{note}")
            failed |= any(visit != least for visit in visits)
    sys.exit(failed)


main()
