// Kernels of a user's own: what the gpu dialect has for the threads of a block and of a warp, memory of a block and of a
// thread, and atomic ops, on any chip, and with the same outputs in every interleaving.

// DEFINE: %{run} = flash-run %s --device=model:sm_80 --model-seeds=3
// RUN: flash-run %S/../row-sum.mlir --device=model:sm_90a --model-seeds=2 --input=1000xf32=ones --input=64x1000xf32=ones | FileCheck %s --check-prefix=ROW-SUM
// ROW-SUM: output 0: 64xf32, min 1000.0000, max 1000.0000
// ROW-SUM: model: 2 interleavings from seed 1, no report
// The GPU's own code has them too.
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 --emit=ptx | FileCheck %s --check-prefix=PTX
// PTX-DAG: .entry warps_kernel
// PTX-DAG: .entry reductions_kernel
// PTX-DAG: shfl.sync.bfly
// PTX-DAG: atom{{.*}}.shared{{.*}}.add
// RUN: %{run} --function=reductions --input=4x100xf32=1 | FileCheck %s --check-prefix=REDUCTIONS
// REDUCTIONS: output 0: 8xf32{{.*}}values 100.0000 100.0000 100.0000 100.0000 100.0000 100.0000 100.0000 100.0000
// REDUCTIONS: model: 3 interleavings from seed 1, no report
// RUN: %{run} --function=warps | FileCheck %s --check-prefix=WARPS
// WARPS: output 0: 8xi32{{.*}}values 496.0000 1520.0000 63.0000 1.0000 7.0000 64.0000 2.0000 32.0000
// WARPS: no report
// RUN: %{run} --function=halves | FileCheck %s --check-prefix=HALVES
// HALVES: output 0: 4xf16{{.*}}values 32.0000 2.0000 1.0000 3.0000
// RUN: flash-run %s --device=model:sm_80 --model-seed=2 --function=histogram --input=256xi32=1 --input=4xi32=0 | FileCheck %s --check-prefix=HISTOGRAM
// HISTOGRAM: output 0: 4xi32{{.*}}values 0.0000 512.0000 0.0000 255.0000
// HISTOGRAM: no report
// RUN: %{run} --function=shared_global --input=64xf32=3 | FileCheck %s --check-prefix=REVERSED
// REVERSED: output 0: 64xf32, min 3.0000, max 3.0000
// RUN: %{run} --function=launched --input=2x2xf32=1 --input=2x2xf32=2 | FileCheck %s --check-prefix=LAUNCHED
// LAUNCHED: output 0: 2x2xf32{{.*}}values 1.0000 1.0000 1.0000 1.0000
// LAUNCHED-NOT: output 1

// A plain access beside an atomic one is a race, an atomic one orders what it publishes, and a shuffle of few threads is for these.
// RUN: not %{run} --function=plain_beside_atomic 2>&1 | FileCheck %s --check-prefix=RACE
// RACE: error: kernel '{{.*}}', seed 1: race: {{.*}}memref.{{store|atomic_rmw}}
// RUN: not %{run} --function=narrow_shuffle 2>&1 | FileCheck %s --check-prefix=NARROW
// NARROW: expected a shuffle of 8 threads only in the first 8 threads of the warp but got a shuffle by thread 8
// RUN: not %{run} --function=two_widths 2>&1 | FileCheck %s --check-prefix=WIDTHS
// WIDTHS: expected {{6|7}} threads at the op, as in the rest of the warp, but got {{6|7}}
// RUN: not %{run} --function=wide_shuffle 2>&1 | FileCheck %s --check-prefix=WIDE
// WIDE: expected a shuffle of 1 to 32 threads but got 64

module attributes {gpu.container_module} {
  // 100 threads: three warps and four threads of another.
  func.func @reductions(%x: memref<4x100xf32>, %y: memref<8xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c100 = arith.constant 100 : index
    %c0 = arith.constant 0 : index
    gpu.launch blocks(%row, %by, %bz) in (%gx = %c4, %gy = %c1, %gz = %c1)
               threads(%t, %ty, %tz) in (%nx = %c100, %ny = %c1, %nz = %c1) {
      %value = memref.load %x[%row, %t] : memref<4x100xf32>
      %sum = gpu.all_reduce add %value {} : (f32) -> f32
      %own = gpu.all_reduce %value {
      ^bb0(%a: f32, %b: f32):
        %both = arith.addf %a, %b : f32
        gpu.yield %both : f32
      } : (f32) -> f32
      %first = arith.muli %row, %c2 : index
      %second = arith.addi %first, %c1 : index
      %isFirst = arith.cmpi eq, %t, %c0 : index
      scf.if %isFirst {
        memref.store %sum, %y[%first] : memref<8xf32>
        memref.store %own, %y[%second] : memref<8xf32>
      }
      gpu.terminator
    }
    return
  }

