//===- Pipelines.h - from attention ops to code that runs --------*- C++ -*-===//

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

/// Points at which every pipeline has a module worth reading, whatever the passes between them.
enum class PipelineStage {
  Scheduled, ///< attention ops with the schedules that were chosen for them
  Tiled,     ///< tile programs: the softmax on tile values, before anything of a target
  Lowered,   ///< the LLVM dialect, of kernels too, which are not PTX yet
};
/// Sees the module at each stage, in order; a pipeline that fails has no further ones.
using StageVisitor = std::function<void(PipelineStage stage, ModuleOp module)>;

/// What both pipelines begin with: attention ops on tensors or memrefs to such on memrefs, each
/// with a schedule for `chip`, "cpu" or sm_XX: `schedule`, or what fits. `vectorWidth` is as of
/// flashattn-select-schedule.
void buildFlashAttnSchedulePipeline(OpPassManager &pm, StringRef chip, int64_t vectorWidth,
                                    StringRef schedule, const StageVisitor &visit = {});

/// From attention ops on tensors or memrefs to the LLVM dialect, for Executable::create.
/// Public functions get a C interface (`llvm.emit_c_interface`).
void buildFlashAttnToCPUPipeline(OpPassManager &pm, const FlashAttnToCPUOptions &options,
                                 const StageVisitor &visit = {});

/// The same with kernels as `gpu.binary` ops that hold PTX. With `background` they do not: their
/// PTX is made there, while the host code is lowered and after.
void buildFlashAttnToNVVMPipeline(OpPassManager &pm, const FlashAttnToNVVMOptions &options,
                                  const StageVisitor &visit = {},
                                  KernelsToPTX *background = nullptr);

/// The same kernels as functions of the host, for a model of the GPU (flashattn/Runtime/Model.h).
void buildFlashAttnToModelPipeline(OpPassManager &pm, const FlashAttnToNVVMOptions &options,
                                   const StageVisitor &visit = {});

/// Registers them as `flashattn-to-cpu`, `flashattn-to-nvvm` and `flashattn-to-model`.
void registerFlashAttnPipelines();

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_PIPELINES_PIPELINES_H
