// RUN: flash-opt %s -split-input-file -verify-diagnostics -convert-flashattn-kernels-to-ptx

// expected-error@+1 {{'gpu.module' op expected one #nvvm.target but got none}}
gpu.module @untargeted {
}

// -----

// expected-error@+1 {{'gpu.module' op expected one #nvvm.target but got [#nvvm.target<chip = "sm_80">, #nvvm.target<chip = "sm_90">]}}
gpu.module @twice [#nvvm.target<chip = "sm_80">, #nvvm.target<chip = "sm_90">] {
}

// -----

// expected-error@+1 {{the kernels cannot be translated to LLVM IR}}
gpu.module @untranslatable [#nvvm.target] {
  // expected-error@+1 {{cannot be converted to LLVM IR}}
  func.func @left() {
    return
  }
}
