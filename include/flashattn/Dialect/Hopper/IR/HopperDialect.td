#ifndef FLASHATTN_HOPPER_DIALECT_TD
#define FLASHATTN_HOPPER_DIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"

def Hopper_Dialect : Dialect {
  let name = "hopper";
  let cppNamespace = "::mlir::flashattn::hopper";
  let summary = "What sm_90a has and nvgpu and nvvm lack in usable form";
  let description = [{
    Tensor copies (TMA), transaction barriers and asynchronous warpgroup products, each
    one op with a one-to-one lowering to PTX (`convert-hopper-to-nvvm`).

    A tile in shared memory is a `memref<PxRxCxT, #gpu.address_space<workgroup>>` of f16 or
    bf16: P panels side by side, each of R rows of C columns, where a row of 32, 64 or 128
    bytes is stored in the hardware's swizzle of that width. The tile has R rows and P*C
    columns. A panel must begin at a multiple of eight rows' bytes (256, 512 or 1024).

    Barriers are elements of a `memref<Nxi64, #gpu.address_space<workgroup>>`, each an
    mbarrier of the PTX ISA.

    A ring is how tiles pass from one thread, the producer, to warpgroups that read them, its
    consumers: places for a few tiles in shared memory, each with a barrier that it is full and
    one that it is empty. Tiles are counted by steps from 0, and step `s` has place
    `s mod stages`; the producer puts one into each step, and every consumer gets and releases
    it. `hopper-expand-rings` makes barriers and copies of the ops on rings.

    A vector operand of an asynchronous product is a whole tile, `vector<64xNxT>`, or, once
    distributed, what one thread of the warpgroup holds of it, `vector<(N/2)xT>`: element
    `4g + 2h + c` is row `16*warp + lane/4 + 8h`, column `8g + 2(lane%4) + c`.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Hopper_Type<string name, string typeMnemonic> : TypeDef<Hopper_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Hopper_TensorMap : Hopper_Type<"TensorMap", "tensor_map"> {
  let summary = "descriptor of tensor copies with a fixed box";
  let description = [{
    A TMA descriptor (128 bytes, `CUtensorMap`) whose box has `rows` (1 to 256) rows of
    `columns` elements of f16 or bf16. The bytes of a row of the box (32, 64 or 128) are
    the width of the swizzle.

    Example: `!hopper.tensor_map<80x64xf16>`
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$columns, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Hopper_Ring : Hopper_Type<"Ring", "ring"> {
  let summary = "tiles on their way through shared memory";
  let description = [{
    `stages` places for a tile of `panels` panels, each of `rows` rows of `columns` elements.

    Example: `!hopper.ring<3x2x80x64xf16>`, three tiles of 80 rows and 128 columns
  }];
  let parameters = (ins "int64_t":$stages, "int64_t":$panels, "int64_t":$rows,
                        "int64_t":$columns, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Its tiles in shared memory, one after the other.
    ::mlir::MemRefType getTilesType();
    /// One of them.
    ::mlir::MemRefType getTileType();
    /// Barriers that it takes: `stages` that tiles are full, and as many that they are empty.
    int64_t getNumBarriers() { return 2 * getStages(); }
  }];
}

#endif // FLASHATTN_HOPPER_DIALECT_TD
