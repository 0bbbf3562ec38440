"""The faults that check_faults.py plants, one a row.

A row is (what is wrong, program and chip, edits, what the model must say). The kernels of the program are
edited as `flashattn-outline-kernels` leaves them. An edit is (op, what), with the op by its name and its
number among those of that name:

    DROP                      the op is gone
    ("sub", pattern, text)    its line, changed
    ("before", op)            it goes in front of another op, with the number of its barrier
    ("add", text)             a line in front of it

What the model must say is a pattern. Where only numbers are wrong it is NUMBERS: the outputs differ from
those of the kernels as they are.
"""

DROP = ("drop",)
NUMBERS = "output 0: .*FAIL"

F9, G9, F8 = ("forward", "sm_90a"), ("shared", "sm_90a"), ("short", "sm_80")
G8 = ("gradients", "sm_80")
S9 = ("split", "sm_90a")
S9_AHEAD = ("split-ahead", "sm_90a")
L9 = ("late", "sm_90a")
A9 = ("added", "sm_90a")
C9 = ("cleared", "sm_90a")
P9, P9_WIDE = ("f8", "sm_90a"), ("f8-wide", "sm_90a")

DEADLOCK = r"deadlock: .*\n.* waits for parity . of barrier \d+, whose phase \d+ lacks"
UNREADY = r"(race|use before any write): .* at hopper\.wgmma"
IN_FLIGHT = r"missing wait for a product: expected hopper\.wgmma_wait before the use of its result"
FENCE = r"missing fence: .* at hopper\.store_tile .* by "
STORE_RACE = r"(race|missing fence): .* written by thread .* at hopper\.store_tile .* at hopper\.tma_store"
OVERWRITTEN = (r"race: .* read by a product of warpgroup \d at hopper\.wgmma .*, and written by a copy "
               r".* at hopper\.tma_load")
BYTES = r"byte count mismatch: expected "

MADE_AGAIN = (r"race: .* read by thread .* at hopper\.read_tile .*, and written by a copy .* at hopper\.tma_load|"
              r"race: .* written by a copy .* at hopper\.tma_load .*, and read by thread .* at hopper\.read_tile")


def released_by_one(barriers, arrivals):
    """Edits by which one thread of each group, and not one of each warp, makes places empty."""
    return ([(f"hopper.barrier_init#{i}", ("sub", ", 12", ", 3")) for i in barriers] +
            [(f"hopper.barrier_arrive#{i}", ("sub", r" if %\w+", " if %SIGNALS")) for i in arrivals])


# K and V alternate where consumers pass tiles by; where they do not V is a step behind.
ONE_RELEASES_K = released_by_one((6, 7, 8), (0, 2, 4, 6, 8))
ONE_RELEASES_V = released_by_one((12, 13, 14), (1, 3, 5, 7, 9))

# Probabilities in the order of rows, as products of 16 bits have them, and not in that of accumulators.
UNORDERED = ", ".join(str(i + j) for i in range(0, 32, 8) for j in (0, 1, 4, 5, 2, 3, 6, 7))

