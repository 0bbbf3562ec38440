// How many parts the keys are cut into on the CPU.
// RUN: flash-opt %s -convert-flashattn-to-cpu -canonicalize | FileCheck %s

// CHECK-LABEL: func.func @count
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index,
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[COUNT:.*]] = call @flashattnThreadCount() : () -> i64
// CHECK: %[[THREADS:.*]] = arith.index_cast %[[COUNT]]
// CHECK: %[[FEW:.*]] = arith.muli %[[THREADS]], %c4
// CHECK: %[[PARTS:.*]] = arith.ceildivui %[[FEW]], %[[ANY]]
// CHECK: %[[TILES:.*]] = arith.divui %[[T]], %c2
// CHECK: %[[MOST:.*]] = arith.minui %[[TILES]], %c20
// CHECK: arith.minui %[[PARTS]], %[[MOST]]
// CHECK: func.func private @flashattnThreadCount() -> i64

// One for each thread as many programs: one part.
// DEFINE: %{count} = env FLASHATTN_NUM_THREADS=12 flash-run %s --device=cpu
// RUN: %{count} --input=12 --input=1000 | FileCheck %s --check-prefix=ONE
// RUN: %{count} --input=36 --input=1000 | FileCheck %s --check-prefix=ONE
// RUN: env FLASHATTN_NUM_THREADS=1 flash-run %s --device=cpu --input=1 --input=1000 | FileCheck %s --check-prefix=ONE
// More than a few for each, few tiles, no tile.
// RUN: %{count} --input=50 --input=1000 | FileCheck %s --check-prefix=ONE
// RUN: %{count} --input=3 --input=3 | FileCheck %s --check-prefix=ONE
// RUN: %{count} --input=3 --input=0 | FileCheck %s --check-prefix=ONE
// ONE: values 1.0000
// Four for each thread: 48 parts of 8, 13 or 1 programs; as many as the schedule has.
// RUN: %{count} --input=8 --input=1000 | FileCheck %s --check-prefix=SIX
// SIX: values 6.0000
// RUN: %{count} --input=13 --input=1000 | FileCheck %s --check-prefix=FOUR
// FOUR: values 4.0000
// RUN: %{count} --input=1 --input=1000 | FileCheck %s --check-prefix=TWENTY
// TWENTY: values 20.0000
// No program: as for one.
// RUN: %{count} --input=0 --input=1000 | FileCheck %s --check-prefix=TWENTY
// 6 of 13 tiles are 3 each, which leaves one of 6 without. 4 of 9, for 2 tiles and more, are 3 each.
// RUN: %{count} --input=8 --input=13 | FileCheck %s --check-prefix=FIVE
// FIVE: values 5.0000
// RUN: %{count} --input=8 --input=9 | FileCheck %s --check-prefix=THREE
// THREE: values 3.0000
func.func @count(%programs: index, %tiles: index, %parts: memref<1xi32>) {
  %c0 = arith.constant 0 : index
  %count = flashattn.count_splits %programs, %tiles schedule(<tile_m = 4, tile_n = 64, stages = 1, dot_type = f32, splits = 20, mapping = cpu>)
  %number = arith.index_cast %count : index to i32
  memref.store %number, %parts[%c0] : memref<1xi32>
  return
}
