//===- ModelKernel.h - a kernel as a host function --------------*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_GPUTOMODEL_MODELKERNEL_H
#define FLASHATTN_CONVERSION_GPUTOMODEL_MODELKERNEL_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::flashattn::model {

/// A kernel's body, whose ops are replaced by calls of the model. Each op has a place, an index
/// with the op's name and location, for reports.
class ModelKernel {
public:
  /// `thread` points to a ThreadView.
  ModelKernel(func::FuncOp function, Value thread, llvm::StringMap<LLVM::LLVMFuncOp> &functions);

  /// Calls the model's function `name` with the thread, the op's place and `arguments`, at the
  /// builder's insertion point. Returns its result, or null without a result type.
  Value call(OpBuilder &builder, Operation *op, StringRef name, ValueRange arguments,
             Type result = {});
  /// Returns the address of an element of a memref.
  Value getPointer(OpBuilder &builder, Location loc, Value memref, ValueRange indices = {});
  /// Returns the address of `bytes` bytes of private scratch memory. The next op may overwrite it.
  Value getScratch(OpBuilder &builder, Location loc, int64_t bytes, int64_t offset = 0);
  /// Stores a value to scratch memory. Returns its address.
  Value spill(OpBuilder &builder, Location loc, Value value, int64_t offset = 0);
  /// Loads i32 field number `field` of the thread's view.
  Value getField(OpBuilder &builder, Location loc, int64_t field);
  /// Loads pointer-size field number `field` after the twelve i32 fields.
  Value getWideField(OpBuilder &builder, Location loc, int64_t field, Type type);
  /// Counts the elements that an op computes, for the model's timing. The next call reports it.
  void addWork(Operation *op);
  Value getThread() const { return thread; }
  func::FuncOp getFunction() const { return function; }

  /// Returns the descriptions of all places, each after a line feed.
  const std::string &getPlaces() const { return places; }

private:
  int32_t getPlace(Operation *op);
  Value emit(OpBuilder &builder, Operation *op, StringRef name, ValueRange arguments, Type result);

  func::FuncOp function;
  Value thread;
  llvm::StringMap<LLVM::LLVMFuncOp> &functions;
  LLVM::ConstantOp scratchBytes;
  Value scratch;
  int64_t mostScratch = 16;
  std::string places;
  int32_t numPlaces = 0;
  int64_t elements = 0; ///< elements computed since the last call
  llvm::DenseMap<Operation *, int32_t> placeOf;
  llvm::DenseSet<Operation *> called; ///< ops that have already called the model
};

/// Turns globals in shared memory and private memory into buffers of each kernel.
void prepareKernels(gpu::GPUModuleOp container);

/// Replaces an op by calls of the model, unless the op only computes its results. Returns failure
/// after an error at an op that the model does not support.
LogicalResult convertOp(Operation *op, ModelKernel &kernel);

/// Inserts calls that report uses of registers that a product may still write.
void checkProductUses(ModelKernel &kernel);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_CONVERSION_GPUTOMODEL_MODELKERNEL_H
