//===- Emit.cpp -----------------------------------------------------------===//

#include "Emit.h"
#include "flashattn/Target/Schedules.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Expected;

/// Prints lines such as "file:line:column: op: tile_m = …".
static void printSchedules(ModuleOp module, raw_ostream &os) {
  module.walk([&](Operation *op) {
    auto schedule = op->getAttrOfType<ScheduleAttr>("schedule");
    if (!schedule)
      return;
    if (auto at = op->getLoc()->findInstanceOf<FileLineColLoc>())
      os << at.getFilename().getValue() << ":" << at.getLine() << ":" << at.getColumn() << ": ";
    os << op->getName() << ": " << formatFields(schedule.getFields()) << "\n";
  });
}

Expected<std::string> flashattn::emitText(ModuleOp module, const LoweringOptions &options,
                                          Emit what) {
  std::string text;
  llvm::raw_string_ostream os(text);
  LoweringOptions lowering = options;
  lowering.visitStage = [&](PipelineStage stage, ModuleOp now) {
    if (what == Emit::Schedule && stage == PipelineStage::Scheduled)
      printSchedules(now, os);
    if (what == Emit::Tiles && stage == PipelineStage::Tiled)
      now.print(os);
  };
  if (llvm::Error error = lower(module, lowering))
    return error;
  if (what == Emit::PTX) {
    text = getPTX(module);
    if (text.empty())
      return llvm::createStringError(
          "--emit=ptx: expected kernels but the module has none" +
          llvm::Twine(options.chip == "cpu" ? ": --chip=sm_XX compiles for a GPU" : ""));
  }
  if (what == Emit::LLVM) {
    llvm::LLVMContext context;
    std::unique_ptr<llvm::Module> translated = translateModuleToLLVMIR(module, context);
    if (!translated)
      return llvm::createStringError("the module cannot be translated to LLVM IR");
    translated->print(os, nullptr);
  }
  return text;
}
