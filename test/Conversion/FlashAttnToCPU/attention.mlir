// RUN: flash-opt %s --flashattn-select-schedule --flashattn-tile --flashattn-expand-loops --flashattn-expand-rescale --convert-flashattn-to-cpu | FileCheck %s --implicit-check-not='vector<{{(32|64)x64}}' --implicit-check-not='math.{{exp2|log2}}'
// RUN: flash-opt %s --flashattn-to-cpu | FileCheck %s --check-prefix=LLVM

// The whole program of a causal attention in f16: nothing is left on tiles, K and V are
// extended once a step, and scores, exponentials and output stay in one buffer each.

// CHECK-LABEL: func.func private @attention_program
// CHECK-COUNT-8: memref.alloca()
// CHECK-NOT:     memref.alloca()
// Keys that every row sees: two products, and two loops over the scores between them.
// CHECK:         scf.for {{.*}} -> (vector<32xf32>, vector<32xf32>) {
// CHECK:           arith.extf {{.*}} : vector<16xf16> to vector<16xf32>
// CHECK:           memref.subview {{.*}} [8, 64] [1, 1]
// CHECK:           vector.fma
// CHECK-NOT:       arith.cmpi sge
// CHECK:           arith.maxnumf
// CHECK:           arith.extf {{.*}} : vector<16xf16> to vector<16xf32>
// CHECK:           memref.subview {{.*}} [64, 8] [1, 1]
// CHECK:           vector.fma
// Keys that some rows see.
// CHECK:         scf.for {{.*}} iter_args(%{{[a-z0-9]+}} = %[[R:[0-9]+]]#0, %{{[a-z0-9]+}} = %[[R]]#1)
// CHECK:           arith.cmpi sge, {{.*}} : vector<32xi32>
// CHECK:           arith.select {{.*}} : vector<32xi1>, vector<32xf32>
// CHECK:         arith.truncf {{.*}} : vector<32xf32> to vector<32xf16>
// CHECK:         return

// LLVM-NOT: unrealized_conversion_cast
// LLVM: llvm.func @attention_program(%{{.*}}: !llvm.ptr, %{{.*}}: i64) attributes {sym_visibility = "private"}
func.func @attention(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>,
                     %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>)
      ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}
