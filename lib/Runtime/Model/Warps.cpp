//===- Warps.cpp - collective ops of a warp -------------------------------===//

#include "Functions.h"
#include "Product.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstring>

using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

namespace {

/// Calls `all` once for the first `count` threads of the warp, or for all of them, with the value
/// that each passes; `mine` is this thread's value.
template <typename T, typename F>
void together(Thread &thread, T &mine, F all, unsigned count = kWarpThreads) {
  Block &block = *thread.block;
  WarpSync &sync = block.getWarpSync(thread);
  if (!block.join(thread, sync, &mine, std::min(count, block.countLanes(thread.warp()))))
    return;
  llvm::SmallVector<T *, kWarpThreads> lanes;
  for (unsigned lane = 0; lane < sync.lanes; ++lane)
    lanes.push_back(static_cast<T *>(sync.arguments[lane]));
  all(block, lanes);
  block.release(thread, sync);
}

//===----------------------------------------------------------------------===//
// Shuffles and votes
//===----------------------------------------------------------------------===//

struct Shuffled {
  Thread *thread;
  uint32_t value, result;
  int32_t offset;
  bool isValid;
};

/// Returns the value, and in bit 32 whether it is valid.
int64_t shuffle(Thread *thread, int32_t place, int32_t mode, uint32_t value, int32_t offset,
                int32_t width) {
  thread->enter(place);
  Shuffled mine{thread, value, value, offset, false};
  if (width < 1 || width > int32_t(kWarpThreads))
    thread->block->fail(*thread, llvm::formatv("expected a shuffle of 1 to {0} threads but got {1}",
                                               kWarpThreads, width));
  if (int32_t(thread->lane()) >= width)
    thread->block->fail(*thread, llvm::formatv("expected a shuffle of {0} threads only in the "
                                               "first {0} threads of the warp but got a shuffle",
                                               width));
  together(
      *thread, mine,
      [mode](Block &, llvm::ArrayRef<Shuffled *> lanes) {
        for (int lane = 0; lane < int(lanes.size()); ++lane) {
          Shuffled &to = *lanes[lane];
          int from = to.offset;
          switch (static_cast<ShuffleMode>(mode)) {
          case ShuffleMode::Xor:
            from = lane ^ to.offset;
            break;
          case ShuffleMode::Up:
            from = lane - to.offset;
            break;
          case ShuffleMode::Down:
            from = lane + to.offset;
            break;
          case ShuffleMode::Idx:
            break;
          }
          to.isValid = from >= 0 && from < int(lanes.size());
          if (to.isValid)
            to.result = lanes[from]->value;
          for (int other = 0; other < int(lanes.size()); ++other)
            to.thread->shuffledAt[other] = lanes[other]->thread->now;
        }
        // Later reads have a later time.
        for (Shuffled *shuffled : lanes)
          ++shuffled->thread->now;
      },
      width);
  return int64_t(mine.isValid) << 32 | mine.result;
}

struct Voted {
  bool condition;
  int32_t answer;
};

int32_t vote(Thread *thread, int32_t place, int32_t kind, int32_t condition) {
  thread->enter(place);
  Voted mine{condition != 0, 0};
  together(*thread, mine, [kind](Block &, llvm::ArrayRef<Voted *> lanes) {
    uint32_t ballot = 0;
    for (unsigned lane = 0; lane < lanes.size(); ++lane)
      ballot |= uint32_t(lanes[lane]->condition) << lane;
    uint32_t everyone = lanes.size() == kWarpThreads ? ~0u : (1u << lanes.size()) - 1;
    int32_t answer = kind == int32_t(Vote::Any)   ? ballot != 0
                     : kind == int32_t(Vote::All) ? ballot == everyone
                                                  : ballot;
    for (Voted *voted : lanes)
      voted->answer = answer;
  });
  return mine.answer;
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

struct Loaded {
  Thread *thread;
  uint32_t offset;
  uint16_t *result;
};

void loadMatrix(Thread *thread, int32_t place, void *row, int32_t count, int32_t transposes,
                uint16_t *result) {
  thread->enter(place);
  constexpr int64_t kRowBytes = 16;
  constexpr int kMatrixRows = 8;
  Block &block = *thread->block;
  // For each matrix, eight threads pass the addresses of its rows.
  bool isAsked = int(thread->lane()) < count * kMatrixRows;
  Loaded mine{thread, 0, result};
  if (isAsked) {
    mine.offset = block.getShared(*thread, row, kRowBytes, kRowBytes);
    block.access(*thread, mine.offset, kRowBytes, /*writes=*/false);
    block.countAccess(*thread, mine.offset, kRowBytes, count * kMatrixRows);
  }
  together(*thread, mine, [=](Block &block, llvm::ArrayRef<Loaded *> lanes) {
    constexpr int kElementBytes = 2;
    for (int matrix = 0; matrix < count; ++matrix) {
      const char *rows[kMatrixRows];
      for (int i = 0; i < kMatrixRows; ++i)
        rows[i] = block.shared + lanes[matrix * kMatrixRows + i]->offset;
      for (int lane = 0; lane < int(lanes.size()); ++lane) {
        int outer = lane / 4, inner = lane % 4 * 2;
        uint16_t *to = lanes[lane]->result + matrix * 2;
        if (!transposes) {
          std::memcpy(to, rows[outer] + inner * kElementBytes, 2 * kElementBytes);
          continue;
        }
        std::memcpy(to, rows[inner] + outer * kElementBytes, kElementBytes);
        std::memcpy(to + 1, rows[inner + 1] + outer * kElementBytes, kElementBytes);
      }
    }
  });
}

struct Multiplied {
  const uint32_t *a, *b;
  float *c;
};

constexpr int kFragmentRows = 16, kFragmentColumns = 8;

/// Gathers operands of tf32: m16n8k8, one element per register.
void gatherTF32(llvm::ArrayRef<Multiplied *> lanes, float *a, float *b) {
  constexpr int kDepth = 8;
  auto read = [](uint32_t bits) {
    // The hardware ignores the bits that the type does not have.
    bits &= ~0x1fffu;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  };
  for (int lane = 0; lane < int(lanes.size()); ++lane) {
    int outer = lane / 4, inner = lane % 4;
    for (int i = 0; i < 4; ++i)
      a[(outer + i % 2 * 8) * kDepth + inner + i / 2 * 4] = read(lanes[lane]->a[i]);
    for (int i = 0; i < 2; ++i)
      b[(inner + i * 4) * kFragmentColumns + outer] = read(lanes[lane]->b[i]);
  }
}

/// Gathers operands of 16 bits: m16n8k16, two elements per register.
void gatherHalves(llvm::ArrayRef<Multiplied *> lanes, float *a, float *b, ProductElement element) {
  constexpr int kDepth = 16;
  uint16_t narrowA[kFragmentRows * kDepth], narrowB[kDepth * kFragmentColumns];
  for (int lane = 0; lane < int(lanes.size()); ++lane) {
    int outer = lane / 4, inner = lane % 4 * 2;
    for (int i = 0; i < 4; ++i)
      std::memcpy(narrowA + (outer + i % 2 * 8) * kDepth + inner + i / 2 * 8, lanes[lane]->a + i,
                  sizeof(uint32_t));
    for (int i = 0; i < 2; ++i) {
      uint16_t *to = narrowB + (inner + i * 8) * kFragmentColumns + outer;
      to[0] = lanes[lane]->b[i];
      to[kFragmentColumns] = lanes[lane]->b[i] >> 16;
    }
  }
  widen(a, narrowA, kFragmentRows * kDepth, element);
  widen(b, narrowB, kDepth * kFragmentColumns, element);
}

/// `mma.sync` m16n8: "Matrix fragments" of the PTX ISA for the instructions m16n8k16 and m16n8k8.
void multiplyWarp(Thread *thread, int32_t place, int32_t element, const uint32_t *a,
                  const uint32_t *b, float *c) {
  thread->enter(place);
  Multiplied mine{a, b, c};
  auto kind = static_cast<ProductElement>(element);
  together(*thread, mine, [kind](Block &, llvm::ArrayRef<Multiplied *> lanes) {
    bool isTF32 = kind == ProductElement::TF32;
    float a[kFragmentRows * 16], b[16 * kFragmentColumns], c[kFragmentRows * kFragmentColumns];
    if (isTF32)
      gatherTF32(lanes, a, b);
    else
      gatherHalves(lanes, a, b, kind);
    auto getPlace = [&](int lane, int i) {
      return c + (lane / 4 + i / 2 * 8) * kFragmentColumns + lane % 4 * 2 + i % 2;
    };
    for (int lane = 0; lane < int(lanes.size()); ++lane)
      for (int i = 0; i < 4; ++i)
        *getPlace(lane, i) = lanes[lane]->c[i];
    multiply(c, a, b, kFragmentRows, kFragmentColumns, isTF32 ? 8 : 16);
    for (int lane = 0; lane < int(lanes.size()); ++lane)
      for (int i = 0; i < 4; ++i)
        lanes[lane]->c[i] = *getPlace(lane, i);
  });
}

/// Adds the cost of the elements that a thread computes between other ops.
void work(Thread *thread, int32_t, int64_t elements) { thread->time += elements; }

} // namespace

llvm::ArrayRef<Function> mlir::flashattn::model::getWarpFunctions() {
  static const Function functions[] = {
      makeFunction("Work", work),
      makeFunction("Shuffle", shuffle),
      makeFunction("Vote", vote),
      makeFunction("LoadMatrix", loadMatrix),
      makeFunction("MultiplyWarp", multiplyWarp),
  };
  return functions;
}
