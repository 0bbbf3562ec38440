//===- ResourcePlans.h - memory and registers of a block --------*- C++ -*-===//
//
// Plans of the shared memory and registers of a thread block. The code that rejects schedules and
// the code that generates kernels use the same plan.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_RESOURCEPLANS_H
#define FLASHATTN_TARGET_RESOURCEPLANS_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

#include <array>
#include <optional>
#include <string>

namespace mlir::flashattn {

/// One term of a requirement, such as 49152 bytes for "q".
struct Need {
  StringRef name;
  int64_t count;
};

/// Returns a text such as "needs 182 registers per thread (o 128, scores 54) of 160 available", or
/// an empty string if the sum of `needs` is at most `available`. In this example, `what` is
/// "registers a thread" and `availability` is "available". Terms of 0 are omitted.
std::string explainNeeds(StringRef what, ArrayRef<Need> needs, int64_t available,
                         StringRef availability = "available");

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// A buffer in a block's shared memory.
struct SharedBuffer {
  StringRef name;
  SmallVector<int64_t> shape; ///< in elements
  int64_t elementBytes = 0;
  int64_t offset = 0;  ///< in bytes, from the beginning of the block's shared memory
  bool isOver = false; ///< whether the buffer overlays other buffers
  int64_t getBytes() const;
};

/// A sequence of buffers in a block's shared memory, which begins at a multiple of 1024 bytes.
class SharedMemoryPlan {
public:
  /// Adds a buffer at the next multiple of `alignment` bytes and returns its index.
  unsigned add(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes, int64_t alignment);
  /// Adds a buffer at byte `offset` and returns its index. The buffer overlays buffers that are
  /// used at other times.
  unsigned addOver(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes, int64_t offset);
  ArrayRef<SharedBuffer> getBuffers() const { return buffers; }
  const SharedBuffer &operator[](unsigned number) const { return buffers[number]; }
  /// Returns the number of bytes up to the end of the last buffer.
  int64_t getBytes() const { return bytes; }
  /// Returns the reason why the plan does not fit in `available` bytes, with the size of each
  /// buffer; empty if it fits.
  std::string explainRefusal(int64_t available) const;

private:
  SmallVector<SharedBuffer> buffers;
  int64_t bytes = 0;
};

/// A tile of an operand: `rows` rows of `columns` elements.
struct TileShape {
  StringRef name; ///< name of its buffer, such as "q"
  int64_t rows, columns;
  /// Rows and columns of the tile of 8-bit elements that is converted (F1) or transposed (F3) to
  /// this tile in shared memory; 0: there is none.
  std::array<int64_t, 2> source = {0, 0};

  bool isRewritten() const { return source[1] != 0; }
};

/// Returns the shape of a tile of an operand that is converted in shared memory if `isNarrow`.
inline TileShape makeTileShape(StringRef name, int64_t rows, int64_t columns, bool isNarrow) {
  TileShape shape{name, rows, columns};
  if (isNarrow)
    shape.source = {rows, columns};
  return shape;
}

/// Returns the plan of a block that loads tiles by asynchronous copies of 16 bytes (`cp.async`),
/// with buffers memref<copies x rows x columns>: one copy of each resident tile, `stages` copies of
/// each streamed tile, and one copy of each tile that warps exchange, in this order. Then follow
/// memref<rows x columns> of bytes, one for each narrow tile before its conversion.
SharedMemoryPlan planStagedTiles(ArrayRef<TileShape> resident, ArrayRef<TileShape> streamed,
                                 int64_t stages, int64_t elementBytes,
                                 ArrayRef<TileShape> exchanged = {});

/// Returns the number of elements in a row of a panel, for a tile with rows of `columns` elements.
/// TMA and `wgmma` access tiles in panels whose rows have the width of the widest useful swizzle:
/// 32, 64 or 128 bytes.
int64_t getPanelColumns(int64_t columns, int64_t elementBytes);

/// The tiles and other data that a warp-specialized block keeps in shared memory. The buffers of
/// tiles are memref<copies x panels x rows x panel columns>.
struct WarpgroupBlock {
  /// f32 elements that are loaded with a streamed tile.
  struct Row {
    int64_t elements;
    unsigned stream; ///< index of the streamed tile
  };

