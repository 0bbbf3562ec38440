// REQUIRES: package
// Another project finds the installed package, links it and uses the op.

// RUN: rm -rf %t && mkdir -p %t
// RUN: cmake --install %flashattn_obj --prefix %t/prefix > %t/install.log
// RUN: cmake -G Ninja -S %S/Inputs/embedder -B %t/build -DCMAKE_PREFIX_PATH=%t/prefix \
// RUN:   -DCMAKE_CXX_COMPILER=%cxx -DCMAKE_C_COMPILER=%cc -DMLIR_DIR=%mlir_dir > %t/configure.log
// RUN: cmake --build %t/build > %t/build.log
// RUN: %t/build/embedder %s | FileCheck %s
// RUN: %t/build/embedder-c | FileCheck %s --check-prefix=C
// C: library 0.1.0 compiles

// CHECK: flashattn.attention mask(#flashattn.causal) schedule(<tile_m = {{[^>]*}}>)
func.func @causal(%q: memref<1x2x8x16xf32>, %o: memref<1x2x8x16xf32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %q, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      outs(%o : memref<1x2x8x16xf32>)
  return
}
