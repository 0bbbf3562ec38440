//===- WgmmaToNVVM.cpp - asynchronous products to inline PTX ---------------===//

#include "InlinePTX.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn::hopper;

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// The elements of a flat vector as 32-bit registers: f32 each, 16-bit ones in pairs as i32.
static SmallVector<Value> unpackRegisters(OpBuilder &builder, Location loc, Value vector) {
  auto type = cast<VectorType>(vector.getType());
  if (!type.getElementType().isF32()) {
    type = VectorType::get(type.getNumElements() / 2, builder.getI32Type());
    vector = LLVM::BitcastOp::create(builder, loc, type, vector);
  }
  SmallVector<Value> registers;
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    Value at = LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(i));
    registers.push_back(LLVM::ExtractElementOp::create(builder, loc, vector, at));
  }
  return registers;
}

/// The vector of `type` that `unpackRegisters` makes `registers` of.
static Value packRegisters(OpBuilder &builder, Location loc, VectorType type,
                           ValueRange registers) {
  auto unpacked = VectorType::get(registers.size(), registers.front().getType());
  Value vector = LLVM::PoisonOp::create(builder, loc, unpacked);
  for (auto [i, value] : llvm::enumerate(registers)) {
    Value at = LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(i));
    vector = LLVM::InsertElementOp::create(builder, loc, vector, value, at);
  }
  return unpacked == type ? vector : LLVM::BitcastOp::create(builder, loc, type, vector);
}

/// "{$3, $4, …}", `count` placeholders from `first`.
static std::string placeholders(int64_t first, int64_t count) {
  std::string text = "{";
  for (int64_t i = 0; i < count; ++i)
    text += llvm::formatv("{0}${1}", i ? ", " : "", first + i);
  return text + "}";
}

//===----------------------------------------------------------------------===//
// Operands in shared memory
//===----------------------------------------------------------------------===//

/// How an operand is read through descriptors ("Matrix descriptor" of the PTX ISA's asynchronous
/// warpgroup instructions). Descriptors count in units of 16 bytes.
struct OperandLayout {
  SharedTile tile;
  /// The contraction runs along rows of the tile, not along columns ("MN-major").
  bool transposed;

  static constexpr int64_t kUnit = 16;

  /// All of the descriptor but the address. The stride offset is from 8 rows to the next 8; the
  /// leading offset is from a panel to the next where those lie along M or N, and else unused.
  uint64_t getFields() const {
    uint64_t leading = transposed ? tile.getPanelBytes() / kUnit : 1;
    uint64_t stride = 8 * tile.getRowBytes() / kUnit;
    uint64_t swizzle = 1 + llvm::Log2_64(128 / tile.getRowBytes()); // 128, 64, 32 bytes
    return leading << 16 | stride << 32 | swizzle << 62;
  }

  /// What to add to the descriptor for the step'th 16 elements of the contraction.
  int64_t getStep(int64_t step) const {
    if (transposed)
      return step * kWgmmaDepth * tile.getRowBytes() / kUnit;
    int64_t perPanel = tile.panelColumns / kWgmmaDepth;
    return (step / perPanel * tile.getPanelBytes() + step % perPanel * kWgmmaDepth * 2) / kUnit;
  }

  /// The descriptor of the tile at the shared memory address `address`.
  Value createDescriptor(OpBuilder &builder, Location loc, Value address) const {
    Type i64 = builder.getI64Type();
    Value four = LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(4));
    Value fields = LLVM::ConstantOp::create(
        builder, loc, builder.getI64IntegerAttr(static_cast<int64_t>(getFields())));
    Value units = LLVM::LShrOp::create(builder, loc, address, four);
    Value wide = LLVM::ZExtOp::create(builder, loc, i64, units);
    return LLVM::OrOp::create(builder, loc, wide, fields);
  }
};

//===----------------------------------------------------------------------===//
// Products and waits
//===----------------------------------------------------------------------===//

