//===- Machine.cpp - machines to compile for ------------------------------===//

#include "flashattn/Target/Machine.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

ArrayRef<ChipInfo> flashattn::getChips() {
  constexpr unsigned kNone = ChipInfo::kNone, kDependentLaunch = ChipInfo::kDependentLaunch,
                     kWarpgroups = ChipInfo::kWarpgroups;
  static constexpr ChipInfo kChips[] = {
#define CHIP(name, ptx, sharedKiB, features) {name, ptx, sharedKiB, features},
#include "flashattn/Target/Chips.def"
  };
  return kChips;
}

StringRef Machine::getBaselineGPU() {
  return llvm::find_if(getChips(), [](const ChipInfo &chip) { return chip.name != kCPU; })->name;
}

/// Returns the error that `name` is not a chip or, if `wantsGPU`, not a GPU.
static llvm::Error refuseName(StringRef name, bool wantsGPU) {
  auto wanted = llvm::make_filter_range(
      getChips(), [&](const ChipInfo &chip) { return !wantsGPU || chip.name != Machine::kCPU; });
  auto names =
      llvm::map_range(wanted, [](const ChipInfo &chip) { return "'" + chip.name.str() + "'"; });
  return llvm::createStringError("expected chip " + llvm::join(names, ", ") + " but got '" + name +
                                 "'");
}

llvm::Expected<Machine> Machine::get(StringRef name, int64_t vectorWidth) {
  auto row = llvm::find_if(getChips(), [&](const ChipInfo &chip) { return chip.name == name; });
  if (row == getChips().end())
    return refuseName(name, /*wantsGPU=*/false);
  if (row->name == kCPU &&
      (vectorWidth < 1 || vectorWidth > 64 || !llvm::isPowerOf2_64(vectorWidth)))
    return llvm::createStringError(
        llvm::formatv("expected a vector width that is a power of two between 1 and 64 but got {0}",
                      vectorWidth));
  return Machine(*row, vectorWidth);
}

llvm::Expected<Machine> Machine::getGPU(StringRef name) {
  llvm::Expected<Machine> machine = get(name);
  if (machine && !machine->isCPU())
    return machine;
  llvm::consumeError(machine.takeError());
  return refuseName(name, /*wantsGPU=*/true);
}

std::string flashattn::listChips(ChipInfo::Feature feature) {
  auto with = llvm::make_filter_range(
      getChips(), [&](const ChipInfo &chip) { return chip.features & feature; });
  return llvm::join(llvm::map_range(with, [](const ChipInfo &chip) { return chip.name; }), " or ");
}
