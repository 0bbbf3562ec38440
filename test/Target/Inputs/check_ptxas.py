"""Compiles attention and its gradients for every row of the schedule tables and reads what ptxas
makes of each kernel.

Fails on a spill and on local memory, but for the bytes of scalars that this file lists by case, on
a C75xx message (wgmma or setmaxnreg given up), where ptxas rejects the PTX, and where a row of the tables, lib/Target/*/Schedules.def, is chosen for none of it.
For sm_90a the PTX must hold the instructions of specialised warpgroups, and the kernel must have
every register that its threads may have; with nvdisasm, the machine code of every loop over tiles
must do its arithmetic while a product is pending. Prints a line for each module, with what its
kernels take.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MASKS = {
    "none": "",
    "causal": "mask(#flashattn.causal)",
    "window": "mask(#flashattn.window<left = 1023, right = 0>)",
    "sinks": "mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, "
             "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)",
}
WINDOWS = {"narrow window": "mask(#flashattn.window<left = 127, right = 0>)",
           "narrow sinks": "mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, "
                           "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)",
           "wide window": "mask(#flashattn.window<left = 16383, right = 0>)"}
# A division of the ends of each query tile.
DIVIDED = {"chunks": "mask(affine_set<(p, k)[nq, nk] : (k - 512 * (p floordiv 512) >= 0, p - k >= 0)>)"}
# What a row's class says of these masks: shape, and most keys of a query.
SHAPES = {"none": ("Full", 0), "causal": ("Triangular", 0), "window": ("Banded", 1024),
          "sinks": ("Banded", 1028), "narrow window": ("Banded", 128), "wide window": ("Banded", 16384),
          "chunks": ("Banded", 512), "sinks kv_len": ("Banded", 1028), "narrow values": ("Full", 0),
          "narrow values causal": ("Triangular", 0)}

# Heads of a group in one tile's rows, in both layouts.
PACKED = (" schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = ELEMENT, pack = 8, "
          "mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, "
          "rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3>>)")
PACKS = {"packed": MASKS["sinks"] + PACKED, "packed bshd": MASKS["sinks"] + " layout(bshd)" + PACKED}

# So few that the keys come in parts.
FEW = {"1 query": "", "7 queries": "mask(#flashattn.causal)"}

# An attn_mask lists its key tiles in a kernel of its own.
ATTN_MASKS = {"attn_mask": MASKS["none"], "attn_mask causal": MASKS["causal"]}
ATTN_MASK = "memref<1x1x?x?xi1>"

# Keys of a batch's own number are not joined.
LENGTHS = {"sinks kv_len": MASKS["sinks"]}

# Packed sequences, of which a thread of a block finds its own.
SEQUENCES = {f"sequences {mask}": clause for mask, clause in MASKS.items()}

# Masks that read a tensor with an element for each key, for which a kernel of its own lists tiles.
ENDS = {"ends": "mask(affine_set<(p, k)[nq, nk, end] : (p - k >= 0, end - p - 1 >= 0)>)"}
ENDS_TYPE = "memref<?x1x?xi32>"

# Values of 128 columns beside more of keys.
VALUES = {"narrow values": MASKS["none"], "narrow values causal": MASKS["causal"]}

# What else the scores may have where gradients are made: clauses in front of the operands, and more
# operands, with their types.
SCORES = {
    "softcap": (MASKS["causal"] + " softcap(50.0)", {}),
    "bias": (MASKS["none"], {"bias": "memref<1x?x?x?xELEMENT>"}),
    "attn_mask": (MASKS["causal"], {"attn_mask": ATTN_MASK}),
    "kv_len": (MASKS["causal"], {"kv_len": "memref<?xi32>"}),
    "deterministic": (MASKS["none"] + " deterministic", {}),
    "deterministic causal": (MASKS["causal"] + " deterministic", {}),
}

# With a number of queries and keys that is known.
FIXED = {f"8192 {mask}": MASKS[mask] for mask in ("causal", "window")}

# Programs whose consumers have one of the sums each.
SPLIT = (" schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, algorithm = split_dk_dv, "
         "mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, "
         "producer_registers = 24, rescale_threshold = 0, l2_head_group = 4>>)")
SPLITS = {"split": (MASKS["none"] + SPLIT, {}), "split causal": (MASKS["causal"] + SPLIT, {}),
          "split sinks": (MASKS["sinks"] + SPLIT, {}),
          "split attn_mask": (MASKS["causal"] + SPLIT, {"attn_mask": ATTN_MASK}),
          "split bias": (MASKS["none"] + SPLIT, {"bias": "memref<1x?x?x?xf32>"}),
          "split kv_len": (MASKS["causal"] + SPLIT, {"kv_len": "memref<?xi32>"}),
          # No registers for slopes and a bias: the sums are apart.
          "softcap and bias": (MASKS["causal"] + " softcap(30.0)", {"bias": "memref<1x?x?x?xf32>"})}

# Where products are asynchronous and copies go by tensor maps.
WARPGROUP_INSTRUCTIONS = (
    "wgmma.mma_async.sync.aligned", "wgmma.wait_group.sync.aligned", "cp.async.bulk.tensor.4d",
    "mbarrier.init", "mbarrier.arrive.expect_tx", "mbarrier.try_wait", "setmaxnreg.inc",
    "setmaxnreg.dec",
)
REGISTER_FILE, MOST_REGISTERS = 65536, 255

# Fewest products of a step that makes dk and dv, and the least part of its arithmetic that stands
# beside a product.
KEY_PRODUCTS, LEAST_BESIDE = 4, 0.4


# An attention, or its gradients: element type, head dimension, name of the mask or of what else the
# scores have, query heads of a key/value head (0: unknown), the chip where it is not that of the test, and which of the two.
Case = collections.namedtuple("Case", "element dim mask group chip op", defaults=(0, None, "attention"))

TABLES = pathlib.Path(__file__).resolve().parents[3] / "lib" / "Target"


def table(machine, kind):
    """The rows of `kind` in a machine's table, as lists of words."""
    text = (TABLES / machine / "Schedules.def").read_text()
    found = re.findall(rf"^{kind}\((.*)\)$", text, re.MULTILINE)
    return [[word.strip() for word in row.split(",")] for row in found]


