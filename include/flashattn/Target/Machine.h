//===- Machine.h - machines to compile for ----------------------*- C++ -*-===//
//
// This file and the table in Chips.def are the only code that depends on chip names.
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
    kDependentLaunch = 1, ///< programmatic dependent launch: `griddepcontrol`
    kWarpgroups = 2,      ///< `wgmma`, TMA, `setmaxnreg`
  };
  StringLiteral name;
  int64_t ptxVersion;      ///< lowest version with the chip, 10 * major + minor
  int64_t sharedMemoryKiB; ///< available to one block
  unsigned features;
};

/// Returns all rows, in the order of the table.
ArrayRef<ChipInfo> getChips();

/// The target machine of a schedule: the CPU, or a GPU identified by the name of its chip.
class Machine {
public:
  static constexpr StringLiteral kCPU = "cpu";
  /// Returns the name of the first GPU of the table, whose code runs on every newer GPU.
  static StringRef getBaselineGPU();

  /// Returns the machine `name`. The CPU has vector registers of `vectorWidth` f32 lanes. Errors: a
  /// name that is not in the table, with the list of names; a width that no CPU has.
  static llvm::Expected<Machine> get(StringRef name, int64_t vectorWidth = 16);
  /// Returns the GPU `name`. Errors: any other name, with the list of GPUs.
  static llvm::Expected<Machine> getGPU(StringRef name);

  StringRef getName() const { return chip->name; }
  bool isCPU() const { return chip->name == kCPU; }
  int64_t getVectorWidth() const { return vectorWidth; }
  bool hasDependentLaunch() const { return chip->features & ChipInfo::kDependentLaunch; }
  /// Whether schedules may have warp specialization.
  bool hasWarpgroups() const { return chip->features & ChipInfo::kWarpgroups; }
  int64_t getPTXVersion() const { return chip->ptxVersion; }
  /// Returns the number of bytes of shared memory that one block may use.
  int64_t getSharedMemoryPerBlock() const { return chip->sharedMemoryKiB * 1024; }

private:
  Machine(const ChipInfo &chip, int64_t vectorWidth) : chip(&chip), vectorWidth(vectorWidth) {}

  const ChipInfo *chip;
  int64_t vectorWidth;
};

/// Returns the names of the chips with the feature, such as "sm_90 or sm_90a".
std::string listChips(ChipInfo::Feature feature);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_MACHINE_H
