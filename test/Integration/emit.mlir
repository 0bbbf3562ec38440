// What a module becomes, as text, on a machine without the GPU: PTX, schedules, tile programs and LLVM
// IR; and that --chip never is a silent run of something else.

// DEFINE: %{run} = env FLASHATTN_CUDA_DRIVER=/nowhere/libcuda.so flash-run %s
// RUN: %{run} --chip=sm_90a --emit=ptx 2>&1 | FileCheck %s --check-prefix=PTX --implicit-check-not="device:"
// PTX: // kernels: {{.*}}
// PTX: .target sm_90a
// PTX: .entry
// PTX: // kernels: {{.*}}
// PTX: .target sm_90a
// PTX: .entry

// RUN: %{run} --function=plain --chip=sm_80 --emit=ptx -o %t.ptx | count 0
// RUN: FileCheck %s --check-prefix=ONE --input-file=%t.ptx
// ONE-COUNT-1: .entry
// ONE-NOT: .entry

// The same from flash-opt, which has made it.
// RUN: flash-run %s --function=plain --chip=sm_80 --tuned-schedules=none --emit=ptx > %t.run.ptx
// RUN: sed '/^func.func @causal/,/^}/d' %s | flash-opt -flashattn-to-nvvm=chip=sm_80 --emit=ptx | diff %t.run.ptx -
// RUN: sed '/^func.func @causal/,/^}/d' %s | flash-opt -flashattn-to-nvvm=chip=sm_80 --emit=ptx -o %t.opt.ptx
// RUN: diff %t.run.ptx %t.opt.ptx
// RUN: not flash-opt %s -flashattn-to-cpu --emit=ptx -o %t.none.ptx 2>&1 | FileCheck %s --check-prefix=NO-KERNELS
// NO-KERNELS: emit.mlir:{{[1-9][0-9]*}}:{{[0-9]+}}: error: --emit=ptx: expected kernels, as -flashattn-to-nvvm generates them, but got none
// RUN: not ls %t.none.ptx

// RUN: %{run} --chip=sm_90a --emit=schedule | FileCheck %s --check-prefix=SCHEDULE
// SCHEDULE: emit.mlir:[[@LINE+44]]:{{[0-9]+}}: flashattn.attention: tile_m = {{[0-9]+}}, tile_n =
// RUN: %{run} --device=cpu --function=causal --schedule="tile_m = 8, tile_n = 16, stages = 1, dot_type = f32, mapping = cpu" --emit=schedule | FileCheck %s --check-prefix=PINNED
// PINNED: flashattn.attention: tile_m = 8, tile_n = 16,
// RUN: %{run} --chip=sm_80 --emit=tiles --function=causal | FileCheck %s --check-prefix=TILES
// TILES: func.func @causal
// TILES: flashattn.program
// RUN: %{run} --device=cpu --emit=llvm | FileCheck %s --check-prefix=LLVM
// LLVM: define {{.*}} @causal(
// LLVM: call void @flashattnParallelFor(

// RUN: not %{run} --device=cpu --emit=ptx 2>&1 | FileCheck %s --check-prefix=CPU
// CPU: error: --emit=ptx: expected kernels but the module has none: --chip=sm_XX compiles for a GPU
// RUN: not %{run} --chip=sm_80 --emit=ptx --verify 2>&1 | FileCheck %s --check-prefix=ASKS
// ASKS: error: --emit: expected no flag that runs the function but got one
// RUN: not %{run} --chip=sm_80 --emit=ptx --function=none 2>&1 | FileCheck %s --check-prefix=FUNCTION
// FUNCTION: error: expected --function to be one of 'causal', 'plain' but got 'none'
// RUN: not %{run} --chip=sm_80 --emit=ptx -o %t.none/a.ptx 2>&1 | FileCheck %s --check-prefix=NO-FOLDER
// NO-FOLDER: error: cannot write '{{.*}}.none/a.ptx':
// RUN: not %{run} -o %t.npy 2>&1 | FileCheck %s --check-prefix=NO-EMIT
// NO-EMIT: error: -o: expected --emit, whose text -o writes, but got none

// Dumps alone need no GPU either; what asks for a run does.
// RUN: rm -rf %t.dump
// RUN: %{run} --chip=sm_90a --dump-dir=%t.dump --function=causal | FileCheck %s --check-prefix=DUMP --implicit-check-not="device:"
// DUMP: nothing was run: compiled for sm_90a, kept in {{.*}}.dump
// RUN: ls %t.dump | FileCheck %s --check-prefix=FILES
// Another run's files take the place of these, and what is of nobody's stays.
// RUN: touch %t.dump/mine.ptx && ls %t.dump > %t.before
// RUN: %{run} --chip=sm_80 --dump-dir=%t.dump --function=plain && ls %t.dump > %t.mixed
// RUN: rm -rf %t.fresh && %{run} --chip=sm_80 --dump-dir=%t.fresh --function=plain && ls %t.fresh > %t.new
// RUN: echo mine.ptx >> %t.new && sort %t.new > %t.sorted && sort %t.mixed | diff %t.sorted -
// RUN: not diff %t.before %t.mixed
// A list that was tampered with takes nothing away outside of the folder.
// RUN: echo ../emit-outside > %t.dump/.flash-run-files && touch %t.dump/../emit-outside
// RUN: %{run} --chip=sm_80 --dump-dir=%t.dump --function=plain && ls %t.dump/../emit-outside
// FILES: .ptx
// RUN: not %{run} --chip=sm_90a --function=causal 2>&1 | FileCheck %s --check-prefix=SILENT --implicit-check-not="output 0"
// RUN: not %{run} --chip=sm_90a --function=causal --dump-dir=%t.dump --bench=0.01 2>&1 | FileCheck %s --check-prefix=SILENT
// RUN: not %{run} --chip=sm_90a --function=causal --device=cpu --verify 2>&1 | FileCheck %s --check-prefix=SILENT
// SILENT: error: --chip: expected a CUDA device to run code for sm_90a but got the CPU{{.*}}: to compile only, use --emit=ptx, or --dump-dir without a flag that runs the function

!t = tensor<1x2x64x16xf16>
func.func @causal(%q: !t, %k: !t, %v: !t) -> !t {
  %init = tensor.empty() : !t
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !t, !t, !t) outs(%init : !t) -> !t
  return %o : !t
}
func.func @plain(%q: !t, %k: !t, %v: !t) -> !t {
  %init = tensor.empty() : !t
  %o = flashattn.attention ins(%q, %k, %v : !t, !t, !t) outs(%init : !t) -> !t
  return %o : !t
}