def row_classes(chip):
    """(kind, test of a case, fields) of every row, best first."""
    bits = {"f16": "16", "bf16": "16", "f32": "32"}
    if chip == "sm_90a":
        for row in table("Hopper", "FORWARD"):
            shape, width, most = row[0], row[1], int(row[2])
            names = ("tile_n", "stages", "stages_bf16", "consumers", "registers", "producer_registers", "l2_head_group",
                     "blocks_per_sm", "q_stages", "q_register_columns", "dynamic_scheduler", "pack", "compact_kv")
            yield (row, lambda case, shape=shape, width=width, most=most:
                   case.mask in SHAPES and SHAPES[case.mask][0] == shape and case.dim <= most
                   and (width == "kAnyWidth" or SHAPES[case.mask][1] <= int(width)),
                   dict(zip(names, row[3:])))
        for row in table("Hopper", "DECODE"):
            names = ("tile_n", "stages", "blocks_per_sm", "small_blocks_per_sm")
            yield (row, lambda case, most=int(row[0]): case.mask in FEW and case.dim <= most,
                   dict(zip(names, row[1:])))
        return
    for row in table("Ampere", "ATTENTION"):
        names = ("tile_m", "tile_n", "warps", "stages")
        yield (row, lambda case, row=row: case.op == "attention" and case.mask not in FEW
               and bits[case.element] == row[0] and case.dim <= int(row[1]),
               dict(zip(names, row[2:])))
    for row in table("Ampere", "GRADIENTS"):
        names = ("tile_m", "tile_n", "warps", "column_warps", "stages", "dq_tile_m", "algorithm")
        fields = dict(zip(names, row[2:]))
        fields["algorithm"] = re.sub(r"(?<!^)([A-Z])", r"_\1", fields["algorithm"]).lower()
        if fields["dq_tile_m"] in ("0", fields["tile_m"]):
            fields["dq_tile_m"] = "none"
        yield (row, lambda case, row=row: case.op == "gradients" and bits[case.element] == row[0]
               and case.dim <= int(row[1]), fields)
    for row in table("Ampere", "DECODE"):
        yield (row, lambda case, row=row: case.mask in FEW and bits[case.element] == row[0]
               and case.dim <= int(row[1]), {"tile_n": row[2]})


