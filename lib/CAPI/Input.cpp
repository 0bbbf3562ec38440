//===- Input.cpp - parsing of input texts ---------------------------------===//

#include "Input.h"
#include "Status.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Signature.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

DialectRegistry capi::getInputRegistry(bool attentionOnly) {
  DialectRegistry registry;
  registry.insert<FlashAttnDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect,
                  memref::MemRefDialect>();
  if (!attentionOnly)
    registry.insert<affine::AffineDialect, bufferization::BufferizationDialect,
                    cf::ControlFlowDialect, gpu::GPUDialect, linalg::LinalgDialect, scf::SCFDialect,
                    shard::ShardDialect, tensor::TensorDialect, vector::VectorDialect>();
  return registry;
}

/// Returns the dialects that passes create, and the extensions that they require of ops.
static DialectRegistry getPassRegistry() {
  DialectRegistry registry;
  registerAllFlashAttnDialects(registry);
  registerAllFlashAttnExtensions(registry);
  return registry;
}

/// Whether a function has only its name, its type, and promises about its arguments.
static bool hasPlainAttributes(func::FuncOp function) {
  if (!function->getDiscardableAttrs().empty() || function.getResAttrsAttr() ||
      function.getNoInline() || !function.isPublic())
    return false;
  auto promisesRows = [](NamedAttribute attribute) {
    return attribute.getName() == FlashAttnDialect::getAlignedRowsAttrName();
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (DictionaryAttr attributes = function.getArgAttrDict(i))
      if (!llvm::all_of(attributes, promisesRows))
        return false;
  return true;
}

/// A10: checks that a score modification has only indices for which a launch checks the sizes of
/// the memrefs: the batch and the head.
static LogicalResult checkLoads(AttentionOpInterface op) {
  if (!op.hasScoreMod())
    return success();
  Block &body = op.getScoreMod().front();
  for (Operation &inner : body)
    if (isScoreModLoad(&inner))
      for (Value index : inner.getOperands().drop_front())
        if (index != body.getArgument(1) && index != body.getArgument(2))
          return inner.emitOpError() << "expected the batch and the head as indices in score_mod, "
                                        "for which a launch checks sizes, but got another value";
  return success();
}

/// Checks that the module is one function whose body is one attention, or one backward pass, on its
/// arguments. The op's verifier checks its regions.
static LogicalResult checkIsAttention(ModuleOp module) {
  auto refuse = [](Operation *op) {
    return op->emitError() << "expected one function around one attention but got '"
                           << op->getName() << "'";
  };
  Block &top = *module.getBody();
  if (top.empty() || !module->getAttrs().empty())
    return refuse(module);
  for (Operation &op : top) {
    auto function = dyn_cast<func::FuncOp>(op);
    if (!function || &op != &top.front() || !hasPlainAttributes(function) ||
        !llvm::hasSingleElement(function.getBody()))
      return refuse(&op);
    Block &body = function.front();
    for (Operation &inner : body) {
      bool isLast = &inner == &body.back();
      if (isLast ? !isa<func::ReturnOp>(inner) || body.without_terminator().empty() ||
                       inner.getNumOperands() || !inner.getAttrs().empty()
                 : !isa<AttentionOpInterface>(inner) || &inner != &body.front() ||
                       !inner.getDiscardableAttrs().empty())
        return refuse(&inner);
      if (auto attention = dyn_cast<AttentionOpInterface>(inner);
          attention && failed(checkLoads(attention)))
        return failure();
    }
  }
  return success();
}

OwningOpRef<ModuleOp> capi::parseModule(MLIRContext *context, StringRef text, bool attentionOnly) {
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text, "input"), SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, ParserConfig(context));
  if (!module || (attentionOnly && failed(checkIsAttention(*module))))
    return nullptr;
  context->appendDialectRegistry(getPassRegistry());
  return module;
}

//===----------------------------------------------------------------------===//
// Fragments of modules, each parsed alone
//===----------------------------------------------------------------------===//

namespace {
/// A context with a few dialects, and its errors.
struct PartContext {
  explicit PartContext(const DialectRegistry &registry)
      : context(registry, MLIRContext::Threading::DISABLED),
        handler(&context, [this](Diagnostic &diagnostic) {
          errors += (errors.empty() ? "" : "\n") + diagnostic.str();
          return success();
        }) {}