FAULTS = [
    # Products of f8, and the transposition of V.
    ("f8: probabilities are in another order than V", P9,
     [("hopper.wgmma#2", ("sub", r"(.*)hopper\.wgmma (%\w+), ",
                          rf"%other = vector.shuffle \2, \2 [{UNORDERED}] : vector<32xf8E4M3FN>, "
                          r"vector<32xf8E4M3FN>\n\1hopper.wgmma %other, "))], NUMBERS),
    ("f8: no fence behind the transposition", P9, [("hopper.fence_async_shared#0", DROP)],
     r"missing fence: .* at hopper\.wgmma"),
    ("f8: V is transposed before it is loaded", P9, [("hopper.barrier_wait#0", DROP)],
     r"(race|use before any write): "),
    ("f8: V is transposed while products read the last tile", P9, [("hopper.barrier_wait#1", DROP)],
     r"(race: |expected at most \d arrivals)"),
    ("f8: the sums of a tile are lost", P9,
     [("math.fma#4", ("sub", r"math\.fma (%\w+), (%\w+), \S+ ", r"arith.mulf \1, \2 "))], NUMBERS),
    ("f8: the sums of a tile are added before the product is over", P9,
     [("hopper.wgmma_wait#2", ("sub", " : ", " {pending = 1 : i64} : "))], IN_FLIGHT),
    ("f8: V is released before the product of its last columns", P9_WIDE,
     [("hopper.barrier_arrive#2", ("before", "hopper.wgmma#3"))], r"(race|missing fence): "),
    ("f8: columns are added before their product is over", P9_WIDE,
     [("hopper.wgmma_wait#3", ("sub", " : ", " {pending = 1 : i64} : "))], IN_FLIGHT),
    # Barriers of rings.
    ("q: the wait for it has the wrong parity", F9,
     [("hopper.barrier_wait#2", ("sub", "%c0_i32", "%c1_i32"))], UNREADY + "|" + DEADLOCK),
    ("k: the first wait for it has the wrong parity", F9,
     [("hopper.barrier_wait#5", ("sub", "%c0_i32", "%c1_i32"))], UNREADY + "|" + DEADLOCK),
    ("k: the producer's wait has a parity that never changes", F9,
     [("hopper.barrier_wait#0", ("sub", r"\], %\w+", "], %c0_i32"))], DEADLOCK),
    ("q: no wait for it", F9, [("hopper.barrier_wait#2", DROP)], UNREADY),
    ("k: no wait for it in the loop", F9, [("hopper.barrier_wait#6", DROP)], UNREADY),
    ("v: no wait for it in the loop", F9, [("hopper.barrier_wait#7", DROP)], UNREADY),
    ("k: the producer does not wait for an empty place", F9, [("hopper.barrier_wait#0", DROP)],
     r"(race: .* by a copy .* at hopper\.tma_load|at most 1 arrivals in a phase)"),
    ("k: fewer bytes expected than come", F9,
     [("hopper.barrier_expect#3", ("sub", "16384", "8192"))], BYTES + "|" + UNREADY),
    ("k: more bytes expected than come", F9,
     [("hopper.barrier_expect#3", ("sub", "16384", "32768"))],
     r"deadlock: .*\n(.*\n)*.* lacks 0 of 1 arrivals and 16384 bytes"),
    ("k: one arrival too few", F9,
     [("hopper.barrier_init#6", ("sub", ", 3", ", 4"))], DEADLOCK),
    ("k: one arrival more than expected", F9,
     [("hopper.barrier_init#6", ("sub", ", 3", ", 2"))],
     r"(expected at most 2 arrivals in a phase|race: .* at hopper\.tma_load)"),
    ("k: no release in the loop", F9, [("hopper.barrier_arrive#3", DROP)], DEADLOCK),
    ("k: released before the product that reads it has ended", F9,
     [("hopper.barrier_arrive#2", ("before", "hopper.wgmma_wait#0"))], OVERWRITTEN),
    ("d_o: released before the product that reads it has ended", G9,
     [("hopper.barrier_arrive#1", ("before", "hopper.wgmma_wait#4"))], OVERWRITTEN),
    ("v: released before the product that reads it has begun", F9,
     [("hopper.barrier_arrive#4", ("before", "hopper.wgmma_wait#1"))], OVERWRITTEN),
    ("k: all threads release it", F9, [("hopper.barrier_arrive#3", ("sub", r" if %\w+", ""))],
     r"expected at most \d arrivals in a phase of barrier|" + DEADLOCK),
    ("k and v share a barrier", F9,
     [("hopper.barrier_expect#4", ("sub", r"\[%\w+\]", "[%SHARED]")),
      ("hopper.tma_load#4", ("sub", r"(%view\w*)\[%\w+\]", r"\1[%SHARED]"))],
     r"(deadlock|byte count mismatch|race|expected at most 1 arrivals)"),
    ("the producer ends one step early", F9,
     [("scf.for#0", ("sub", r"(.*) to (%\w+) step", r"%early = arith.subi \2, %c1 : index\n\1 to %early step"))],
     DEADLOCK),
    ("a barrier is made twice", F9, [("hopper.barrier_init#1", ("sub", r"\[%c1\]", "[%c0]"))],
     r"expected a barrier to be initialized once but got another hopper\.barrier_init"),
    ("a barrier is not made", F9, [("hopper.barrier_init#1", DROP)],
     r"expected a barrier that hopper\.barrier_init has made but got none at offset \d+"),
    ("no fence behind the making of barriers", F9, [("hopper.fence_barrier_init#0", DROP)],
     r"expected a hopper\.fence_barrier_init before copies complete on barrier"),
    ("nobody waits until the barriers are made", F9,
     [("hopper.group_arrive#0", DROP), ("hopper.group_barrier#0", DROP)],
     r"(expected a barrier that hopper\.barrier_init has made|race: .* at hopper\.barrier_init)"),
    # Barriers of groups.
    ("roles disagree on the threads of a barrier", F9,
     [("hopper.group_barrier#0", ("sub", r"threads\(512\)", "threads(384)"))],
     r"expected \d+ threads at barrier 0 of the block, as at hopper\.group_\w+ .*, but got \d+"),
    ("consumers share a barrier that is each one's own", F9,
     [("hopper.group_barrier#3", ("sub", r"%shuffleResult", "%shared")),
      ("hopper.set_registers#1", ("add", "%shared = arith.constant 7 : i32"))],
     STORE_RACE),
    # Products.
    ("the first scores are used before their product is over", F9,
     [("hopper.wgmma_wait#0", ("sub", " : ", " {pending = 1 : i64} : "))], IN_FLIGHT),
    ("scores are used before their product is over", F9,
     [("hopper.wgmma_wait#1", ("sub", "pending = 1", "pending = 2"))], IN_FLIGHT),
    ("the output is used before its product is over", F9,
     [("hopper.wgmma_wait#4", ("sub", " : ", " {pending = 1 : i64} : "))],
     IN_FLIGHT + "|" + OVERWRITTEN),
    ("a descriptor has the wrong stride", F9,
     [("hopper.wgmma#0", ("sub", r"(.*) = hopper\.wgmma (%\w+), (%\w+)(.*), memref<(\w+), .*> -> ",
                          r"%bad = memref.reinterpret_cast \3 to offset: [0], sizes: [2, 64, 64], "
                          r"strides: [4608, 64, 1] : memref<\5, strided<[4096, 64, 1], offset: ?>, "
                          r"#gpu.address_space<workgroup>> to memref<\5, strided<[4608, 64, 1]>, "
                          r"#gpu.address_space<workgroup>>\n"
                          r"\1 = hopper.wgmma \2, %bad\4, memref<\5, strided<[4608, 64, 1]>, "
                          r"#gpu.address_space<workgroup>> -> "))],
     NUMBERS + "|" + UNREADY),
    # Copies.
    ("no fence before the output is copied", F9, [("hopper.fence_async_shared#0", DROP)], FENCE),
    ("the output is copied before all of it is there", F9, [("hopper.group_barrier#3", DROP)], STORE_RACE),
    ("the block ends while the output is copied", F9, [("hopper.wait_stores#0", DROP)],
     r"copy from shared memory in flight at the end: expected hopper\.wait_stores"),
    ("k: the wrong rows are loaded", F9,
     [("hopper.tma_load#3", ("sub", r"(\[%\w+, %\w+), %\w+, ", r"\1, %c0, "))], NUMBERS),
    ("the list of tiles is not written", F9, [("memref.store#1", DROP)],
     r"use before any write: .* read by thread \d+ .* at memref\.load"),
    ("the block has too little shared memory", F9,
     [("gpu.launch_func#0", ("sub", r"dynamic_shared_memory_size %\w+", "dynamic_shared_memory_size %little")),
      ("hopper.make_tensor_map#0", ("add", "%little = arith.constant 4096 : i32"))],
     r"access out of bounds: expected bytes within the block's 4096 of shared memory but got "),
    ("the log-sum-exp is stored past its end", F9,
     [("memref.store#3", ("sub", r"\[%\w+, ", "[%c3, "))],
     r"access out of bounds: expected a store of 4 bytes in one of the device's buffers"),
    ("a quad adds up the wrong threads", F9,
     [("gpu.shuffle#2", ("sub", "%c1_i32", "%wrong")),
      ("hopper.set_registers#1", ("add", "%wrong = arith.constant 8 : i32"))], NUMBERS),
    # Gradients.
    ("what a consumer hands over is not published", G9, [("hopper.publish#0", DROP)], DEADLOCK),
    ("what a consumer hands over is not fenced", G9,
     [("hopper.publish#0", ("sub", r"hopper\.publish (.*) : ", r"hopper.barrier_arrive \1 if %LANE : ")),
      ("hopper.store_tile#0", ("add", "%lane = arith.remui %thread_id_x, %c32 : index\n"
                               "%LANE = arith.cmpi eq, %lane, %c0 : index"))],
     r"(missing fence|race): .* at hopper\.store_tile .* at hopper\.wgmma"),
    ("what the other consumer hands over is not waited for", G9, [("hopper.barrier_wait#11", DROP)], UNREADY),
    ("q: the first wait has the wrong parity", G9,
     [("hopper.barrier_wait#3", ("sub", "%c0_i32", "%c1_i32"))], r"(race|use before any write): |" + DEADLOCK),
    ("q: the bytes beside a tile are not expected", G9,
     [("hopper.barrier_expect#1", ("sub", "17408", "16384"))], BYTES),
    ("q: what lies beside a tile begins between 16 bytes", G9,
     [("hopper.bulk_load#0", ("sub", r", (%\w+)\] to", r", %odd] to")),
      ("hopper.bulk_load#0", ("add", "%odd = arith.addi %c1, %ROW : index"))],
     r"misaligned access: expected a copy of \d+ bytes at an address that is a multiple of 16 but got"),
    ("dq is added past its end", G9, [("hopper.add_staged#1", ("sub", r"to (%\w+)\[%\w+, ", r"to \1[%c3, "))],
     r"access out of bounds: expected a copy that adds of \d+ bytes in one of the device's buffers"),
    ("the block ends while dq is added", G9,
     [("hopper.wait_stores#2", DROP)], r"copy from shared memory in flight at the end"),
    ("dk overwrites k while the other consumer reads it", G9, [("hopper.group_barrier#1", DROP)],
     r"race: .* read by a product of warpgroup \d at hopper\.wgmma .*|race: .* at hopper\.store_tile"),
    ("dk is copied before all of it is there", G9, [("hopper.group_barrier#2", DROP)], STORE_RACE),
    ("no fence before the last of dq is added", G9, [("hopper.fence_async_shared#0", DROP)],
     r"missing fence: .* at hopper\.stage_tile .* at hopper\.add_staged"),
    ("no fence before dk is copied", G9, [("hopper.fence_async_shared#1", DROP)], FENCE),
    ("d_o: no release in the loop", G9, [("hopper.barrier_arrive#0", DROP)], DEADLOCK),
    # cp.async.
    ("no wait for the copy of q", F8, [("nvgpu.device_async_wait#0", DROP)],
     r"missing wait for cp\.async: .* at nvgpu\.device_async_copy .* at nvvm\.ldmatrix"),
    ("the wait leaves k's copy under way", F8,
     [("nvgpu.device_async_wait#1", ("sub", "numGroups = 0", "numGroups = 2"))], r"missing wait for cp\.async"),
    ("nobody waits for the others' copies of q", F8, [("gpu.barrier#0", DROP)],
     r"(race|missing wait for cp\.async|use before any write): .* at nvvm\.ldmatrix"),
    ("a stage is overwritten while others read it", F8, [("gpu.barrier#2", DROP)],
     r"(race|missing wait for cp\.async|use before any write): "),
    ("q: copied without the swizzle", F8,
     [("nvgpu.device_async_copy#1", ("sub", r"(%view\w*\[%\w+, %\w+), %\w+\]", r"\1, %c0]"))],
     NUMBERS + r"|race|missing wait for cp\.async|use before any write"),
    ("q: rows that are not there are copied", F8,
     [("nvgpu.device_async_copy#7", ("sub", r", 8, %\w+", ", 8, %c8"))],
     r"access out of bounds: expected a copy of 16 bytes in one of the device's buffers"),
    ("ldmatrix: a row begins between 16 bytes", F8,
     [("nvvm.ldmatrix#0", ("sub", r"(%\w+) = nvvm\.ldmatrix (%\w+)",
                           r"%odd = llvm.getelementptr \2[1] : (!llvm.ptr<3>) -> !llvm.ptr<3>, f16\n"
                           r"\1 = nvvm.ldmatrix %odd"))],
     r"misaligned access: expected an offset in shared memory that is a multiple of 16 bytes"),
    ("ldmatrix: transposed where it should not be", F8,
     [("nvvm.ldmatrix#0", ("sub", "mma_layout<row>", "mma_layout<col>"))], NUMBERS),
    ("a quad adds up the wrong threads, by mma.sync", F8,
     [("gpu.shuffle#0", ("sub", "%c1_i32", "%wrong")),
      ("nvvm.ldmatrix#0", ("add", "%wrong = arith.constant 16 : i32"))], NUMBERS),
    # Shared memory by its address.
    ("rows are overwritten while other warps read them", G8, [("gpu.barrier#7", DROP)],
     r"race: .* written by thread .* at nvgpu\.device_async_copy .* at (nvvm\.ldmatrix|memref\.load|llvm\.load)"),
    ("other warps read d_s before all of it is there", G8, [("gpu.barrier#8", DROP)],
     r"race: .* written by thread .* at llvm\.store .*, and read by thread .* at nvvm\.ldmatrix"),
    # Consumers that split the sums of a program.
    ("weights: the second consumer does not wait for them", S9,
     [("hopper.barrier_wait#14", DROP)], r"(race|use before any write): .* at hopper\.read_tile"),
    ("weights: the second consumer does not wait for them in the loop", S9,
     [("hopper.barrier_wait#18", DROP)], r"(race|use before any write): .* at hopper\.read_tile"),
    ("weights: the first consumer does not say that they are there", S9,
     [("hopper.publish#0", DROP)], DEADLOCK),
    ("weights: the first consumer does not wait for a free place", S9_AHEAD,
     [("hopper.barrier_wait#5", DROP), ("hopper.barrier_wait#9", DROP)], r"race: .* at hopper\.store_tile"),
    ("weights: the second consumer's warps do not let their place go", S9,
     [("hopper.warp_arrive#0", DROP), ("hopper.warp_arrive#1", DROP)], DEADLOCK),
    ("values: the producer does not wait for their only place", S9, [("hopper.barrier_wait#21", DROP)],
     r"(expected at most 1 arrivals in a phase|race: .* at hopper\.tma_load)"),
    ("outputs: consumers do not wait for each other", S9,
     [("hopper.group_barrier#1", DROP), ("hopper.group_barrier#4", DROP)],
     r"race: .* read by a product .* at hopper\.store_tile"),
    # Sums that spare warps add.
    ("staged: whoever adds does not wait for it", A9, [("hopper.barrier_wait#0", DROP)],
     r"(race|missing fence|use before any write): .* at hopper\.(add_staged|stage_tile)"),
    ("staged: consumers do not wait until its place is free", A9, [("hopper.barrier_wait#10", DROP)],
     r"race: .* at hopper\.stage_tile"),
    ("staged: its place is let go before the copy has read it", A9, [("hopper.wait_stores#0", DROP)],
     r"race: .* at hopper\.stage_tile"),
    ("staged: nobody lets its place go", A9, [("hopper.warp_arrive#0", DROP)], DEADLOCK),
    ("staged: a consumer's warps do not arrive", A9, [("hopper.warp_arrive#1", DROP)], DEADLOCK),
    ("staged: no fence before the last tile is handed on", A9, [("hopper.fence_async_shared#0", DROP)],
     r"missing fence: .* at hopper\.stage_tile .* at hopper\.add_staged"),
    # Sums that the first to come makes zeros.
    ("sums: nobody makes them zeros", C9, [("hopper.clear#0", DROP)], NUMBERS),
    ("sums: half of them are made zeros", C9, [("hopper.clear#0", ("sub", "elements 8192", "elements 4096"))], NUMBERS),
    ("sums: nobody tells that they are there", C9, [("hopper.signal_added#0", DROP)],
     r"expected 6 warps of the primary grid to have signalled but got 0 by .* at hopper\.await_added"),
    ("products: the other consumer is never let go on", C9, [("hopper.wake_peer#1", DROP)], r"deadlock: .*"),
    # Scores that warps make again, each for itself. The producer waits for values before it brings the keys of a
    # place, and values, too, are released behind the branch: the faults are those of both rings.
    ("one thread of a group releases tiles for its four warps", L9, ONE_RELEASES_K + ONE_RELEASES_V, MADE_AGAIN),
    ("k: released before scores are made again, and v by one thread of a group", L9,
     [("hopper.barrier_arrive#4", ("before", "scf.if#5"))] + ONE_RELEASES_V, MADE_AGAIN),
    ("k: one warp of each group does not release it", L9,
     [("hopper.barrier_arrive#4", ("sub", r" if %\w+", " if %some")),
      ("hopper.set_registers#1", ("add", "%in_group = arith.remui %thread_id_x, %c128 : index\n"
                                  "%in_warp = arith.remui %thread_id_x, %c32 : index\n"
                                  "%first = arith.cmpi eq, %in_warp, %c0 : index\n"
                                  "%later = arith.cmpi ne, %in_group, %c0 : index\n"
                                  "%some = arith.andi %first, %later : i1"))], DEADLOCK),
]
