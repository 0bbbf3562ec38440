// RUN: flash-opt %s -split-input-file -verify-diagnostics -convert-flashattn-gpu-to-model

module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @rings(%value: vector<64x64xf16>) kernel {
      // expected-error @below {{expected vectors distributed to threads but got 'vector<64x64xf16>'}}
      %pinned = hopper.pin %value : vector<64x64xf16>
      gpu.return
    }
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @reduce(%value: f32) kernel {
      // expected-error @below {{expected an op that the GPU model supports but got 'gpu.subgroup_reduce'}}
      %sum = gpu.subgroup_reduce add %value : (f32) -> f32
      gpu.return
    }
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @wide(%value: i64) kernel {
      %c1 = arith.constant 1 : i32
      %c32 = arith.constant 32 : i32
      // expected-error @below {{expected a 32-bit shuffle, the only width of the GPU model, but got 'i64'}}
      %other, %valid = gpu.shuffle xor %value, %c1, %c32 : i64
      gpu.return
    }
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @product(%a: vector<2xf16>, %c: vector<2xf16>) kernel {
      // expected-error @below {{expected a product m16n8k16 of f16 or bf16, or m16n8k8 of tf32, with sums in f32, which the GPU model supports, but got another product}}
      %d = nvvm.mma.sync A[%a, %a] B[%a] C[%c, %c] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, shape = #nvvm.shape<m = 16, n = 8, k = 8>} : (vector<2xf16>, vector<2xf16>, vector<2xf16>) -> !llvm.struct<(vector<2xf16>, vector<2xf16>)>
      gpu.return
    }
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @bytes(%row: !llvm.ptr<3>) kernel {
      // expected-error @below {{expected elements of 16 bits, which the GPU model supports, but got 'b8'}}
      %r = nvvm.ldmatrix %row {num = 1 : i32, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 16, n = 16>, eltType = #nvvm.ld_st_matrix_elt_type<b8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
      gpu.return
    }
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // expected-error @below {{expected workgroup attributions of at most 2147483647 bytes but got more}}
    gpu.func @huge() workgroup(%a: memref<9223372036854775807xf32, #gpu.address_space<workgroup>>) kernel {
      gpu.return
    }
  }
}
