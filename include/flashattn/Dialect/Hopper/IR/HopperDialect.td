#ifndef FLASHATTN_HOPPER_DIALECT_TD
#define FLASHATTN_HOPPER_DIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"

def Hopper_Dialect : Dialect {
  let name = "hopper";
  let cppNamespace = "::mlir::flashattn::hopper";
  let summary = "features of sm_90a that nvgpu and nvvm lack in usable form";
  let description = [{
    TMA copies, mbarriers and asynchronous matrix products of a warpgroup (`wgmma`). Each is one op
    with a one-to-one lowering to PTX (`convert-hopper-to-nvvm`).

    A tile in shared memory is a `memref<PxRxCxT, #gpu.address_space<workgroup>>` of f16 or bf16: P
    panels of R rows and C columns next to each other, so that the tile has R rows and P*C columns.
    A row of a panel has 32, 64 or 128 bytes and is stored in the hardware's swizzle of that width.
    A panel must begin at a multiple of the size of eight rows (256, 512 or 1024 bytes).

    mbarriers (PTX ISA) are the elements of a `memref<Nxi64, #gpu.address_space<workgroup>>`. Ops
    name an mbarrier by the memref and an index.

    A ring is a ring buffer through which one producer thread passes tiles to consumer warpgroups,
    like CUTLASS's `PipelineTmaAsync`. Each stage has a buffer for one tile, a full mbarrier, which
    signals that the tile is loaded, and an empty mbarrier, which signals that all consumers have
    released the tile. Tiles are counted by steps from 0, and step `s` uses stage `s mod stages`. In
    each step, the producer puts one tile into the ring, and every consumer gets and releases this
    tile. `hopper-expand-rings` lowers the ops on rings to ops on mbarriers and copies.

    A vector operand of `hopper.wgmma` is a whole tile, `vector<64xNxT>`, or, after distribution,
    the fragment of one thread of the warpgroup, `vector<(N/2)xT>`: element `4g + 2h + c` is row
    `16*warp + lane/4 + 8h`, column `8g + 2(lane%4) + c`.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Hopper_Type<string name, string typeMnemonic> : TypeDef<Hopper_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Hopper_TensorMap : Hopper_Type<"TensorMap", "tensor_map"> {
  let summary = "TMA descriptor with a fixed box";
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
    A ring buffer of `stages` stages. The tile of each stage has `panels` panels of `rows` rows of
    `columns` elements.

    Example: `!hopper.ring<3x2x80x64xf16>`, three stages for tiles of 80 rows and 128 columns
  }];
  let parameters = (ins "int64_t":$stages, "int64_t":$panels, "int64_t":$rows,
                        "int64_t":$columns, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Returns the type of the buffers of all stages, one after the other.
    ::mlir::MemRefType getTilesType();
    /// Returns the type of the buffer of one stage.
    ::mlir::MemRefType getTileType();
    /// Returns the number of mbarriers: a full and an empty mbarrier per stage.
    int64_t getNumBarriers() { return 2 * getStages(); }
  }];
}

#endif // FLASHATTN_HOPPER_DIALECT_TD