  // Sums and largest of warps, sums of clusters of threads, and where threads are.
  func.func @warps(%y: memref<8xi32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c5 = arith.constant 5 : index
    %c6 = arith.constant 6 : index
    %c7 = arith.constant 7 : index
    %c64 = arith.constant 64 : index
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
               threads(%t, %ty, %tz) in (%nx = %c64, %ny = %c1, %nz = %c1) {
      %value = arith.index_cast %t : index to i32
      %sum = gpu.subgroup_reduce add %value : (i32) -> i32
      %warp = gpu.subgroup_id : index
      %warps = gpu.num_subgroups : index
      %size = gpu.subgroup_size : index
      %lane = gpu.lane_id
      %global = gpu.global_id x
      %long = arith.extsi %value : i32 to i64
      %largest64 = gpu.subgroup_reduce maxsi %long : (i64) -> i64
      %largest = arith.trunci %largest64 : i64 to i32
      %pairs = gpu.subgroup_reduce add %value cluster(size = 2) : (i32) -> i32
      %one = arith.constant 1 : i32
      %width = arith.constant 8 : i32
      %isFirst = arith.cmpi eq, %lane, %c0 : index
      scf.if %isFirst {
        memref.store %sum, %y[%warp] : memref<8xi32>
      }
      %isLast = arith.cmpi eq, %global, %c64 : index
      %end = arith.constant 63 : index
      %isEnd = arith.cmpi eq, %global, %end : index
      scf.if %isEnd {
        memref.store %largest, %y[%c2] : memref<8xi32>
        %n = arith.index_cast %warps : index to i32
        memref.store %n, %y[%c6] : memref<8xi32>
        %s = arith.index_cast %size : index to i32
        memref.store %s, %y[%c7] : memref<8xi32>
        %next = arith.addi %global, %c1 : index
        %g = arith.index_cast %next : index to i32
        memref.store %g, %y[%c5] : memref<8xi32>
      }
      // The first eight threads alone.
      %eight = arith.constant 8 : index
      %few = arith.cmpi ult, %t, %eight : index
      scf.if %few {
        %seven = arith.constant 7 : i32
        %from, %valid = gpu.shuffle idx %value, %seven, %width : i32
        scf.if %isFirst {
          memref.store %from, %y[%c4] : memref<8xi32>
          memref.store %pairs, %y[%c3] : memref<8xi32>
        }
      }
      gpu.terminator
    }
    return
  }

  // Values of 16 bits, and two of them in one.
  func.func @halves(%y: memref<4xf16>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c32 = arith.constant 32 : index
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
               threads(%t, %ty, %tz) in (%nx = %c32, %ny = %c1, %nz = %c1) {
      %number = arith.index_cast %t : index to i32
      %value = arith.sitofp %number : i32 to f16
      %one = arith.constant 1.0 : f16
      %sum = gpu.subgroup_reduce add %one : (f16) -> f16
      %w = arith.constant 32 : i32
      %two = arith.constant 2 : i32
      %from, %valid = gpu.shuffle idx %value, %two, %w : f16
      %both = vector.from_elements %one, %value : vector<2xf16>
      %three = arith.constant 3 : i32
      %pair, %valid2 = gpu.shuffle idx %both, %three, %w : vector<2xf16>
      %a = vector.extract %pair[0] : f16 from vector<2xf16>
      %b = vector.extract %pair[1] : f16 from vector<2xf16>
      %isFirst = arith.cmpi eq, %t, %c0 : index
      scf.if %isFirst {
        memref.store %sum, %y[%c0] : memref<4xf16>
        memref.store %from, %y[%c1] : memref<4xf16>
        memref.store %a, %y[%c2] : memref<4xf16>
        memref.store %b, %y[%c3] : memref<4xf16>
      }
      gpu.terminator
    }
    return
  }