def row_of(case, text, classes):
    """The number of the row that a case's schedule is of; None for none."""
    left_out = {"dq_tile_m": "none", "dynamic_scheduler": "0", "compact_kv": "0", "small_blocks_per_sm": "0",
                "q_register_columns": "0"}
    fields = dict(re.findall(r"(\w+) = (\w+)", text))
    # Where sums of rows are products, which take registers, tiles are no wider than this.
    widest = "96" if case.element == "bf16" and fields.get("lazy_rescale") == "1" else None
    for number, (words, includes, row) in enumerate(classes):
        if not includes(case):
            continue
        if widest and "q_register_columns" in row:
            row = {**row, "tile_n": min(row["tile_n"], widest, key=int), "q_register_columns": "0"}
            if words[0] == "Full":
                row.update(l2_head_group="8", q_stages="2", dynamic_scheduler="1")
        if "stages_bf16" in row:
            row = {**row, "stages": row["stages_bf16" if case.element == "bf16" else "stages"]}
            del row["stages_bf16"]
        # Queries have columns in registers where there is room for them.
        for row in (row, {**row, "q_register_columns": "0"}) if "q_register_columns" in row else (row,):
            if all(value == fields.get(name, left_out.get(name, "1")) for name, value in row.items()):
                return number
    return None


STARTS = {"cu_seqlens_q": "memref<?xi32>", "cu_seqlens_k": "memref<?xi32>"}


def module(element, dim, clauses, queries="?", attn_mask=False, lengths=False, group=0, values=0, sequences=False,
           ends=False):
    parameter = ", %lengths: memref<?xi32>" if lengths else ""
    clause = "kv_len(%lengths : memref<?xi32>)" if lengths else ""
    if sequences:
        parameter = "".join(f", %{name}: {kind}" for name, kind in STARTS.items())
        clause = " ".join(f"{name}(%{name} : {kind})" for name, kind in STARTS.items())
    if attn_mask:
        parameter = f", %attn_mask: {ATTN_MASK} {{flashattn.aligned_rows}}"
        clause = f"attn_mask(%attn_mask : {ATTN_MASK})"
    if ends:
        parameter, clause = f", %ends: {ENDS_TYPE}", f"per_key(%ends : {ENDS_TYPE})"
    heads, kv_heads = (2 * group, 2) if group else ("?", "?")
    k, q = f"memref<?x{kv_heads}x?x{dim}x{element}>", f"memref<?x{heads}x{queries}x{dim}x{element}>"
    values = values or dim
    v, o = f"memref<?x{kv_heads}x?x{values}x{element}>", f"memref<?x{heads}x{queries}x{values}x{element}>"
    lse = f"memref<?x{heads}x?xf32>"
    if sequences:
        q, k, v, o, lse = (kind.replace("memref<?", "memref<1") for kind in (q, k, v, o, lse))
    return f"""
func.func @attention(%q: {q}, %k: {k}, %v: {v}, %o: {o}, %lse: {lse}{parameter}) {{
  flashattn.attention {clauses} ins(%q, %k, %v : {q}, {k}, {v}) {clause} outs(%o, %lse : {o}, {lse})
  return
}}
"""


