//===- ScaledRows.cpp - keys and values of 8 bits (rules F1 and F2) -------===//

#include "Reference.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::flashattn;

static std::string getScaleName(StringRef name) { return (name + "_scale").str(); }

static bool hasRowScales(const AttentionProblem &problem, StringRef name) {
  return llvm::is_contained(problem.rowScales, getScaleName(name));
}

bool flashattn::roundsScaled(const AttentionProblem &problem, StringRef name) {
  const HostTensor *scales = problem.getOperand(getScaleName(name));
  // Only the CPU takes such scales beside f8, and computes in f32.
  return scales && problem.scalar != Scalar::F32 && !isF8(problem.scalar) &&
         (hasRowScales(problem, name) || scales->getShape().back() > 1);
}

/// Returns the batch of the scales of each key row of batch `b`; -1 for rows of no sequence.
static std::vector<int64_t> findBatches(const AttentionProblem &problem, StringRef name,
                                        int64_t b) {
  // Packed rows have scales in one batch.
  if (hasRowScales(problem, name) || !problem.getOperand("cu_seqlens_k"))
    return std::vector<int64_t>(problem.numKeys, b);
  std::vector<int64_t> batches(problem.numKeys, -1);
  for (const AttentionProblem::Sequence &of : problem.getSequences(b))
    std::fill_n(batches.begin() + of.firstKey, of.numKeys, of.b);
  return batches;
}

ScaledRows flashattn::readScaledRows(const AttentionProblem &problem, StringRef name, int64_t b,
                                     int64_t h) {
  int64_t width = problem.getOperand(name)->getShape().back();
  ScaledRows rows;
  rows.exact.resize(problem.numKeys * width);
  readHead(*problem.getOperand(name), problem.isBSHD, b, h, problem.keyHeads, problem.numKeys,
           width, rows.exact.data());
  const HostTensor *scales = problem.getOperand(getScaleName(name));
  if (!scales)
    return rows;
  ArrayRef<int64_t> shape = scales->getShape();
  int64_t heads = shape[problem.isBSHD ? 2 : 1], length = shape[problem.isBSHD ? 1 : 2],
          blocks = shape.back();
  bool isPerRow = hasRowScales(problem, name);
  std::vector<int64_t> batches = findBatches(problem, name, b);
  for (int64_t k = 0; k < problem.numKeys; ++k) {
    if (batches[k] < 0)
      continue;
    int64_t first = getRowStart(problem.isBSHD, std::min(batches[k], shape[0] - 1),
                                std::min(h, heads - 1), isPerRow ? k : 0, heads, length, blocks);
    for (int64_t d = 0; d < width; ++d)
      rows.exact[k * width + d] *= float(scales->get(first + d / (width / blocks)));
  }
  if (!roundsScaled(problem, name))
    return rows;
  rows.rounded.reserve(rows.exact.size());
  for (float value : rows.exact)
    rows.rounded.push_back(roundTo(problem.scalar, value));
  return rows;
}
