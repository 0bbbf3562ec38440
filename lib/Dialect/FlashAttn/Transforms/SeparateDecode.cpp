//===- SeparateDecode.cpp - flashattn-separate-decode ---------------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Target/Schedules.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SEPARATEDECODE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {
struct SeparateDecodePass : flashattn::impl::SeparateDecodeBase<SeparateDecodePass> {
  void runOnOperation() override {
    getOperation()->walk([](AttentionOp op) {
      // With q_len, tiles would need to clear the rows past it.
      if (!op.hasPureBufferSemantics() || !op.getCuSeqlensQ() || op.getCuSeqlensK() ||
          op.getQLen() || op.getSchedule() || op.getLeastQueries() || op.getMostQueries())
        return;
      // With one query, half of the rows of a tile are unused (`unused_row_half`).
      SmallVector<int64_t> limits = {1};
      if (int64_t few = getMostDecodeQueries(op); few > 1)
        limits.push_back(few);
      OpBuilder b(op);
      for (int64_t most : limits) {
        cast<AttentionOp>(b.clone(*op)).setMaxSeqlenQ(most);
        op.setMinSeqlenQ(most + 1);
      }
    });
  }
};
} // namespace
