#ifndef FLASHATTN_TRANSFORMS_PASSES_TD
#define FLASHATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def SelectSchedule : Pass<"flashattn-select-schedule"> {
  let summary = "choose tile sizes, warps and stages for every attention op";
  let description = [{
    Puts a `#flashattn.schedule` on every `flashattn.attention` that has none:
    the first row of the chip's table whose needs (shared memory, registers)
    fit. A schedule already there is checked and kept. Where none fits, the
    error lists each one tried and why it was refused (rule R2).

    Example: test/Dialect/FlashAttn/select-schedule.mlir
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"cpu\"", "cpu, or the GPU as sm_XX">,
    Option<"vectorWidth", "vector-width", "int64_t", "16",
           "f32 lanes of the CPU's vector registers">,
    Option<"schedule", "schedule", "std::string", "\"\"",
           "fields of a schedule to pin on every op that has none: 'tile_m = 128, tile_n = 64, ...'">,
  ];
  let dependentDialects = ["::mlir::flashattn::FlashAttnDialect"];
}

def Tile : Pass<"flashattn-tile"> {
  let summary = "turn every attention op on memrefs into a program on tile values";
  let description = [{
    One program per batch, query head and tile of query rows: an `scf.forall`
    whose body works on `vector<MxN>` tile values. Its loops over key tiles come
    from the mask's set: hidden tiles are in no loop, full and partial intervals
    have loops of their own. The online softmax is written here and nowhere else.

    Example: test/Dialect/FlashAttn/tile.mlir
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif // FLASHATTN_TRANSFORMS_PASSES_TD
