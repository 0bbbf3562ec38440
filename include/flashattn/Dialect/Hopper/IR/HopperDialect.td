#ifndef FLASHATTN_HOPPER_DIALECT_TD
#define FLASHATTN_HOPPER_DIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"

def Hopper_Dialect : Dialect {
  let name = "hopper";
  let cppNamespace = "::mlir::flashattn::hopper";
  let summary = "features of sm_90a that nvgpu and nvvm lack in usable form";
  let description = [{
    Tensor copies (TMA), transaction barriers and asynchronous warpgroup products. Each is one op
    with a one-to-one lowering to PTX (`convert-hopper-to-nvvm`).

    A tile in shared memory is a `memref<PxRxCxT, #gpu.address_space<workgroup>>` of f16 or bf16: P
    panels of R rows and C columns next to each other, so that the tile has R rows and P*C columns.
    A row of a panel has 32, 64 or 128 bytes and is stored in the hardware's swizzle of that width.
    A panel must begin at a multiple of the size of eight rows (256, 512 or 1024 bytes).

    Barriers are elements of a `memref<Nxi64, #gpu.address_space<workgroup>>`, each an mbarrier of
    the PTX ISA.

    A ring is a ring buffer through which one thread, the producer, passes tiles to consumer
    warpgroups. It has buffers for a few tiles, its stages. Each stage has one barrier that signals
    that it is full and one that signals that it is empty. Tiles are counted by steps from 0, and
    step `s` uses stage `s mod stages`. The producer puts a tile into the ring in each step, and
    every consumer gets and releases it. `hopper-expand-rings` lowers the ops on rings to barriers
    and copies.

    A vector operand of an asynchronous product is a whole tile, `vector<64xNxT>`, or, after
    distribution, the part of the tile in one thread of the warpgroup, `vector<(N/2)xT>`: element
    `4g + 2h + c` is row `16*warp + lane/4 + 8h`, column `8g + 2(lane%4) + c`.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Hopper_Type<string name, string typeMnemonic> : TypeDef<Hopper_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Hopper_TensorMap : Hopper_Type<"TensorMap", "tensor_map"> {
  let summary = "descriptor for tensor copies with a fixed box";
  let description = [{
    A TMA descriptor (128 bytes, `CUtensorMap`) whose box has `rows` (1 to 256) rows of `columns`
    elements of f16 or bf16. The size of a row of the box (32, 64 or 128 bytes) is the width of the
    swizzle.

    Example: `!hopper.tensor_map<80x64xf16>`
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$columns, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Hopper_Ring : Hopper_Type<"Ring", "ring"> {
  let summary = "ring buffer of tiles in shared memory";
  let description = [{
    Has `stages` stages, each for a tile of `panels` panels of `rows` rows of `columns` elements.

    Example: `!hopper.ring<3x2x80x64xf16>`, three tiles of 80 rows and 128 columns
  }];
  let parameters = (ins "int64_t":$stages, "int64_t":$panels, "int64_t":$rows,
                        "int64_t":$columns, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The type of all tiles in shared memory, one after the other.
    ::mlir::MemRefType getTilesType();
    /// The type of one tile.
    ::mlir::MemRefType getTileType();
    /// The number of barriers: `stages` that signal full tiles, and as many that signal empty ones.
    int64_t getNumBarriers() { return 2 * getStages(); }
  }];
}

#endif // FLASHATTN_HOPPER_DIALECT_TD
