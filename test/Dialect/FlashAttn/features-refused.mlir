// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a

// R2: what schedules with roles do not compute is refused, by name.

func.func @bias(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %x: memref<1x1x1x?xf32>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected no bias with roles}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16,
      roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    bias(%x : memref<1x1x1x?xf32>) outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @keep(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %x: memref<1x1x1x?xi1>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected no keep with roles}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16,
      roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    keep(%x : memref<1x1x1x?xi1>) outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @sink_logits(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %x: memref<?xf32>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected no sink_logits with roles}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16,
      roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    sink_logits(%x : memref<?xf32>) outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @kv_len(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %x: memref<?xi32>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected no kv_len with roles}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16,
      roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    kv_len(%x : memref<?xi32>) outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @softcap(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected no softcap with roles}}
  flashattn.attention softcap(50.0) schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16,
      roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @score_mod(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected no score_mod with roles}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16,
      roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
      %x = arith.negf %s : f32
      flashattn.yield %x : f32
    } outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// Without a schedule given, one without roles.
func.func @another(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %x: memref<?xi32>) {
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    kv_len(%x : memref<?xi32>) outs(%o : memref<?x?x?x64xf16>)
  return
}
