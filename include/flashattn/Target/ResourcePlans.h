//===- ResourcePlans.h - the memory and registers of a block -----*- C++ -*-===//
//
// One plan for who refuses a schedule and for who builds its code: what is planned is what is
// allocated.
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

/// A part of a need, such as 49152 bytes of "q".
struct Need {
  StringRef name;
  int64_t count;
};

/// "needs 182 registers a thread (o 128, scores 54) of 160 available", with `what` as the unit and
/// `available` in words behind the number; empty where the needs fit. Parts of 0 are left out.
std::string explainNeeds(StringRef what, ArrayRef<Need> needs, int64_t available,
                         StringRef availability = "available");

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// A buffer of a block's shared memory.
struct SharedBuffer {
  StringRef name;
  SmallVector<int64_t> shape; ///< elements
  int64_t elementBytes = 0;
  int64_t offset = 0;  ///< bytes, from where the block's memory begins
  bool isOver = false; ///< whether it takes the place of others
  int64_t getBytes() const;
};

/// Buffers one behind the other.
class SharedMemoryPlan {
public:
  /// Adds a buffer at the next multiple of `alignment` bytes and returns its number. The block's
  /// memory begins at a multiple of 1024.
  unsigned add(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes, int64_t alignment);
  /// The same from byte `offset` on, over other buffers, which are used at other times.
  unsigned addOver(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes, int64_t offset);
  ArrayRef<SharedBuffer> getBuffers() const { return buffers; }
  const SharedBuffer &operator[](unsigned number) const { return buffers[number]; }
  /// Bytes up to the end of the last buffer.
  int64_t getBytes() const { return bytes; }
  /// Why it does not fit `available` bytes, buffer by buffer; empty where it does.
  std::string explainRefusal(int64_t available) const;

private:
  SmallVector<SharedBuffer> buffers;
  int64_t bytes = 0;
};

/// A tile of an operand: rows of `columns` elements.
struct TileShape {
  StringRef name; ///< of its buffer, such as "q"
  int64_t rows, columns;
};

/// Tiles as asynchronous copies of 16 bytes bring them, memref<copies x rows x columns>: one of
/// each resident operand, `stages` of each streamed one; and one of each that warps exchange.
/// Buffers stand in this order and in that of the operands.
SharedMemoryPlan planStagedTiles(ArrayRef<TileShape> resident, ArrayRef<TileShape> streamed,
                                 int64_t stages, int64_t elementBytes,
                                 ArrayRef<TileShape> exchanged = {});

/// Elements of a panel's row of a tile with rows of `columns` elements: tensor copies and products
/// read tiles in panels whose rows are as long as the widest swizzle that fits, 32, 64 or 128
/// bytes.
int64_t getPanelColumns(int64_t columns, int64_t elementBytes);

/// What a block of warpgroups with roles is asked to hold. Its operands' tiles are
/// memref<copies x panels x rows x panel columns>.
struct WarpgroupBlock {
  /// f32 elements that come with a streamed tile.
  struct Row {
    int64_t elements;
    unsigned stream; ///< the tile's number
  };

  SmallVector<TileShape> residents; ///< each program's own, as the queries are
  SmallVector<TileShape> streamed;  ///< shared by all, as keys and values are
  SmallVector<TileShape> outputs;   ///< each program's, where they leave by tensor copies
  int64_t elementBytes = 2;         ///< of all tiles
  int64_t consumers = 1, stages = 1;
  /// Whether a step reads the first streamed tile to the end of the next one, and each other with
  /// one product before: it has a stage more, and they one less.
  bool skews = false;
  int64_t programs = 1; ///< of a block: one for each consumer, or one that they share
  /// Tiles of the operands' type that consumers of one program hand each other, two places each.
  SmallVector<TileShape> exchanged;
  bool passes = false; ///< whether one consumer passes another the only one, which none else reads
  SmallVector<Row> rows;
  int64_t added = 0;     ///< f32 elements of a tile that consumers add to global memory
  int64_t addStages = 0; ///< places of that tile through which spare warps add it; 0: consumers do
  int64_t slots = 1;     ///< groups of residents; with 2 blocks are persistent
  bool claims = false;   ///< whether blocks claim groups, and are persistent with one slot too
  int64_t intervals = 1; ///< key loops whose bounds the block's programs share
};