  // Counts in a block's memory, added up in global memory; a thread's own memory; the largest by an op of one's own.
  func.func @histogram(%x: memref<256xi32>, %y: memref<4xi32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c256 = arith.constant 256 : index
    gpu.launch_func @kernels::@histogram blocks in (%c2, %c1, %c1) threads in (%c256, %c1, %c1)
        args(%x : memref<256xi32>, %y : memref<4xi32>)
    return
  }
  func.func @shared_global(%x: memref<64xf32>, %y: memref<64xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    gpu.launch_func @kernels::@reverse blocks in (%c2, %c1, %c1) threads in (%c32, %c1, %c1)
        args(%x : memref<64xf32>, %y : memref<64xf32>)
    return
  }
  func.func @launched(%x: memref<2x2xf32>, %y: memref<2x2xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    gpu.launch_func @kernels::@move blocks in (%c1, %c1, %c1) threads in (%c2, %c2, %c1)
        args(%x : memref<2x2xf32>, %y : memref<2x2xf32>)
    return
  }
  func.func @plain_beside_atomic(%y: memref<1xi32>) {
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    gpu.launch_func @kernels::@plain_beside_atomic blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%y : memref<1xi32>)
    return
  }
  func.func @narrow_shuffle(%y: memref<32xi32>) {
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %width = arith.constant 8 : i32
    gpu.launch_func @kernels::@shuffle blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1) args(%y : memref<32xi32>, %width : i32)
    return
  }
  func.func @wide_shuffle(%y: memref<32xi32>) {
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %width = arith.constant 64 : i32
    gpu.launch_func @kernels::@shuffle blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1) args(%y : memref<32xi32>, %width : i32)
    return
  }
  func.func @two_widths(%y: memref<32xi32>) {
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    gpu.launch_func @kernels::@two_widths blocks in (%c1, %c1, %c1) threads in (%c8, %c1, %c1) args(%y : memref<32xi32>)
    return
  }

  gpu.module @kernels {
    memref.global "private" @row : memref<32xf32, #gpu.address_space<workgroup>> = uninitialized
    gpu.func @histogram(%x: memref<256xi32>, %y: memref<4xi32>)
        workgroup(%counts: memref<4xi32, #gpu.address_space<workgroup>>)
        private(%mine: memref<1xi32, #gpu.address_space<private>>) kernel {
      %c0 = arith.constant 0 : index
      %c3 = arith.constant 3 : index
      %c4 = arith.constant 4 : index
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %t = gpu.thread_id x
      %clears = arith.cmpi ult, %t, %c4 : index
      scf.if %clears {
        memref.store %zero, %counts[%t] : memref<4xi32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %value = memref.load %x[%t] : memref<256xi32>
      memref.store %value, %mine[%c0] : memref<1xi32, #gpu.address_space<private>>
      %again = memref.load %mine[%c0] : memref<1xi32, #gpu.address_space<private>>
      %place = arith.index_cast %again : i32 to index
      %old = memref.atomic_rmw addi %one, %counts[%place] : (i32, memref<4xi32, #gpu.address_space<workgroup>>) -> i32
      gpu.barrier
      scf.if %clears {
        %count = memref.load %counts[%t] : memref<4xi32, #gpu.address_space<workgroup>>
        %before = memref.atomic_rmw addi %count, %y[%t] : (i32, memref<4xi32>) -> i32
      }
      %number = arith.index_cast %t : index to i32
      %last = memref.generic_atomic_rmw %y[%c3] : memref<4xi32> {
      ^bb0(%current: i32):
        %larger = arith.maxsi %current, %number : i32
        memref.atomic_yield %larger : i32
      }
      gpu.return
    }
    gpu.func @reverse(%x: memref<64xf32>, %y: memref<64xf32>) kernel {
      %c31 = arith.constant 31 : index
      %row = memref.get_global @row : memref<32xf32, #gpu.address_space<workgroup>>
      %t = gpu.thread_id x
      %i = gpu.global_id x
      %value = memref.load %x[%i] : memref<64xf32>
      memref.store %value, %row[%t] : memref<32xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %other = arith.subi %c31, %t : index
      %reversed = memref.load %row[%other] : memref<32xf32, #gpu.address_space<workgroup>>
      memref.store %reversed, %y[%i] : memref<64xf32>
      gpu.return
    }
    gpu.func @move(%x: memref<2x2xf32>, %y: memref<2x2xf32>) kernel {
      %i = gpu.thread_id x
      %j = gpu.thread_id y
      %value = memref.load %x[%i, %j] : memref<2x2xf32>
      memref.store %value, %y[%i, %j] : memref<2x2xf32>
      gpu.return
    }
    gpu.func @plain_beside_atomic(%y: memref<1xi32>) workgroup(%sum: memref<1xi32, #gpu.address_space<workgroup>>) kernel {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %t = gpu.thread_id x
      %isFirst = arith.cmpi eq, %t, %c0 : index
      scf.if %isFirst {
        memref.store %zero, %sum[%c0] : memref<1xi32, #gpu.address_space<workgroup>>
      } else {
        %old = memref.atomic_rmw addi %one, %sum[%c0] : (i32, memref<1xi32, #gpu.address_space<workgroup>>) -> i32
      }
      gpu.barrier
      %found = memref.load %sum[%c0] : memref<1xi32, #gpu.address_space<workgroup>>
      memref.store %found, %y[%c0] : memref<1xi32>
      gpu.return
    }
    gpu.func @shuffle(%y: memref<32xi32>, %width: i32) kernel {
      %zero = arith.constant 0 : i32
      %t = gpu.thread_id x
      %value = arith.index_cast %t : index to i32
      %from, %valid = gpu.shuffle idx %value, %zero, %width : i32
      memref.store %from, %y[%t] : memref<32xi32>
      gpu.return
    }
    gpu.func @two_widths(%y: memref<32xi32>) kernel {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0 : i32
      %t = gpu.thread_id x
      %value = arith.index_cast %t : index to i32
      %isFirst = arith.cmpi eq, %t, %c0 : index
      %c7 = arith.constant 7 : i32
      %c6 = arith.constant 6 : i32
      %width = arith.select %isFirst, %c7, %c6 : i32
      %from, %valid = gpu.shuffle idx %value, %zero, %width : i32
      memref.store %from, %y[%t] : memref<32xi32>
      gpu.return
    }
  }
}
