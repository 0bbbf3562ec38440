//===- ResourcePlans.h - memory and registers of a block --------*- C++ -*-===//
//
// The code that rejects schedules and the code that generates kernels use the same plan: the
// planned memory is the allocated memory.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_RESOURCEPLANS_H
#define FLASHATTN_TARGET_RESOURCEPLANS_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

#include <optional>
#include <string>

namespace mlir::flashattn {

/// A part of a requirement, such as 49152 bytes for "q".
struct Need {
  StringRef name;
  int64_t count;
};

/// Returns a text such as "needs 182 registers a thread (o 128, scores 54) of 160 available", where
/// `what` is the unit and `availability` follows the number that is available; empty if the
/// requirements fit. Parts of 0 are omitted.
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
  int64_t offset = 0;  ///< in bytes, from the beginning of the block's memory
  bool isOver = false; ///< whether it overlays other buffers
  int64_t getBytes() const;
};

/// A sequence of buffers.
class SharedMemoryPlan {
public:
  /// Adds a buffer at the next multiple of `alignment` bytes and returns its number. The block's
  /// memory begins at a multiple of 1024.
  unsigned add(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes, int64_t alignment);
  /// Same at byte `offset`, over other buffers, which are used at other times.
  unsigned addOver(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes, int64_t offset);
  ArrayRef<SharedBuffer> getBuffers() const { return buffers; }
  const SharedBuffer &operator[](unsigned number) const { return buffers[number]; }
  /// Returns the number of bytes up to the end of the last buffer.
  int64_t getBytes() const { return bytes; }
  /// Returns why the plan does not fit in `available` bytes, buffer by buffer; empty if it fits.
  std::string explainRefusal(int64_t available) const;

private:
  SmallVector<SharedBuffer> buffers;
  int64_t bytes = 0;
};

/// A tile of an operand: `rows` rows of `columns` elements.
struct TileShape {
  StringRef name; ///< name of its buffer, such as "q"
  int64_t rows, columns;
};

/// Plans the buffers of tiles that are loaded by asynchronous copies of 16 bytes, memref<copies x
/// rows x columns>: one of each resident operand, `stages` of each streamed operand, and one of
/// each tile that warps exchange. Buffers are in this order, and in that of the operands.
SharedMemoryPlan planStagedTiles(ArrayRef<TileShape> resident, ArrayRef<TileShape> streamed,
                                 int64_t stages, int64_t elementBytes,
                                 ArrayRef<TileShape> exchanged = {});

/// Returns the number of elements in a row of a panel, for a tile with rows of `columns` elements.
/// Tensor copies and products access tiles in panels whose rows are as long as the widest swizzle
/// that fits: 32, 64 or 128 bytes.
int64_t getPanelColumns(int64_t columns, int64_t elementBytes);

/// The buffers that a warp-specialized block needs. The tiles of its operands are memref<copies x
/// panels x rows x panel columns>.
struct WarpgroupBlock {
  /// f32 elements that are loaded with a streamed tile.
  struct Row {
    int64_t elements;
    unsigned stream; ///< number of the streamed tile
  };

  SmallVector<TileShape> residents; ///< one for each program, such as the queries
  SmallVector<TileShape> streamed;  ///< shared by all programs, such as keys and values
  SmallVector<TileShape> outputs;   ///< one for each program, if stored by tensor copies
  int64_t elementBytes = 2;         ///< element size of all tiles
  int64_t consumers = 1, stages = 1;
  /// Whether a step uses the first streamed tile until the end of the next step, and each other
  /// streamed tile in one product that comes earlier. The first then has one stage more, and the
  /// others one less.
  bool skews = false;
  int64_t programs = 1; ///< programs of a block: one per consumer, or one shared
  /// Tiles of the operands' type that the consumers of a program pass to each other, two buffers
  /// for each.
  SmallVector<TileShape> exchanged;
  bool passes = false; ///< whether there is one such tile, which one consumer passes to another
  SmallVector<Row> rows;
  int64_t added = 0;          ///< f32 elements of a tile that is added to global memory
  int64_t dqReduceStages = 0; ///< buffers from which spare warps add that tile; 0: consumers add
  int64_t slots = 1;          ///< groups of residents; with 2, blocks are persistent
  bool claims = false;        ///< whether blocks claim groups; then persistent with one slot too
  int64_t intervals = 1;      ///< key loops whose bounds the programs of a block share
};

