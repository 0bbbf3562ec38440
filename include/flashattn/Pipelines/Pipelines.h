//===- Pipelines.h - from attention ops to executable code ------*- C++ -*-===//

#ifndef FLASHATTN_PIPELINES_PIPELINES_H
#define FLASHATTN_PIPELINES_PIPELINES_H

#include "flashattn/Target/Machine.h"
#include "mlir/Pass/PassOptions.h"
#include "llvm/ADT/StringRef.h"

#include <functional>

namespace mlir {
class ModuleOp;
class OpPassManager;
namespace flashattn {
class KernelsToPTX;

struct FlashAttnToCPUOptions : public PassPipelineOptions<FlashAttnToCPUOptions> {
  PassOptions::Option<int64_t> vectorWidth{
      *this, "vector-width", llvm::cl::desc("f32 lanes of a vector register"), llvm::cl::init(16)};
  PassOptions::Option<std::string> schedule{
      *this, "schedule",
      llvm::cl::desc("fields of a schedule to pin, as of flashattn-select-schedule")};
  PassOptions::Option<bool> fuseProjection{
      *this, "fuse-projection",
      llvm::cl::desc("multiply each head's output as soon as it is finished"),
      llvm::cl::init(false)};
  PassOptions::Option<bool> raise{
      *this, "raise",
      llvm::cl::desc("make attention ops of matmul, softmax, matmul (flashattn-raise-attention)"),
      llvm::cl::init(false)};
};

struct FlashAttnToNVVMOptions : public PassPipelineOptions<FlashAttnToNVVMOptions> {
  PassOptions::Option<std::string> chip{*this, "chip", llvm::cl::desc("GPU, as sm_XX"),
                                        llvm::cl::init(Machine::getBaselineGPU().str())};
  PassOptions::Option<std::string> schedule{
      *this, "schedule",
      llvm::cl::desc("fields of a schedule to pin, as of flashattn-select-schedule")};
  PassOptions::Option<bool> raise{
      *this, "raise",
      llvm::cl::desc("make attention ops of matmul, softmax, matmul (flashattn-raise-attention)"),
      llvm::cl::init(false)};
};

/// Points of every pipeline at which the module is worth inspecting.
enum class PipelineStage {
  Scheduled, ///< attention ops have schedules
  Tiled,     ///< tile programs: softmax on tile values, still independent of the target
  Lowered,   ///< LLVM dialect, for host code and for kernels, before kernels are compiled to PTX
};
/// Called with the module at each stage, in order. Not called after a failure of the pipeline.
using StageVisitor = std::function<void(PipelineStage stage, ModuleOp module)>;

/// Builds the common first passes of the pipelines: they lower attention ops on tensors or memrefs
/// to ops on memrefs, each with a schedule for `chip`, "cpu" or sm_XX. `vectorWidth` and the pinned
/// fields `schedule` are options of flashattn-select-schedule.
void buildFlashAttnSchedulePipeline(OpPassManager &pm, StringRef chip, int64_t vectorWidth,
                                    StringRef schedule, const StageVisitor &visit = {});

/// Builds the pipeline for the CPU: lowers attention ops on tensors or memrefs to the LLVM dialect,
/// for Executable::create. Public functions have a C interface (`llvm.emit_c_interface`).
void buildFlashAttnToCPUPipeline(OpPassManager &pm, const FlashAttnToCPUOptions &options,
                                 const StageVisitor &visit = {});

/// Builds the pipeline for GPUs: as above, with kernels as `gpu.binary` ops that contain PTX. With
/// `background`, these ops do not contain the PTX; `background` compiles it while the host code is
/// lowered, and afterwards.
void buildFlashAttnToNVVMPipeline(OpPassManager &pm, const FlashAttnToNVVMOptions &options,
                                  const StageVisitor &visit = {},
                                  KernelsToPTX *background = nullptr);

/// Builds the pipeline for a model of the GPU (flashattn/Runtime/Model.h), which lowers the same
/// kernels to host functions.
void buildFlashAttnToModelPipeline(OpPassManager &pm, const FlashAttnToNVVMOptions &options,
                                   const StageVisitor &visit = {});

/// Registers the pipelines as `flashattn-to-cpu`, `flashattn-to-nvvm` and `flashattn-to-model`.
void registerFlashAttnPipelines();

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_PIPELINES_PIPELINES_H