/// Where a ring of streamed tiles is, and its barriers by number.
struct RingPlan {
  unsigned buffer;     ///< memref<stages x panels x rows x panel columns>
  int64_t stages;      ///< tiles that it has room for
  int64_t full, empty; ///< the first of as many barriers each
};

/// The shared memory of such a block. Operands' buffers are by number, in their order.
struct WarpgroupBlockPlan {
  SharedMemoryPlan memory;
  SmallVector<unsigned> residents;
  /// A resident's own buffer where the two are of one size, or of one with more panels that no
  /// other output fills, for by the time a consumer has its output it has done with that, but a
  /// sister may not.
  SmallVector<unsigned> outputs;
  /// Whether some output has a place of what is added. Persistent blocks of one slot have them in
  /// place of what consumers exchange and add in steps, for residents make room for the next ones.
  bool overlaysStaging = false;
  SmallVector<RingPlan> rings;          ///< one for each streamed operand
  SmallVector<unsigned> rows;           ///< memref<stages x elements x f32> each
  int64_t residentFull = 0;             ///< the first of programs * slots barriers
  std::optional<int64_t> residentEmpty; ///< the same, of persistent blocks; none: rings say it
  SmallVector<unsigned> exchanged;      ///< memref<2 x panels x rows x panel columns> each
  int64_t exchangeReady = 0;            ///< the first of two barriers for each of these
  int64_t placeFree = 0;                ///< the same, where a tile is passed
  /// Where spare warps add: for each of them a barrier of whether its step's tile is staged, and
  /// for each place one of whether it is free. The first of each.
  int64_t staged = 0, stagingFree = 0;
  /// Warps of the producer's group that bring no tiles.
  static constexpr int64_t kSpareWarps = 3;
  /// memref<warps x elements x f32>: what is added. One, or one for each place of what spare warps
  /// add.
  SmallVector<unsigned> staging;
  /// Groups that a block is told of at a time: where rings say that residents may come, some may
  /// have yet to read what is said of the group before.
  int64_t slots = 1;
  unsigned barriers = 0;           ///< memref<barriers x i64>
  unsigned bounds = 0;             ///< memref<slots x intervals x 2 x i32>
  std::optional<unsigned> numbers; ///< memref<slots x 4 x i32>: what a persistent block is at
};

WarpgroupBlockPlan planWarpgroupBlock(const WarpgroupBlock &block);

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// The registers that a thread of `mma.sync` products holds at once: 16 rows of a tile are 8 lanes'
/// of 4 threads.
struct MmaRegisters {
  int64_t output, scores; ///< accumulators
  int64_t keep;           ///< what is loaded of a keep, in bytes of their own, with where it is
  int64_t queries;        ///< the queries as operands, f32 as two halves, where they are held
};

/// Of attention on tiles of `rows` x `keys`, `rows` shared by `warps`; `d` and `dv` are padded
/// to 16.
MmaRegisters countMmaRegisters(int64_t rows, int64_t keys, int64_t warps, int64_t d, int64_t dv,
                               bool isF32, bool hasKeep);

/// Whether warps that have the same rows of a product may have `columns` of it each.
inline bool isWholePart(int64_t columns) { return columns >= 16 && llvm::isPowerOf2_64(columns); }

/// Whether a thread holds its part of the queries all along, if nothing else is asked for: beside
/// the accumulators that leaves room for the other operands. Otherwise every step reads them again.
bool holdsQueries(const MmaRegisters &registers);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_RESOURCEPLANS_H
