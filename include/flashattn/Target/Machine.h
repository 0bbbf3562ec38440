//===- Machine.h - what there is to compile for ------------------*- C++ -*-===//
//
// The one place that knows a chip by name: its table is Chips.def.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_MACHINE_H
#define FLASHATTN_TARGET_MACHINE_H

#include "mlir/Support/LLVM.h"
#include "llvm/Support/Error.h"

namespace mlir::flashattn {

/// A row of Chips.def.
struct ChipInfo {
  enum Feature : unsigned {
    kNone = 0,
    kDependentLaunch = 1, ///< a kernel can wait itself for the one before it: `griddepcontrol`
    kWarpgroups = 2,      ///< `wgmma`, tensor copies and registers that warpgroups share out
  };
  StringLiteral name;
  int64_t ptxVersion;      ///< the lowest that has it, 10 * major + minor
  int64_t sharedMemoryKiB; ///< that one block may use
  unsigned features;
};

/// All rows, in the order of the table.
ArrayRef<ChipInfo> getChips();

/// Where a schedule is to run: the CPU, or a GPU by the name of its chip.
class Machine {
public:
  static constexpr StringLiteral kCPU = "cpu";
  /// The first GPU of the table, whose code every newer one runs.
  static StringRef getBaselineGPU();

  /// The machine of that name; the CPU has vector registers of `vectorWidth` f32 lanes. Errors: a
  /// name that no row has, with those that there are; a width that no CPU has.
  static llvm::Expected<Machine> get(StringRef name, int64_t vectorWidth = 16);
  /// The same of a GPU. Errors: any other name, with those of the GPUs alone.
  static llvm::Expected<Machine> getGPU(StringRef name);

  StringRef getName() const { return chip->name; }
  bool isCPU() const { return chip->name == kCPU; }
  int64_t getVectorWidth() const { return vectorWidth; }
  bool hasDependentLaunch() const { return chip->features & ChipInfo::kDependentLaunch; }
  /// Whether schedules may have roles.
  bool hasWarpgroups() const { return chip->features & ChipInfo::kWarpgroups; }
  int64_t getPTXVersion() const { return chip->ptxVersion; }
  /// Bytes of shared memory that one block may use.
  int64_t getSharedMemoryPerBlock() const { return chip->sharedMemoryKiB * 1024; }

private:
  Machine(const ChipInfo &chip, int64_t vectorWidth) : chip(&chip), vectorWidth(vectorWidth) {}

  const ChipInfo *chip;
  int64_t vectorWidth;
};

/// The names of the chips with the feature, as "sm_90 or sm_90a".
std::string listChips(ChipInfo::Feature feature);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_MACHINE_H