namespace {
/// One block of assembly for fence, all steps and commit: nothing can come between them.
struct WgmmaLowering : ConvertOpToLLVMPattern<WgmmaOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(WgmmaOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto type = cast<VectorType>(op.getD().getType());
    int64_t n = op.getColumns(), steps = op.getContraction() / kWgmmaDepth;
    OperandLayout b{*SharedTile::get(op.getB().getType()), op.getTransposed()};
    std::optional<OperandLayout> a;
    if (std::optional<SharedTile> tile = SharedTile::get(op.getA().getType()))
      a = OperandLayout{*tile, /*transposed=*/false};

    // Operands: the results, A's registers or descriptor, B's descriptor, the accumulator.
    int64_t results = type.getNumElements();
    SmallVector<Value> inputs;
    if (a) {
      inputs.push_back(createDescriptor(*a, op.getA(), adaptor.getA(), loc, rewriter));
    } else {
      inputs = unpackRegisters(rewriter, loc, adaptor.getA());
      inputs.truncate(4 * steps);
    }
    int64_t bPlace = results + inputs.size();
    inputs.push_back(createDescriptor(b, op.getB(), adaptor.getB(), loc, rewriter));
    SmallVector<Value> tied;
    if (op.getAcc())
      tied = unpackRegisters(rewriter, loc, adaptor.getAcc());

    StringRef element = b.tile.elementType.isF16() ? "f16" : "bf16";
    std::string registers = placeholders(0, results);
    std::string text = "{\n.reg .pred accumulate, overwrite;\n.reg .b64 da, db;\n"
                       "setp.eq.b32 accumulate, 0, 0;\nsetp.ne.b32 overwrite, 0, 0;\n"
                       "wgmma.fence.sync.aligned;\n";
    for (int64_t step = 0; step < steps; ++step) {
      // A's descriptor, or its four registers of this step.
      std::string aText = placeholders(results + 4 * step, 4);
      if (a) {
        aText = "da";
        text += llvm::formatv("add.s64 da, ${0}, {1};\n", results, a->getStep(step));
      }
      text += llvm::formatv("add.s64 db, ${0}, {1};\n", bPlace, b.getStep(step));
      // After the predicate: no negation of A and B, then whether each is transposed, of which A
      // has no choice in registers.
      text += llvm::formatv(
          "wgmma.mma_async.sync.aligned.m64n{0}k16.f32.{1}.{1} {2}, {3}, db, {4}, 1, 1{5}, {6};\n",
          n, element, registers, aText, step || op.getAcc() ? "accumulate" : "overwrite",
          a ? ", 0" : "", op.getTransposed() ? 1 : 0);
    }
    text += "wgmma.commit_group.sync.aligned;\n}";

    SmallVector<Type> types(results, rewriter.getF32Type());
    SmallVector<Value> values = createInlinePTX(rewriter, loc, text, types, inputs, tied);
    rewriter.replaceOp(op, packRegisters(rewriter, loc, type, values));
    return success();
  }

private:
  Value createDescriptor(const OperandLayout &layout, Value memref, Value converted, Location loc,
                         OpBuilder &builder) const {
    return layout.createDescriptor(
        builder, loc, createSharedAddress(builder, loc, *getTypeConverter(), memref, converted));
  }
};

struct WgmmaWaitLowering : ConvertOpToLLVMPattern<WgmmaWaitOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(WgmmaWaitOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    SmallVector<Value> tied;
    SmallVector<size_t> ends;
    for (Value value : adaptor.getValues()) {
      llvm::append_range(tied, unpackRegisters(rewriter, loc, value));
      ends.push_back(tied.size());
    }
    if (op.getHeld())
      createInlinePTX(rewriter, loc, "// held", {}, {});
    std::string text = llvm::formatv("wgmma.wait_group.sync.aligned {0};", op.getPending());
    SmallVector<Type> types = llvm::map_to_vector(tied, [](Value v) { return v.getType(); });
    SmallVector<Value> registers = createInlinePTX(rewriter, loc, text, types, {}, tied);
    SmallVector<Value> results;
    size_t begin = 0;
    for (auto [result, end] : llvm::zip(op.getResults(), ends)) {
      results.push_back(packRegisters(rewriter, loc, cast<VectorType>(result.getType()),
                                      ArrayRef(registers).slice(begin, end - begin)));
      begin = end;
    }
    rewriter.replaceOp(op, results);
    return success();
  }
};
} // namespace

void mlir::flashattn::hopper::populateWgmmaToNVVMPatterns(LLVMTypeConverter &converter,
                                                          RewritePatternSet &patterns) {
  patterns.add<WgmmaLowering, WgmmaWaitLowering>(converter);
}