def gradients(element, dim, clauses, group=0, operands={}, count="?"):
    parameters = "".join(f", %{name}: {kind} {{flashattn.aligned_rows}}" if name in ("bias", "attn_mask")
                         else f", %{name}: {kind}" for name, kind in operands.items())
    more = " ".join(f"{name}(%{name} : {kind})" for name, kind in operands.items())
    heads, kv_heads = (2 * group, 2) if group else ("?", "?")
    t, q = (f"memref<?x{h}x{count}x{dim}x{element}>" for h in (kv_heads, heads))
    lse = f"memref<?x{heads}x{count}xf32>"
    if operands == STARTS:
        t, q, lse = (kind.replace("memref<?", "memref<1") for kind in (t, q, lse))
    return f"""
func.func @gradients(%q: {q}, %k: {t}, %v: {t}, %o: {q}, %lse: {lse}, %do: {q}, %dq: {q}, %dk: {t}, %dv: {t}{parameters}) {{
  flashattn.attention_backward {clauses} ins(%q, %k, %v, %o, %lse, %do : {q}, {t}, {t}, {q}, {lse}, {q})
    {more} outs(%dq, %dk, %dv : {q}, {t}, {t})
  return
}}
"""


def hopper_gradients():
    """All masks by the head dimensions of every schedule, and what else scores have by two of them."""
    plain = [Case(element, dim, mask, op="gradients") for element in ("f16", "bf16")
             for dim in (16, 64, 128) for mask in MASKS]
    shaped = [Case(element, dim, name, op="gradients") for element, dim in (("bf16", 64), ("f16", 128))
              for name in SCORES]
    groups = [Case("bf16", dim, mask, 4, op="gradients") for dim in (64, 128) for mask in ("none", "causal")]
    joined = [Case(element, dim, mask, group, op="gradients") for mask in ("narrow window", "narrow sinks")
              for element, dim, group in (("bf16", 64, 8), ("f16", 64, 0), ("bf16", 16, 4))]
    # Padded columns, and wider heads, also where their sums are made apart.
    others = [(80, "causal"), (192, "causal"), *((256, mask) for mask in MASKS),
              *((256, name) for name in ("deterministic", "deterministic causal", "softcap"))]
    splits = [Case("f16", 256, name, op="gradients") for name in SPLITS]
    splits.append(Case("f16", 192, "split causal", op="gradients"))
    fixed = [Case("bf16", dim, mask, 4, op="gradients") for dim in (64, 128) for mask in FIXED]
    fixed += [Case("bf16", dim, mask, op="gradients") for dim in (64, 128) for mask in SEQUENCES]
    return plain + shaped + groups + fixed + joined + splits + [Case("f16", dim, mask, op="gradients") for dim, mask in others]


