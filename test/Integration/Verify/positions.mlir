// What positions, norms and embeddings do to q and k before attention sees them.
// RUN: %python %S/Inputs/check_modules.py %s

#id = affine_map<(b, h, n, d) -> (b, h, n, d)>
#nd = affine_map<(b, h, n, d) -> (n, d)>
#row = affine_map<(b, h, n, d) -> (b, h, n)>
!x = tensor<1x2x24x16xf32>
!t = tensor<24x16xf32>

// Rotated halves: x cos + (-x2, x1) sin.
func.func private @rotate(%x: !x, %cos: !t, %sin: !t) -> !x {
  %c8 = arith.constant 8 : index
  %e = tensor.empty() : !x
  %r = linalg.generic {indexing_maps = [#id, #nd, #nd, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %cos, %sin : !x, !t, !t) outs(%e : !x) {
  ^bb0(%a: f32, %c: f32, %s: f32, %old: f32):
    %b = linalg.index 0 : index
    %h = linalg.index 1 : index
    %n = linalg.index 2 : index
    %d = linalg.index 3 : index
    %first = arith.cmpi ult, %d, %c8 : index
    %up = arith.addi %d, %c8 : index
    %down = arith.subi %d, %c8 : index
    %other = arith.select %first, %up, %down : index
    %y = tensor.extract %x[%b, %h, %n, %other] : !x
    %minus = arith.negf %y : f32
    %turned = arith.select %first, %minus, %y : f32
    %ac = arith.mulf %a, %c : f32
    %ts = arith.mulf %turned, %s : f32
    %sum = arith.addf %ac, %ts : f32
    linalg.yield %sum : f32
  } -> !x
  return %r : !x
}

// MODULE rope: attention(o)
func.func @rope(%q: !x, %k: !x, %v: !x, %cos: !t, %sin: !t) -> !x {
  %qr = call @rotate(%q, %cos, %sin) : (!x, !t, !t) -> !x
  %kr = call @rotate(%k, %cos, %sin) : (!x, !t, !t) -> !x
  %e = tensor.empty() : !x
  %o = flashattn.attention mask(#flashattn.causal) ins(%qr, %kr, %v : !x, !x, !x) outs(%e : !x) -> !x
  return %o : !x
}

// Angles in f32, attention in f16.
// MODULE rope_of_f16: attention(o)
!y = tensor<2x2x12x16xf16>
func.func @rope_of_f16(%q: !y, %k: !y) -> !y {
  %e = tensor.empty() : !y
  %c2 = arith.constant 2 : index
  %turned = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%q : !y) outs(%e : !y) {
  ^bb0(%a: f16, %old: f16):
    %n = linalg.index 2 : index
    %d = linalg.index 3 : index
    %pair = arith.divui %d, %c2 : index
    %angle = arith.muli %n, %pair : index
    %i = arith.index_cast %angle : index to i32
    %f = arith.sitofp %i : i32 to f32
    %c = math.cos %f : f32
    %w = arith.extf %a : f16 to f32
    %z = arith.mulf %w, %c : f32
    %t = arith.truncf %z : f32 to f16
    linalg.yield %t : f16
  } -> !y
  %o = flashattn.attention mask(#flashattn.causal) ins(%turned, %k, %k : !y, !y, !y) outs(%e : !y) -> !y
  return %o : !y
}

// MODULE normed: attention(o)
func.func @normed(%q: !x, %k: !x) -> !x {
  %zero = arith.constant 0.0 : f32
  %r = tensor.empty() : tensor<1x2x24xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%r : tensor<1x2x24xf32>) -> tensor<1x2x24xf32>
  %squares = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q : !x) outs(%fill : tensor<1x2x24xf32>) {
  ^bb0(%a: f32, %sum: f32):
    %aa = arith.mulf %a, %a : f32
    %s = arith.addf %sum, %aa : f32
    linalg.yield %s : f32
  } -> tensor<1x2x24xf32>
  %e = tensor.empty() : !x
  %unit = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%q, %squares : !x, tensor<1x2x24xf32>) outs(%e : !x) {
  ^bb0(%a: f32, %s: f32, %old: f32):
    %f = math.rsqrt %s : f32
    %y = arith.mulf %a, %f : f32
    linalg.yield %y : f32
  } -> !x
  %o = flashattn.attention softcap(20.0) ins(%unit, %k, %k : !x, !x, !x) outs(%e : !x) -> !x
  return %o : !x
}

// MODULE embedded: attention(o)
func.func @embedded(%ids: tensor<24xi32>, %table: tensor<2x16xf32>) -> !x {
  %e = tensor.empty() : !x
  %x = linalg.generic {indexing_maps = [affine_map<(b, h, n, d) -> (n)>, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%ids : tensor<24xi32>) outs(%e : !x) {
  ^bb0(%id: i32, %old: f32):
    %d = linalg.index 3 : index
    %i = arith.index_cast %id : i32 to index
    %y = tensor.extract %table[%i, %d] : tensor<2x16xf32>
    linalg.yield %y : f32
  } -> !x
  %o = flashattn.attention mask(#flashattn.causal) ins(%x, %x, %x : !x, !x, !x) outs(%e : !x) -> !x
  return %o : !x
}

// MODULE turned_layout: attention(o lse)
func.func @turned_layout(%q: tensor<1x10x2x32xf16>, %k: tensor<1x30x2x32xf16>) -> tensor<1x10x2x32xf16> {
  %eq = tensor.empty() : tensor<1x2x10x32xf16>
  %ek = tensor.empty() : tensor<1x2x30x32xf16>
  %el = tensor.empty() : tensor<1x2x10xf32>
  %eo = tensor.empty() : tensor<1x10x2x32xf16>
  %qt = linalg.transpose ins(%q : tensor<1x10x2x32xf16>) outs(%eq : tensor<1x2x10x32xf16>) permutation = [0, 2, 1, 3]
  %kt = linalg.transpose ins(%k : tensor<1x30x2x32xf16>) outs(%ek : tensor<1x2x30x32xf16>) permutation = [0, 2, 1, 3]
  %o, %l = flashattn.attention mask(#flashattn.causal)
      ins(%qt, %kt, %kt : tensor<1x2x10x32xf16>, tensor<1x2x30x32xf16>, tensor<1x2x30x32xf16>)
      outs(%eq, %el : tensor<1x2x10x32xf16>, tensor<1x2x10xf32>) -> tensor<1x2x10x32xf16>, tensor<1x2x10xf32>
  %r = linalg.transpose ins(%o : tensor<1x2x10x32xf16>) outs(%eo : tensor<1x10x2x32xf16>) permutation = [0, 2, 1, 3]
  return %r : tensor<1x10x2x32xf16>
}
