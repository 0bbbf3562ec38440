//===- Passes.h - conversions of tile programs to targets -------*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_PASSES_H
#define FLASHATTN_CONVERSION_PASSES_H

#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::flashattn {

#define GEN_PASS_DECL
#include "flashattn/Conversion/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "flashattn/Conversion/Passes.h.inc"

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_PASSES_H