def cases(chip):
    """Every kernel."""
    if chip == "sm_90a":  # f32 has the schedules of sm_90
        return hopper_gradients() + [Case(element, dim, mask) for element in ("f16", "bf16")
                for dim in (16, 32, 64, 80, 128, 192, 256) for mask in MASKS] + [
                    Case(element, 64, mask) for element in ("f16", "bf16") for mask in PACKS] + [
                        Case("bf16", dim, mask) for dim in (64, 128, 192, 256) for mask in FEW] + [
                            Case("bf16", dim, mask) for dim in (64, 128) for mask in ATTN_MASKS] + [
                                Case("bf16", 64, "wide window"), Case("f16", 128, "chunks"), Case("bf16", 64, "sinks", 8),
                                Case("bf16", 64, "sinks", 4), Case("bf16", 128, "sinks", 4), Case("f16", 64, "narrow window"),
                                Case("bf16", 128, "sinks", 8), Case("bf16", 256, "sinks", 4), Case("f16", 256, "window", 2),
                                Case("bf16", 128, "wide window", 8), Case("f16", 128, "wide window", 4)] + [
                                    Case(element, dim, mask) for element in ("f16", "bf16") for dim in (64, 128)
                                    for mask in [*SEQUENCES, *ENDS]] + [
                                    Case("bf16", dim, "sinks kv_len", group) for dim, group in ((64, 8), (64, 4), (128, 4))] + [
                                        Case(element, 192, mask) for element in ("f16", "bf16") for mask in VALUES]
    # All masks share the loops' code; one head dimension sees every one of them.
    few = [("bf16", 64), ("bf16", 128), ("bf16", 256), ("f32", 16), ("f32", 32), ("f32", 128)]
    return [Case(element, dim, mask) for element in ("f16", "bf16", "f32")
            for dim in (16, 32, 64, 128, 256) for mask in (MASKS if dim == 64 else ["causal"])] + [
                Case(element, dim, mask) for element, dim in few for mask in FEW] + [
                    Case("bf16", dim, mask) for dim in (64, 128) for mask in ATTN_MASKS] + [
                        Case("f16", 128, "chunks"), Case("f32", 256, "causal", chip="sm_86")] + [  # with less shared memory
                            Case(element, dim, mask, group, chip, "gradients") for element, dim, mask, group, chip in
                            [("bf16", 64, mask, 0, None) for mask in MASKS] +
                            [("f16", dim, "causal", 0, None) for dim in (16, 64, 80, 128, 192, 256)] +
                            [("f32", dim, "causal", 0, None) for dim in (32, 64, 128, 256)] +
                            [("bf16", 128, "sinks", 4, None), ("f32", 256, "causal", 0, "sm_86")]]


def kernel_ptx(ir):
    """The PTX text of every gpu.binary, out of its quoted attribute."""
    texts = re.findall(r'"(//(?:[^"\\]|\\.)*)"', ir)
    return [re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), text).rstrip("\0")
            for text in texts]


# Bytes of scalars that ptxas may keep in memory in kernels of gradients, none of them a tile's: those
# with masks on warpgroups of D = 64 take five registers more than there are; without warpgroups a
# thread has all of its registers in use, and masks and groups of heads some more.
FEW_BYTES = {"sm_90a": 16}
FEW_BYTES_ELSEWHERE = 44
# The same of programs over key tiles without warp specialization that add up the gradients of queries: nearly all
# is read between their loops; of masks with several intervals 8 words in a step.
ADDING_BYTES = 244
# Forward programs without warpgroups: what a branch for bases far from 0 keeps, and of a window where the
# keys that any query sees begin.
COPIED = {"causal": 8, "window": 20}
# Where consumers share a program and hold both sums, scores and weights, while a tile of these is
# loaded: of an attn_mask in the tiles that it cuts alone, and of a batch's own keys where they end.
LOADED = {"bias": 88, "attn_mask": 76, "kv_len": 36}
# With packed sequences, consumers that share a program keep the ends of their sequence, which they read in a step only
# to clear rows that do not exist, and the producer and spare warps what they read once for each group.
SEQUENCE_BYTES = {"sequences none": 204, "sequences causal": 192, "sequences window": 192, "sequences sinks": 404}
# Where blocks claim groups, of masks with several intervals: what the one thread that brings tiles keeps
# of a group from its preparation on, and nothing in a loop over tiles.
CLAIMED = {"sinks": 36, "chunks": 32, "sinks kv_len": 28, "sequences sinks": 32}


def check_report(report, few=0):
    """What is wrong by the report of ptxas -v, spills of more than `few` bytes among it."""
    spilled = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", report)
    if not spilled:
        return ["no kernel"]
    frame, stores, loads = map(int, spilled.groups())
    problems = [f"{n} bytes {what}" for n, what in
                ((frame, "stack frame"), (stores, "spill stores"), (loads, "spill loads"))
                if n > (0 if max(stores, loads) == 0 or max(stores, loads) > few else 4 + few)]
    return problems + re.findall(r"C75\d\d.*", report)


def check_instructions(ptx):
    """What the PTX of specialised warpgroups lacks."""
    return [f"no {name}" for name in WARPGROUP_INSTRUCTIONS if name not in ptx]


