"""Writes q.npy, k.npy and v.npy for special-values.mlir, lengths.npy for CPU/features.mlir, nan.npy for
FakeDriver/tune-hopper.mlir, mask.npy, constant.npy and parts-mask.npy for large-scores.mlir, rows-*.npy for
counted-rows.mlir, and parts.npy, logs.npy, far-logs.npy and rests.npy for merge.mlir.

usage: make_special.py FOLDER

[1, 1, 6, 16], f32. Queries are positive; query 1 holds a NaN, and key 3 a +Inf, so that its score is +Inf
for every query that sees it. The lengths are [3], i32: one below 0, one far above any number of keys.
nan.npy is [1, 1, 64, 256], f16, NaN throughout.
mask.npy is [1, 1, 40, 150], f32: the lowest number hides the first 60 keys and, in some rows, all of them;
in others -1e9 does, or -inf hides every second key. constant.npy, of the same shape, is -1e6 throughout.
parts-mask.npy is [1, 2, 1, 4096], f32: head 0 has -1e9 for 2088 keys and -2e9 for the others, head 1 the lowest number.
rows-LENGTH-BEGIN-END.npy are f16, [1, 2, LENGTH, 64] or of queries [1, 4, LENGTH, 64], NaN but in rows
[BEGIN, END). parts.npy and logs.npy are [3, 1, 2, 4, 16] and [3, 1, 2, 4], f32: what has a log-sum-exp of
-Inf holds NaN in part 0 and +Inf in part 2. far-logs.npy and rests.npy have the shape of logs.npy: the logs that are
not -Inf are -1e9, and the rests are the logs; NaN where these are -Inf.
"""

import random
import struct
import sys


def write(path, values, shape=(1, 1, 6, 16), kind="f"):
    size = struct.calcsize(kind)
    header = f"{{'descr': '<{'f' if kind == 'e' else kind}{size}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}{kind}", *values))


def write_rows(folder, heads, length, begin, end, columns=64):
    """The names tell lengths apart: no length is that of queries and of keys."""
    row = lambda i: [random.gauss(0, 1) if begin <= i < end else float("nan") for _ in range(columns)]
    values = [value for _ in range(heads) for i in range(length) for value in row(i)]
    write(f"{folder}/rows-{length}-{begin}-{end}.npy", values, (1, heads, length, columns), "e")


def write_parts(folder):
    parts, logs = [], []
    for part, empty in ((0, float("nan")), (1, 0), (2, float("inf"))):
        for row in range(8):
            # Each row has a part at least but the last.
            is_empty = row == 7 or row % 3 == part
            logs.append(-float("inf") if is_empty else random.gauss(0, 3))
            parts += [empty if is_empty else random.gauss(0, 1) for _ in range(16)]
    write(f"{folder}/parts.npy", parts, (3, 1, 2, 4, 16))
    write(f"{folder}/logs.npy", logs, (3, 1, 2, 4))
    write(f"{folder}/far-logs.npy", [max(-1e9, log) if log > -float("inf") else log for log in logs], (3, 1, 2, 4))
    write(f"{folder}/rests.npy", [float("nan") if log == -float("inf") else log for log in logs], (3, 1, 2, 4))


def main(folder):
    random.seed(1)
    q, k, v = ([[random.uniform(0.5, 1.5) for _ in range(16)] for _ in range(6)] for _ in range(3))
    q[1][7] = float("nan")
    k[3][2] = float("inf")
    for name, rows in (("q", q), ("k", k), ("v", v)):
        write(f"{folder}/{name}.npy", [value for row in rows for value in row])
    write(f"{folder}/lengths.npy", [-5, 40, 1000], (3,), "i")
    lowest = -3.4028234663852886e38
    mask = [[lowest] * 60 + [0.0] * 90 for _ in range(40)]
    mask[3:9] = [[lowest] * 150] * 6
    mask[20] = [-1e9] * 150
    mask[21] = [float("-inf"), 0.0] * 75
    mask[39] = [0.0] * 70 + [-1e10] * 80
    write(f"{folder}/mask.npy", [value for row in mask for value in row], (1, 1, 40, 150))
    write(f"{folder}/constant.npy", [-1e6] * 6000, (1, 1, 40, 150))
    parts_mask = [-1e9] * 2088 + [-2e9] * 2008 + [lowest] * 4096
    write(f"{folder}/parts-mask.npy", parts_mask, (1, 2, 1, 4096))
    write(f"{folder}/nan.npy", [float("nan")] * (64 * 256), (1, 1, 64, 256), "e")
    for heads, length, begin, end in (
        (2, 90, 0, 20),
        (2, 200, 42, 54),
        (2, 100, 0, 33),
        (2, 60, 0, 55),
        (4, 95, 40, 95),
        (4, 150, 50, 150),
        (4, 35, 0, 0),
    ):
        write_rows(folder, heads, length, begin, end)
    write_rows(folder, 1, 70, 40, 70, columns=192)
    write_parts(folder)


main(sys.argv[1])
