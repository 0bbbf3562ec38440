// Queries of which threads hold columns in registers: products take these from there and the rest from shared
// memory. Heads are started by as many as fill the machine.
//
// RUN: flash-run %s --device=model:sm_90a --function=some --verify --model-seeds=2 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=all --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=recompute --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=panels --verify | FileCheck %s
// RUN: flash-compile %s --chip=sm_90a --emit=ptx -o %t.ptx
// RUN: FileCheck --input-file=%t.ptx %s --check-prefix=PTX
// CHECK: model: {{1 interleaving|2 interleavings}} from seed 1, no report
// CHECK: verify o: {{.*}}PASS

// Of 80 columns 32 are in eight registers, and of the other three steps shared memory has a descriptor.
// PTX-LABEL: .entry some_kernel
// PTX-COUNT-2: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// PTX: wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {{.*}}, {%r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}, db, overwrite
// PTX: wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {{.*}}, {%r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}, db, accumulate
// PTX-NEXT: add.s64 da, %rd{{[0-9]+}}, 4;
// PTX-COUNT-3: wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {{.*}}, da, db, accumulate
func.func @some(%q: tensor<1x6x150x80xf16>, %k: tensor<1x3x200x80xf16>, %v: tensor<1x3x200x80xf16>) -> tensor<1x6x150x80xf16> {
  %init = tensor.empty() : tensor<1x6x150x80xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 0, q_register_columns = 32>>)
      ins(%q, %k, %v : tensor<1x6x150x80xf16>, tensor<1x3x200x80xf16>, tensor<1x3x200x80xf16>)
      outs(%init : tensor<1x6x150x80xf16>) -> tensor<1x6x150x80xf16>
  return %o : tensor<1x6x150x80xf16>
}

// Blocks that stay: the next program's queries come to the other place, and to the same registers.
func.func @all(%q: tensor<2x4x200x64xbf16>, %k: tensor<2x1x300x64xbf16>, %v: tensor<2x1x300x64xbf16>) -> tensor<2x4x200x64xbf16> {
  %init = tensor.empty() : tensor<2x4x200x64xbf16>
  %o = flashattn.attention mask(#flashattn.window<left = 100, right = 0>)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, pack = 4, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 0, q_stages = 2, dynamic_scheduler = 1, q_register_columns = 256>>)
      ins(%q, %k, %v : tensor<2x4x200x64xbf16>, tensor<2x1x300x64xbf16>, tensor<2x1x300x64xbf16>)
      outs(%init : tensor<2x4x200x64xbf16>) -> tensor<2x4x200x64xbf16>
  return %o : tensor<2x4x200x64xbf16>
}

// Warps that make their scores a second time read all columns from shared memory.
func.func @recompute(%q: tensor<1x2x200x64xf16>, %k: tensor<1x1x500x64xf16>, %v: tensor<1x1x500x64xf16>) -> tensor<1x2x200x64xf16> {
  %init = tensor.empty() : tensor<1x2x200x64xf16>
  %o = flashattn.attention scale(20.0)
      schedule(<tile_m = 64, tile_n = 96, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1, q_register_columns = 48>>)
      ins(%q, %k, %v : tensor<1x2x200x64xf16>, tensor<1x1x500x64xf16>, tensor<1x1x500x64xf16>)
      outs(%init : tensor<1x2x200x64xf16>) -> tensor<1x2x200x64xf16>
  return %o : tensor<1x2x200x64xf16>
}

// Of two panels, whose last 32 columns are none, in registers and not.
func.func @panels(%q: tensor<1x2x100x96xf16>, %k: tensor<1x2x100x96xf16>, %v: tensor<1x2x100x128xf16>) -> tensor<1x2x100x128xf16> {
  %init = tensor.empty() : tensor<1x2x100x128xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 0, q_register_columns = 128>>)
      ins(%q, %k, %v : tensor<1x2x100x96xf16>, tensor<1x2x100x96xf16>, tensor<1x2x100x128xf16>)
      outs(%init : tensor<1x2x100x128xf16>) -> tensor<1x2x100x128xf16>
  return %o : tensor<1x2x100x128xf16>
}
