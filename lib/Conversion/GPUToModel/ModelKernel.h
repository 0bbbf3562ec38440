//===- ModelKernel.h - a kernel that becomes a function of the host -*- C++ -*-===//

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

/// A kernel's body, whose ops become calls of the model one by one. Each op is a place, with a
/// number, an op's name and its location.
class ModelKernel {
public:
  /// `thread` points to a ThreadView.
  ModelKernel(func::FuncOp function, Value thread, llvm::StringMap<LLVM::LLVMFuncOp> &functions);

  /// Calls the model's function `name` with the thread, the op's place and `arguments`, in front of
  /// the builder's point. Its result, or null without a type.
  Value call(OpBuilder &builder, Operation *op, StringRef name, ValueRange arguments,
             Type result = {});
  /// The address of an element of a memref.
  Value getPointer(OpBuilder &builder, Location loc, Value memref, ValueRange indices = {});
  /// The address of `bytes` bytes of the thread's own, whose contents the next op may overwrite.
  Value getScratch(OpBuilder &builder, Location loc, int64_t bytes, int64_t offset = 0);
  /// Puts a value to scratch memory; its address.
  Value spill(OpBuilder &builder, Location loc, Value value, int64_t offset = 0);
  /// The i32 field of the thread's view at number `field`.
  Value getField(OpBuilder &builder, Location loc, int64_t field);
  /// A field of pointer size behind the twelve numbers.
  Value getWideField(OpBuilder &builder, Location loc, int64_t field, Type type);
  /// Counts what an op computes, for the model's time; the next call says how much it was.
  void addWork(Operation *op);
  Value getThread() const { return thread; }
  func::FuncOp getFunction() const { return function; }

  /// The texts of all places, with a line feed in front of each.
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
  int64_t elements = 0; ///< computed since the last call
  llvm::DenseMap<Operation *, int32_t> placeOf;
  llvm::DenseSet<Operation *> called; ///< ops that have, for what they do themselves
};

/// Gives globals in a block's memory, and a thread's own memory, their places in each kernel.
void prepareKernels(gpu::GPUModuleOp container);

/// Replaces an op that does more than compute its results; leaves what only does so. Errors: an op
/// that the model does not have.
LogicalResult convertOp(Operation *op, ModelKernel &kernel);

/// Lets the model see uses of registers that a product may still write.
void checkProductUses(ModelKernel &kernel);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_CONVERSION_GPUTOMODEL_MODELKERNEL_H