  SmallVector<TileShape> residents; ///< one copy per program, such as Q
  SmallVector<TileShape> streamed;  ///< shared by all programs, such as K and V
  SmallVector<TileShape> outputs;   ///< one copy per program, if stored by TMA
  int64_t elementBytes = 2;         ///< element size of all tiles
  int64_t consumers = 1, stages = 1;
  /// Whether a step uses its first streamed tile until the end of the next step, and every other
  /// streamed tile only in one product before that. The ring of the first tile then has one more
  /// stage than `stages`, and the other rings have one stage less.
  bool skews = false;
  int64_t programs = 1; ///< programs of a block: one per consumer, or one that consumers share
  /// Tiles of the operands' type that the consumers of a program exchange, with two buffers each.
  SmallVector<TileShape> exchanged;
  bool passes = false; ///< whether one consumer passes the only exchanged tile to another consumer
  SmallVector<Row> rows;
  int64_t added = 0;          ///< f32 elements of a tile that is added to global memory
  int64_t dqReduceStages = 0; ///< buffers from which spare warps add that tile; 0: consumers add
  int64_t slots = 1;          ///< groups with buffers for their residents; with 2, persistent
  bool claims = false;        ///< dynamic scheduler; the block is persistent with one slot too
  bool segments = false;      ///< one thread finds the segment of the block's programs
  int64_t intervals = 1;      ///< key loops whose bounds the programs of a block share
};

/// The buffer and the mbarriers of the ring buffer of a streamed tile.
struct RingPlan {
  unsigned buffer;     ///< memref<stages x panels x rows x panel columns>
  int64_t stages;      ///< number of stages
  int64_t full, empty; ///< indices of the first full and the first empty mbarrier
};

/// The shared memory plan of a warp-specialized block. Buffers are indices into `memory`, in the
/// order of the operands; mbarriers are indices into the buffer `barriers`.
struct WarpgroupBlockPlan {
  SharedMemoryPlan memory;
  SmallVector<unsigned> residents;
  /// The buffers of outputs. An output reuses the buffer of a resident of the same size, or of a
  /// resident with more panels that no other output uses. When a consumer stores its output, it no
  /// longer reads the resident, but a peer consumer may still read it.
  SmallVector<unsigned> outputs;
  /// Whether some output overlays a staging buffer. In persistent blocks with one slot, outputs
  /// overlay the exchanged tiles and the staging buffers, because the next residents are loaded
  /// into the buffers of the residents.
  bool overlaysStaging = false;
  SmallVector<RingPlan> rings; ///< one per streamed tile
  /// For each ring of converted or transposed tiles, the ring of their source tiles (F1, F3).
  SmallVector<std::optional<RingPlan>> sources;
  /// Stages of a ring of rewritten tiles: products read one while the next is rewritten.
  static constexpr int64_t kRewrittenStages = 2;
  SmallVector<unsigned> rows;           ///< each memref<stages x elements x f32>
  int64_t residentFull = 0;             ///< first of programs * slots mbarriers
  std::optional<int64_t> residentEmpty; ///< likewise, if persistent; nullopt: rings signal it
  SmallVector<unsigned> exchanged;      ///< each memref<2 x panels x rows x panel columns>
  int64_t exchangeReady = 0;            ///< first of two mbarriers per exchanged tile
  int64_t bufferFree = 0;               ///< if `passes`: first of two mbarriers of free buffers
  /// If spare warps add tiles: the first of the mbarriers, one per spare warp, that signal that the
  /// tile of the warp's step is staged; and the first of the mbarriers, one per staging buffer,
  /// that signal that the buffer is free.
  int64_t staged = 0, stagingFree = 0;
  /// Warps of the producer warpgroup that load no tiles.
  static constexpr int64_t kSpareWarps = 3;
  /// Staging buffers of added tiles, each memref<warps x elements x f32>: one, or `dqReduceStages`.
  SmallVector<unsigned> staging;
  /// Number of groups whose description is kept at once. If the rings signal that residents may be
  /// loaded, there are two, because some threads may not have read the previous description yet.
  int64_t slots = 1;
  unsigned barriers = 0;           ///< memref<barriers x i64>
  unsigned bounds = 0;             ///< memref<slots x intervals x 2 x i32>
  std::optional<unsigned> numbers; ///< memref<slots x 4 x i32>: groups, if one thread finds them
};

/// Returns the shared memory plan of `block`.
WarpgroupBlockPlan planWarpgroupBlock(const WarpgroupBlock &block);

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// The registers per thread for attention by `mma.sync`. 16 rows of a tile are distributed to 8
/// groups of 4 threads.
struct MmaRegisters {
  int64_t output, scores; ///< accumulators
  int64_t attnMask;       ///< elements loaded from `attn_mask`, one byte each, and their addresses
  int64_t queries;        ///< operand fragments of Q (f32 as two halves), if kept in registers
};

/// Returns the registers for tiles of `rows` x `keys`. The `warps` divide the rows; `d` and `dv`
/// are padded to 16.
MmaRegisters countMmaRegisters(int64_t rows, int64_t keys, int64_t warps, int64_t d, int64_t dv,
                               bool isF32, bool hasAttnMask);

/// Whether warps that share the rows of a product may compute `columns` columns each.
inline bool isWholePart(int64_t columns) { return columns >= 16 && llvm::isPowerOf2_64(columns); }

/// Whether a thread by default keeps its fragment of Q in registers during all steps, because the
/// accumulators leave enough registers for the other operands. Otherwise every step loads the
/// fragment again.
bool holdsQueries(const MmaRegisters &registers);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_RESOURCEPLANS_H
