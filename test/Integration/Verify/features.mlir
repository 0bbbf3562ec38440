// Operands of the scores that the function itself makes.
// RUN: %python %S/Inputs/check_modules.py %s

#full = affine_map<(b, h, n, k) -> (b, h, n, k)>
!q = tensor<1x4x12x32xbf16>
!k = tensor<1x2x27x32xbf16>

// MODULE bias: attention(o)
func.func @bias(%q: !q, %k: !k) -> !q {
  %e = tensor.empty() : tensor<1x4x12x27xf32>
  %bias = linalg.generic {indexing_maps = [#full], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      outs(%e : tensor<1x4x12x27xf32>) {
  ^bb0(%old: f32):
    %h = linalg.index 1 : index
    %k0 = linalg.index 3 : index
    %m = arith.muli %h, %k0 : index
    %i = arith.index_cast %m : index to i32
    %f = arith.sitofp %i : i32 to f32
    %c = arith.constant -0.03 : f32
    %y = arith.mulf %f, %c : f32
    linalg.yield %y : f32
  } -> tensor<1x4x12x27xf32>
  %eo = tensor.empty() : !q
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !q, !k, !k)
      bias(%bias : tensor<1x4x12x27xf32>) outs(%eo : !q) -> !q
  return %o : !q
}

// MODULE attn_mask: attention(o)
func.func @attn_mask(%q: !q, %k: !k, %ids: tensor<27xi32>) -> !q {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<1x1x1x27xi1>
  %attn_mask = linalg.generic {indexing_maps = [affine_map<(b, h, n, k) -> (k)>, #full], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%ids : tensor<27xi32>) outs(%e : tensor<1x1x1x27xi1>) {
  ^bb0(%id: i32, %old: i1):
    %y = arith.cmpi ne, %id, %c0 : i32
    linalg.yield %y : i1
  } -> tensor<1x1x1x27xi1>
  %eo = tensor.empty() : !q
  %o = flashattn.attention ins(%q, %k, %k : !q, !k, !k) attn_mask(%attn_mask : tensor<1x1x1x27xi1>) outs(%eo : !q) -> !q
  return %o : !q
}

// MODULE captured --input=random --input=random --input=0.25: attention(o lse)
func.func @captured(%q: memref<1x2x14x16xf32>, %k: memref<1x2x14x16xf32>, %slope: f32, %o: memref<1x2x14x16xf32>, %lse: memref<1x2x14xf32>) {
  %c1 = arith.constant 1 : index
  %two = arith.constant 2.0 : f32
  %steep = arith.mulf %slope, %two : f32
  %n = memref.dim %q, %c1 : memref<1x2x14x16xf32>
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : memref<1x2x14x16xf32>, memref<1x2x14x16xf32>, memref<1x2x14x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %d = arith.subi %key, %p : index
        %dn = arith.muli %d, %n : index
        %i = arith.index_cast %dn : index to i32
        %x = arith.sitofp %i : i32 to f32
        %y = math.fma %x, %steep, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o, %lse : memref<1x2x14x16xf32>, memref<1x2x14xf32>)
  return
}

// MODULE sinks --input=random --input=random --input=random --input=0.5: attention(o lse)
func.func @sinks(%q: !q, %k: !k, %logits: tensor<4xf32>, %x: f32) -> (!q, tensor<1x4x12xf32>) {
  %half = arith.constant 0.5 : f32
  %scale = arith.mulf %x, %half : f32
  %e = tensor.empty() : tensor<4xf32>
  %more = linalg.add ins(%logits, %logits : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %eo = tensor.empty() : !q
  %el = tensor.empty() : tensor<1x4x12xf32>
  %o, %l = flashattn.attention mask(#flashattn.causal) scale(%scale) softcap(15.0) ins(%q, %k, %k : !q, !k, !k)
      sink_logits(%more : tensor<4xf32>) outs(%eo, %el : !q, tensor<1x4x12xf32>) -> !q, tensor<1x4x12xf32>
  return %o, %l : !q, tensor<1x4x12xf32>
}

// Constants of the module are not handed over, but read from it.
// MODULE constants: attention(o)
func.func @constants(%q: !q, %k: !k) -> !q {
  %lengths = arith.constant dense<[20]> : tensor<1xi32>
  %logits = arith.constant dense<[0.0, 1.0, -1.0, 3.0]> : tensor<4xf32>
  %c5 = arith.constant 5 : index
  %eo = tensor.empty() : !q
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !q, !k, !k)
      sink_logits(%logits : tensor<4xf32>) kv_len(%lengths : tensor<1xi32>) offset(%c5) outs(%eo : !q) -> !q
  return %o : !q
}