def check_warpgroups(ptx, registers):
    """What is wrong with the PTX of specialised warpgroups, compiled to so many registers."""
    problems = check_instructions(ptx)
    threads = int(re.search(r"\.maxntid (\d+)", ptx).group(1))
    # With the number of blocks a kernel takes all registers that those may have: without it
    # ptxas ignores setmaxnreg.
    blocks = re.search(r"\.minnctapersm (\d+)", ptx)
    if not blocks:
        return problems + ["no .minnctapersm"]
    blocks = int(blocks.group(1))
    most = min(REGISTER_FILE // (threads * blocks), MOST_REGISTERS) // 8 * 8
    if registers != most:
        problems.append(f"expected {most} registers for {blocks} blocks of {threads} threads")
    return problems


def key_loops(sass):
    """The innermost loops with products and exponentials, as lists of instructions."""
    labels, instructions = {}, []
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L\w+):", line):
            labels[label.group(1)] = len(instructions)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            instructions.append(instruction.group(1))
    loops = []
    for end, instruction in enumerate(instructions):
        target = re.search(r"\bBRA\b.*`\((\.L\w+)\)", instruction)
        begin = labels.get(target.group(1), end + 1) if target else end + 1
        body = "\n".join(instructions[begin:end + 1])
        # What waits for a barrier again stands behind the last EXIT and branches back from there.
        if "HGMMA" in body and "MUFU.EX2" in body and "EXIT" not in body:
            loops.append((begin, end))
    return [instructions[begin:end + 1] for begin, end in loops
            if not any((b, e) != (begin, end) and begin <= b and e <= end for b, e in loops)]


def check_overlap(sass, made=1):
    """A key loop issues two products and waits for one: before it waits for the other come the
    exponentials. ptxas moves a wait up as far as its block reaches. Weights that are judged late are
    `made` twice, the second time where the first did not hold."""
    loops = key_loops(sass)
    problems = [] if loops else ["no key loop"]
    for loop in loops:
        waits = [i for i, text in enumerate(loop) if "WARPGROUP.DEPBAR" in text]
        exponentials = [i for i, text in enumerate(loop) if "MUFU.EX2" in text]
        beside = [i for i in exponentials if len(waits) > 1 and waits[0] < i < waits[1]]
        if 2 * made * len(beside) <= len(exponentials):
            problems.append(f"a key loop with {len(beside)} of {len(exponentials)} exponentials "
                            "beside a product")
    return problems


def check_pending(sass):
    """What a loop of gradients waits for first leaves another product pending, but where dv alone
    is made, of two. And of a loop that makes dk and dv a good part of the
    arithmetic is done beside one. A product that is waited for where it is issued, as ptxas makes of those it serialises, has
    none beside it."""
    loops = key_loops(sass)
    problems = [] if loops else ["no loop over tiles"]
    for loop in loops:
        issued = sum("HGMMA" in text and "gsb0" in text for text in loop)
        pending, left, beside, apart = 0, None, 0, 0
        for text in loop:
            if "HGMMA" in text and "gsb0" in text:
                pending += 1
            elif wait := re.search(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d)", text):
                pending = min(pending, int(wait.group(1)))
                left = pending if left is None else left
            elif re.match(r"(@!?U?P\d )?(FADD|FMUL|FFMA|MUFU|F2FP)\b", text):
                beside, apart = beside + (pending > 0), apart + (pending == 0)
        if issued > 2 and not left:
            problems.append(f"a loop of {issued} products whose first wait leaves none pending")
        if issued >= KEY_PRODUCTS and beside < LEAST_BESIDE * (beside + apart):
            problems.append(f"a loop with {beside} of {beside + apart} instructions beside a product")
    return problems