/// The location of a ring of streamed tiles, and the numbers of its barriers.
struct RingPlan {
  unsigned buffer;     ///< memref<stages x panels x rows x panel columns>
  int64_t stages;      ///< number of tiles
  int64_t full, empty; ///< first of `stages` barriers each
};

/// The shared memory of such a block. The buffers of operands are given by their numbers, in order.
struct WarpgroupBlockPlan {
  SharedMemoryPlan memory;
  SmallVector<unsigned> residents;
  /// The buffers of outputs. An output uses the buffer of a resident of the same size, or of one
  /// with more panels that no other output uses. When a consumer has its output it no longer needs
  /// the resident, although a peer consumer may.
  SmallVector<unsigned> outputs;
  /// Whether some output overlays the buffers of added tiles. In persistent blocks with one slot,
  /// outputs overlay the tiles that consumers exchange and add in steps, because the buffers of the
  /// residents are needed for the next ones.
  bool overlaysStaging = false;
  SmallVector<RingPlan> rings;          ///< one per streamed operand
  SmallVector<unsigned> rows;           ///< each memref<stages x elements x f32>
  int64_t residentFull = 0;             ///< first of programs * slots barriers
  std::optional<int64_t> residentEmpty; ///< same, if persistent; nullopt: rings signal it
  SmallVector<unsigned> exchanged;      ///< each memref<2 x panels x rows x panel columns>
  int64_t exchangeReady = 0;            ///< first of two barriers for each of these
  int64_t placeFree = 0;                ///< same, if a tile is passed
  /// If spare warps add tiles: the first of the barriers, one for each spare warp, that signal that
  /// its step's tile is staged; and the first of the barriers, one for each buffer, that signal
  /// that it is free.
  int64_t staged = 0, stagingFree = 0;
  /// Warps of the producer warpgroup that load no tiles.
  static constexpr int64_t kSpareWarps = 3;
  /// Buffers of added tiles, memref<warps x elements x f32>: one, or one for each buffer from which
  /// spare warps add.
  SmallVector<unsigned> staging;
  /// The number of groups whose description is kept at once. If the rings signal that residents may
  /// be loaded, some threads may not have read the description of the previous group yet.
  int64_t slots = 1;
  unsigned barriers = 0;           ///< memref<barriers x i64>
  unsigned bounds = 0;             ///< memref<slots x intervals x 2 x i32>
  std::optional<unsigned> numbers; ///< memref<slots x 4 x i32>: groups of a persistent block
};

WarpgroupBlockPlan planWarpgroupBlock(const WarpgroupBlock &block);

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// The registers that a thread uses at once for `mma.sync` products. 16 rows of a tile are
/// distributed to 8 groups of 4 threads.
struct MmaRegisters {
  int64_t output, scores; ///< accumulators
  int64_t keep;           ///< elements loaded from `keep`, one byte each, and their addresses
  int64_t queries;        ///< queries as operands (f32 as two halves), if kept in registers
};

/// Counts the registers of attention on tiles of `rows` x `keys`; `warps` share the `rows`, and `d`
/// and `dv` are padded to 16.
MmaRegisters countMmaRegisters(int64_t rows, int64_t keys, int64_t warps, int64_t d, int64_t dv,
                               bool isF32, bool hasKeep);

/// Whether warps that share the rows of a product may have `columns` columns each.
inline bool isWholePart(int64_t columns) { return columns >= 16 && llvm::isPowerOf2_64(columns); }

/// Whether a thread keeps its part of the queries in registers during all steps by default, because
/// the accumulators leave enough registers for the other operands. Otherwise every step reads them
/// again.
bool holdsQueries(const MmaRegisters &registers);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_RESOURCEPLANS_H
