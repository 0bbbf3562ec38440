// RUN: flash-opt %s -split-input-file -transform-interpreter -verify-diagnostics=only-expected -o /dev/null

// Three heads of groups of four would need parts of two key/value heads (rule A4).

module attributes {transform.with_named_sequence} {
  func.func @part_of_a_group(%q: tensor<1x12x32x16xf16>, %k: tensor<1x3x64x16xf16>)
      -> tensor<1x12x32x16xf16> {
    // expected-error@below {{'flashattn.attention' op expected a head tile of 1 or a multiple of the group size, 4, but got 3}}
    %r = flashattn.attention
        ins(%q, %k, %k : tensor<1x12x32x16xf16>, tensor<1x3x64x16xf16>, tensor<1x3x64x16xf16>)
        outs(%q : tensor<1x12x32x16xf16>) -> tensor<1x12x32x16xf16>
    return %r : tensor<1x12x32x16xf16>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 3]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// With the head counts known only at run time, no tile of several heads is known to be whole groups.

module attributes {transform.with_named_sequence} {
  func.func @unknown_groups(%q: tensor<1x?x32x16xf16>, %k: tensor<1x?x64x16xf16>)
      -> tensor<1x?x32x16xf16> {
    // expected-error@below {{expected a head tile of 1 or a multiple of the group size, which is not static, but got a dynamic size}}
    %r = flashattn.attention
        ins(%q, %k, %k : tensor<1x?x32x16xf16>, tensor<1x?x64x16xf16>, tensor<1x?x64x16xf16>)
        outs(%q : tensor<1x?x32x16xf16>) -> tensor<1x?x32x16xf16>
    return %r : tensor<1x?x32x16xf16>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 2]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A tile of queries has another nq: the mask would mean something else.

module attributes {transform.with_named_sequence} {
  func.func @mask_reads_nq(%q: tensor<1x4x32x16xf16>) -> tensor<1x4x32x16xf16> {
    // expected-error@below {{expected a mask without the symbol nq to tile the queries but got '#flashattn.set<"(p, k)[nq, nk] : (-k + nq >= 0)">'}}
    %r = flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (nq - k >= 0)">)
        ins(%q, %q, %q : tensor<1x4x32x16xf16>, tensor<1x4x32x16xf16>, tensor<1x4x32x16xf16>)
        outs(%q : tensor<1x4x32x16xf16>) -> tensor<1x4x32x16xf16>
    return %r : tensor<1x4x32x16xf16>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