def check_kernel(ptxas, chip, nvdisasm, ptx, overlap, few=0):
    """The registers that a kernel takes, and what is wrong with it. `overlap`, of a kernel with
    products, says what is wrong with its machine code. Without ptxas, what the PTX says of itself."""
    if not ptxas:
        return 0, check_instructions(ptx) if chip == "sm_90a" and overlap else []
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = os.path.join(folder, "kernel.ptx"), os.path.join(folder, "kernel.cubin")
        with open(source, "w") as file:
            file.write(ptx)
        done = subprocess.run([ptxas, "-v", f"-arch={chip}", "-o", cubin, source],
                              capture_output=True, text=True)
        report = done.stdout + done.stderr
        used = re.search(r"Used (\d+) registers", report)
        if done.returncode != 0 or not used:
            return 0, [report]
        problems = check_report(report, ADDING_BYTES if "atom.global.add.f32" in ptx else few)
        if chip == "sm_90a" and overlap:
            problems += check_warpgroups(ptx, int(used.group(1)))
        if nvdisasm and overlap:
            problems += overlap(subprocess.run([nvdisasm, cubin], capture_output=True,
                                               text=True, check=True).stdout)
    return int(used.group(1)), problems


def check_roles(case, chip, schedule, found):
    """What is wrong with the schedule of gradients, of whose kernels `found` have products."""
    if chip != "sm_90a":
        return []
    if "hopper" not in schedule:
        return [f"a schedule without warp specialization: {schedule}"]
    # Where warpgroups share the keys of a program, it makes dq too, unless each has a sum; dk and dv may be apart.
    shares = "algorithm = accumulate_dq" in schedule
    expected = 1 if shares else 3 if "algorithm = separate_dk_dv" in schedule else 2
    return [] if found == expected else [f"expected {expected} kernels with products but got {found}"]


def check(ptxas, chip, nvdisasm, case, compiles=True):
    """The line that is printed of one attention, whether all is well, and the schedule chosen. Unless it `compiles`,
    only the schedule is looked at."""
    chip = case.chip or chip
    if case.op == "gradients":
        sequences = {name: (clause, STARTS) for name, clause in SEQUENCES.items()}
        alone = {name: (clause, {}) for name, clause in {**MASKS, **WINDOWS, **FIXED}.items()}
        clauses, operands = {**alone, **SCORES, **SPLITS, **sequences}[case.mask]
        count = case.mask.split()[0] if case.mask in FIXED else "?"
        operands = {name: kind.replace("ELEMENT", case.element) for name, kind in operands.items()}
        text = gradients(case.element, case.dim, clauses, case.group, operands, count)
    else:
        masks = {**MASKS, **WINDOWS, **DIVIDED, **PACKS, **FEW, **ATTN_MASKS, **LENGTHS, **VALUES, **SEQUENCES, **ENDS}
        clauses = masks[case.mask].replace("ELEMENT", case.element)
        queries = case.mask.split()[0] if case.mask in FEW else "?"
        text = module(case.element, case.dim, clauses, queries, case.mask in ATTN_MASKS,
                      case.mask in LENGTHS, case.group,
                      128 if case.mask in VALUES else 0, case.mask in SEQUENCES, case.mask in ENDS)
    name = f"{case.element} D={case.dim} {case.mask}" + (f" x{case.group}" if case.group else "")
    if case.op != "attention":
        name = f"{case.op} {name}"
    run = lambda step: subprocess.run(["flash-opt", f"-{step}=chip={chip}"], input=text,  # noqa: E731
                                      capture_output=True, text=True)
    chosen = run("flashattn-select-schedule")
    schedule = re.search(r"schedule\(<(.*)>\) ins", chosen.stdout)
    if schedule and not compiles:
        return f"{name}: a schedule ok", True, schedule.group(1)
    done = run("flashattn-to-nvvm")
    if done.returncode != 0 or not schedule:
        return f"{name}: FAIL\n{done.stderr}", False, ""
    texts, problems = kernel_ptx(done.stdout), []
    if case.op == "gradients":
        with_products = [ptx for ptx in texts if "wgmma" in ptx]
        problems += check_roles(case, chip, schedule.group(1), len(with_products))
        overlap = check_pending
    else:
        with_products = [max(texts, key=len)]  # others merge parts, or list key tiles
        made = 2 if "lazy_rescale = 1" in schedule.group(1) else 1
        overlap = lambda sass: check_overlap(sass, made)  # noqa: E731
    few = 0
    if case.op == "gradients":
        few = FEW_BYTES.get(chip, FEW_BYTES_ELSEWHERE)
        few = max(few, {**LOADED, **SEQUENCE_BYTES}.get(case.mask, 0) if chip == "sm_90a" else 0)
    elif "dynamic_scheduler" in schedule.group(1):
        few = CLAIMED.get(case.mask, 0)
    elif "hopper" not in schedule.group(1):
        few = COPIED.get(case.mask, 0)
    # Kernels that compute large rows again have no warpgroups: with D = 256 dq takes all registers of a thread.
    is_again = lambda ptx: case.op == "gradients" and case.dim == 256 and "mma.sync" in ptx  # noqa: E731
    allowed = [max(few, FEW_BYTES_ELSEWHERE) if is_again(ptx) else few for ptx in texts]
    checked = [check_kernel(ptxas, chip, nvdisasm, ptx, overlap if ptx in with_products else None, few)
               for ptx, few in zip(texts, allowed)]
    problems += [problem for _, found in checked for problem in found]
    verdict = "FAIL " + "; ".join(problems) if problems else "ok"
    registers = " and ".join(str(used) for used, _ in checked)
    return f"{name}: {registers} registers {verdict}", not problems, schedule.group(1)