  MLIRContext context;
  std::string errors;
  ScopedDiagnosticHandler handler;
};
} // namespace

extern "C" int32_t flashattnCheckMask(const char *text) {
  if (!text)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected the text of a mask but got null");
  DialectRegistry registry;
  registry.insert<FlashAttnDialect>();
  PartContext part(registry);
  Attribute attribute = parseAttribute(text, &part.context);
  if (isa_and_nonnull<MaskAttrInterface>(attribute))
    return FLASHATTN_OK;
  if (attribute)
    part.errors = llvm::formatv("expected a mask attribute but got {0}", attribute).str();
  return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, part.errors);
}

/// Returns an op that defines `%aux0` and so on, as memrefs of any sizes.
static llvm::Expected<std::string> defineAux(llvm::ArrayRef<FlashAttnTensor> tensors) {
  std::string names, types;
  for (auto [i, tensor] : llvm::enumerate(tensors)) {
    bool isKnown = tensor.elementType >= FLASHATTN_F16 && tensor.elementType <= FLASHATTN_F8E5M2;
    if (!isKnown || tensor.rank < 0 || tensor.rank > 2)
      return llvm::createStringError(
          llvm::formatv("expected an element type and a rank from 0 to 2 of aux tensor {0} but got "
                        "{1} and {2}",
                        i, getName(tensor.elementType), tensor.rank)
              .str());
    // A score_mod has no f8, like the op (A10).
    if (tensor.elementType == FLASHATTN_F8E4M3FN || tensor.elementType == FLASHATTN_F8E5M2)
      return llvm::createStringError(
          llvm::formatv("expected aux tensor {0} of i1, i8, i32, i64, index, f16, bf16, f32 or f64 "
                        "but got {1}",
                        i, getName(tensor.elementType))
              .str());
    names += llvm::formatv("{0}%aux{1}", i ? ", " : "", i).str();
    types += i ? ", memref<" : "memref<";
    for (int32_t dim = 0; dim < tensor.rank; ++dim)
      types += "?x";
    types += std::string(getName(tensor.elementType)) + ">";
  }
  return names.empty() ? names : names + " = \"aux\"() : () -> (" + types + ")\n";
}

extern "C" int32_t flashattnCheckScoreMod(const char *text) {
  return flashattnCheckScoreModWithAux(text, /*tensors=*/nullptr, /*numTensors=*/0);
}

extern "C" int32_t flashattnCheckScoreModWithAux(const char *text, const FlashAttnTensor *tensors,
                                                 int32_t numTensors) {
  if (!text)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected the text of a score_mod but got null");
  if (numTensors < 0)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a number of aux tensors of at least 0 but got {0}", numTensors);
  if (numTensors > 0 && !tensors)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected {0} aux tensors but got null",
                    numTensors);
  llvm::ArrayRef<FlashAttnTensor> aux(tensors, numTensors);
  llvm::Expected<std::string> whole = defineAux(aux);
  if (!whole)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, llvm::toString(whole.takeError()));
  DialectRegistry registry;
  registry
      .insert<arith::ArithDialect, FlashAttnDialect, math::MathDialect, memref::MemRefDialect>();
  PartContext part(registry);
  // The op that contains the block, and the one that defines the aux tensors, are not registered.
  part.context.allowUnregisteredDialects();
  *whole += llvm::formatv("\"score_mod\"() ({{\n{0}\n}) : () -> ()\n", text).str();
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(*whole, ParserConfig(&part.context, /*verifyAfterParse=*/false));
  if (!module)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a block of a score_mod but got: " + part.errors);
  // A text that closes the region continues with something else.
  Block &top = *module->getBody();
  Operation &holder = top.back();
  bool isOne = std::distance(top.begin(), top.end()) == (aux.empty() ? 1 : 2);
  if (!isOne || holder.getNumRegions() != 1 || !holder.getAttrs().empty() ||
      !llvm::hasSingleElement(holder.getRegion(0)))
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected one block in score_mod but got several");
  for (Operation &op : holder.getRegion(0).front())
    if ((!isa<YieldOp>(op) && !isScoreModLoad(&op) &&
         !isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op.getDialect())) ||
        op.getNumRegions() || op.getNumSuccessors())
      return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                      "expected an op of arith or math, or a load, in score_mod but got '{0}'",
                      op.getName().getStringRef());
  return FLASHATTN_OK;
}
