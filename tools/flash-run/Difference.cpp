//===- Difference.cpp -----------------------------------------------------===//

#include "Difference.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Parallel.h"

#include <atomic>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;

bool flashattn::isAllFinite(const HostTensor &tensor) {
  std::atomic<bool> finite{true};
  constexpr int64_t kChunk = 1 << 16;
  llvm::parallelFor(0, llvm::divideCeil(tensor.getNumElements(), kChunk), [&](size_t chunk) {
    int64_t end = std::min(tensor.getNumElements(), int64_t(chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i)
      if (!std::isfinite(tensor.get(i))) {
        finite = false;
        return;
      }
  });
  return finite;
}

std::vector<Row> flashattn::chooseRows(int64_t groups, int64_t rowsOfGroup, double work,
                                       int64_t maxGroups, double maxWork) {
  std::vector<Row> rows;
  if (groups * rowsOfGroup == 0)
    return rows;
  if (work <= maxWork) {
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t i = 0; i < rowsOfGroup; ++i)
        rows.push_back({group, i});
    return rows;
  }
  int64_t chosenGroups = std::min(groups, maxGroups);
  double workPerRow = std::max(work / groups / rowsOfGroup, 1.0);
  int64_t wanted =
      std::max<int64_t>(std::min<double>(maxWork / workPerRow / chosenGroups, rowsOfGroup), 4);
  std::mt19937_64 random(kSampleSeed);
  for (int64_t n = 0; n < chosenGroups; ++n) {
    // Spread over all groups, including the last.
    int64_t group = chosenGroups == 1 ? 0 : n * (groups - 1) / (chosenGroups - 1);
    std::vector<int64_t> chosen = {0, rowsOfGroup - 1};
    while (int64_t(chosen.size()) < wanted)
      chosen.push_back(random() % rowsOfGroup);
    llvm::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (int64_t i : chosen)
      rows.push_back({group, i});
  }
  return rows;
}

Difference flashattn::sum(ArrayRef<Difference> parts) {
  Difference whole;
  for (const Difference &part : parts)
    whole.merge(part);
  return whole;
}