def check_rows(chip, op, chosen):
    """Lines for rows of `op` that no case has, and for schedules of no row. Pinned ones and those for
    tensors by key are of none, an attn_mask may fall to a row for other masks, and gradients have no
    rows with warp specialization."""
    if chip == "sm_90a":
        if op == "gradients":
            return []
        chosen = [(case, schedule) for case, schedule in chosen if case.op == "attention"]
    classes = list(row_classes(chip))
    found, lines = set(), []
    for case, schedule in chosen:
        number = row_of(case, schedule, classes)
        if number is not None:
            found.add(number)
        elif case.mask not in {**PACKS, **ATTN_MASKS, **SEQUENCES, **ENDS}:
            lines.append(f"{case}: FAIL the schedule is of no row: {schedule}")
    return lines + [f"row {', '.join(row)}: FAIL chosen for no case"
                    for number, (row, _, _) in enumerate(classes) if number not in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ptxas")
    parser.add_argument("chip")
    parser.add_argument("nvdisasm", nargs="?")
    parser.add_argument("--op", choices=("attention", "gradients"), help="one of the two, on sm_90a; both by default")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth case; rows may then be chosen for none")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="compile only each Nth case, unless "
                        "FLASHATTN_TEST_GRID is all, and choose the schedules of the others")
    parser.add_argument("--no-ptxas", action="store_true", help="see what the compiler alone makes")
    args = parser.parse_args()
    ptxas = None if args.no_ptxas else args.ptxas
    every = [case for case in cases(args.chip) if args.op in (None, case.op)][::args.every]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sample = 1 if os.environ.get("FLASHATTN_TEST_GRID") == "all" else args.sample
        results = list(pool.map(lambda numbered: check(ptxas, args.chip, args.nvdisasm, numbered[1],
                                                       compiles=numbered[0] % sample == 0), enumerate(every)))
    chosen = [(case, schedule) for case, (_, _, schedule) in zip(every, results)]
    unmatched = check_rows(args.chip, args.op, chosen) if args.every == 1 else []
    for line in [line for line, _, _ in results] + unmatched:
        print(line)
    failures = sum(not well for _, well, _ in results) + len(unmatched)
    print(f"machine code {'checked' if args.nvdisasm else 'not checked'}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
