//===- Statistics.h - statistics of kernels ---------------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_STATISTICS_H
#define FLASHATTN_RUNTIME_MODEL_STATISTICS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace mlir::flashattn::model {

/// Costs in cycles of a multiprocessor: round numbers, to compare kernels with each other.
struct Costs {
  static constexpr int64_t kCopyLatency = 600, kCopyBytesPerCycle = 64;
  static constexpr int64_t kProductsPerCycle = 2048; ///< multiplications of 16-bit elements
  static constexpr int64_t kOp = 4;                  ///< an op for which the model is called
};

/// The counts of one place of a kernel.
struct PlaceCounts {
  static constexpr unsigned kMaxGroups = 8;
  std::array<int64_t, kMaxGroups> runs = {}; ///< by threads of each warpgroup
  int64_t waits = 0;                         ///< how often a thread had to wait
  int64_t accesses = 0;                      ///< of warps to shared memory
  int64_t conflicts = 0;                     ///< turns of the banks beyond one per access
};

/// A time span in which a role does the same thing.
struct Span {
  unsigned group; ///< a warpgroup; kProducts for products
  uint16_t place;
  bool waits;
  int64_t begin, end;

  static constexpr unsigned kProducts = ~0u;
};

/// The statistics of the blocks of a launch.
class Statistics {
public:
  void add(const Statistics &block);
  PlaceCounts &at(unsigned place);
  /// Counts `bytes` copied to shared memory that complete on a barrier.
  void addBytes(unsigned barrier, int64_t bytes) { barrierBytes[barrier] += bytes; }
  void addSpan(const Span &span) {
    if (span.end > span.begin)
      spans.push_back(span);
  }
  /// Counts an access of `bytes` at `offset` by a lane. The lanes of a warp at one place form one
  /// access.
  void addAccess(unsigned warp, unsigned lane, unsigned lanes, uint16_t place, uint32_t offset,
                 uint32_t bytes);

  /// Returns the statistics as text; `description` is that of the kernel.
  std::string print(llvm::StringRef description, int64_t blocks) const;
  /// Appends events of a Chrome trace, for the first block.
  void trace(llvm::StringRef description, unsigned process, llvm::json::Array &events) const;

private:
  struct WarpAccess {
    uint32_t lanes = 0, bytes = 0;
    uint32_t offsets[32];
  };
  /// Accesses of a warp at one place that some of its threads have not made yet, because a thread
  /// may run ahead of the others.
  struct OpenAccesses {
    std::array<int64_t, 32> counts = {}; ///< per thread
    int64_t finished = 0;
    std::deque<WarpAccess> accesses;
  };
  void finish(unsigned place, const WarpAccess &access);
  std::string picture() const;

  std::vector<PlaceCounts> places;
  std::map<unsigned, int64_t> barrierBytes;
  std::vector<Span> spans;
  std::map<std::pair<unsigned, uint16_t>, OpenAccesses> open; ///< by warp and place
};

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_STATISTICS_H
