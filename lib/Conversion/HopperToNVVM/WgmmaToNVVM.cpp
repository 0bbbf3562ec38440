//===- WgmmaToNVVM.cpp - wgmma to inline PTX ------------------------------===//

#include "InlinePTX.h"
#include "flashattn/Dialect/Hopper/IR/WgmmaOperand.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::flashattn::hopper;

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// Returns the elements of 8 bits in the order of registers: each holds four elements of a row, two
/// from each of two groups of 8 columns. The order of fragments exchanges the middle pairs of eight
/// elements, and the exchange is its own inverse.
static Value exchangePairs(OpBuilder &builder, Location loc, Value vector) {
  SmallVector<int32_t> order;
  for (int32_t i = 0; i < cast<VectorType>(vector.getType()).getNumElements(); i += 8)
    order.append({i, i + 1, i + 4, i + 5, i + 2, i + 3, i + 6, i + 7});
  return LLVM::ShuffleVectorOp::create(builder, loc, vector, vector, order);
}

/// Unpacks a 1-D vector into 32-bit registers: one per f32, one i32 per pair of 16-bit elements, or
/// per four elements of 8 bits.
static SmallVector<Value> unpackRegisters(OpBuilder &builder, Location loc, Value vector) {
  auto type = cast<VectorType>(vector.getType());
  int64_t bits = type.getElementTypeBitWidth();
  if (bits == 8)
    vector = exchangePairs(builder, loc, vector);
  if (!type.getElementType().isF32()) {
    type = VectorType::get(type.getNumElements() * bits / 32, builder.getI32Type());
    vector = LLVM::BitcastOp::create(builder, loc, type, vector);
  }
  SmallVector<Value> registers;
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    Value at = LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(i));
    registers.push_back(LLVM::ExtractElementOp::create(builder, loc, vector, at));
  }
  return registers;
}

/// Packs `registers` into a vector of `type`; the inverse of `unpackRegisters`.
static Value packRegisters(OpBuilder &builder, Location loc, VectorType type,
                           ValueRange registers) {
  if (type.getElementTypeBitWidth() == 8)
    type = type.clone(builder.getI8Type());
  auto unpacked = VectorType::get(registers.size(), registers.front().getType());
  Value vector = LLVM::PoisonOp::create(builder, loc, unpacked);
  for (auto [i, value] : llvm::enumerate(registers)) {
    Value at = LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(i));
    vector = LLVM::InsertElementOp::create(builder, loc, vector, value, at);
  }
  if (unpacked != type)
    vector = LLVM::BitcastOp::create(builder, loc, type, vector);
  return type.getElementTypeBitWidth() == 8 ? exchangePairs(builder, loc, vector) : vector;
}

/// Returns the name of an element type in the names of instructions.
static StringRef getPTXName(Type element) {
  return llvm::TypeSwitch<Type, StringRef>(element)
      .Case([](Float16Type) { return "f16"; })
      .Case([](Float8E4M3FNType) { return "e4m3"; })
      .Case([](Float8E5M2Type) { return "e5m2"; })
      .Default([](Type) { return "bf16"; });
}

/// Returns "{$3, $4, ...}": `count` placeholders from `first`.
static std::string placeholders(int64_t first, int64_t count) {
  std::string text = "{";
  for (int64_t i = 0; i < count; ++i)
    text += llvm::formatv("{0}${1}", i ? ", " : "", first + i);
  return text + "}";
}

//===----------------------------------------------------------------------===//
// Operands in shared memory
//===----------------------------------------------------------------------===//

/// Creates the wgmma descriptor of an operand at shared-memory address `address`.
static Value createDescriptor(OpBuilder &builder, Location loc, const WgmmaOperand &operand,
                              Value address) {
  Type i64 = builder.getI64Type();
  Value four = LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(4));
  Value fields = LLVM::ConstantOp::create(
      builder, loc, builder.getI64IntegerAttr(static_cast<int64_t>(operand.getFields())));
  Value units = LLVM::LShrOp::create(builder, loc, address, four);
  Value wide = LLVM::ZExtOp::create(builder, loc, i64, units);
  return LLVM::OrOp::create(builder, loc, wide, fields);
}

//===----------------------------------------------------------------------===//
// wgmma and waits
//===----------------------------------------------------------------------===//

namespace {
/// Lowers to one block of assembly from fence to commit, so that no instruction comes in between.
struct WgmmaLowering : ConvertOpToLLVMPattern<WgmmaOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(WgmmaOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto type = cast<VectorType>(op.getD().getType());
    WgmmaOperand b{*SharedTile::get(op.getB().getType()), op.getTransposed()};
    int64_t n = op.getColumns(), depth = b.getDepth(), steps = op.getContraction() / depth;
    std::optional<WgmmaOperand> a;
    if (std::optional<SharedTile> tile = SharedTile::get(op.getA().getType()))
      a = WgmmaOperand{*tile, op.getTransposedA()};

    // Operands: the results; A's registers, its descriptor, or the registers of its first columns
    // and its descriptor; B's descriptor; the accumulator.
    int64_t results = type.getNumElements();
    SmallVector<Value> inputs;
    if (op.getFirst())
      inputs = unpackRegisters(rewriter, loc, adaptor.getFirst());
    int64_t held = a ? inputs.size() / 4 : steps;
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

    StringRef aElement = getPTXName(getElementTypeOrSelf(op.getA().getType())),
              bElement = getPTXName(b.tile.elementType);
    bool isSum = op.getAcc() && !op.getOverwritten();
    std::string registers = placeholders(0, results);
    std::string text = "{\n.reg .pred accumulate, overwrite;\n.reg .b64 da, db;\n"
                       "setp.eq.b32 accumulate, 0, 0;\nsetp.ne.b32 overwrite, 0, 0;\n"
                       "wgmma.fence.sync.aligned;\n";
    for (int64_t step = 0; step < steps; ++step) {
      // A's descriptor, or its four registers for this step.
      bool isHeld = step < held;
      std::string aText = isHeld ? placeholders(results + 4 * step, 4) : "da";
      if (!isHeld)
        text += llvm::formatv("add.s64 da, ${0}, {1};\n", bPlace - 1, a->getStep(step));
      text += llvm::formatv("add.s64 db, ${0}, {1};\n", bPlace, b.getStep(step));
      // After the predicate: A and B are not negated (1, 1); then whether each is transposed. A in
      // registers has no transpose operand, and f8 has none at all.
      std::string transposed;
      if (b.tile.elementType.getIntOrFloatBitWidth() == 16)
        transposed = llvm::formatv("{0}, {1}",
                                   isHeld                ? ""
                                   : op.getTransposedA() ? ", 1"
                                                         : ", 0",
                                   op.getTransposed() ? 1 : 0);
      text += llvm::formatv(
          "wgmma.mma_async.sync.aligned.m64n{0}k{1}.f32.{2}.{3} {4}, {5}, db, {6}, 1, 1{7};\n", n,
          depth, aElement, bElement, registers, aText,
          step || isSum ? "accumulate" : "overwrite", transposed);
    }
    text += "wgmma.commit_group.sync.aligned;\n}";

    SmallVector<Type> types(results, rewriter.getF32Type());
    SmallVector<Value> values = createInlinePTX(rewriter, loc, text, types, inputs, tied);
    rewriter.replaceOp(op, packRegisters(rewriter, loc, type, values));
    return success();
  }

private:
  Value createDescriptor(const WgmmaOperand &operand, Value memref, Value converted, Location loc,
                         OpBuilder &builder) const {
    return ::createDescriptor(
        builder, loc, operand,
        createSharedAddress(builder, loc, *getTypeConverter(), memref, converted));
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

struct PinLowering : ConvertOpToLLVMPattern<PinOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(PinOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    SmallVector<Value> tied = unpackRegisters(rewriter, loc, adaptor.getValue());
    SmallVector<Type> types = llvm::map_to_vector(tied, [](Value v) { return v.getType(); });
    // ptxas also sinks the computation of a value, unless a side effect depends on it. This side
    // effect is a performance monitor event, which changes nothing that a program can observe. It
    // is triggered only if all bits of the or of all registers are set, which is rare.
    std::string text = "// pinned";
    if (!op.getWeak()) {
      text = "{\n.reg .b32 t;\n.reg .pred p;\nmov.b32 t, $0;\n";
      llvm::raw_string_ostream os(text);
      for (size_t i = 1; i < tied.size(); i += 2)
        os << llvm::formatv("lop3.b32 t, t, ${0}, ${1}, 0xFE;\n", i,
                            std::min(i + 1, tied.size() - 1));
      os << "setp.eq.u32 p, t, 0xFFFFFFFF;\n@p pmevent 0;\n}";
    }
    SmallVector<Value> registers = createInlinePTX(rewriter, loc, text, types, {}, tied);
    rewriter.replaceOp(
        op, packRegisters(rewriter, loc, cast<VectorType>(op.getResult().getType()), registers));
    return success();
  }
};

/// Computes the addresses of lanes for `stmatrix` and `ldmatrix`. The instructions access four 8 x
/// 8 matrices, whose registers are those of an accumulator in order: rows 0 and 8 of one group of 8
/// columns, then of the next. Lane l supplies the address of row l%8 of matrix l/8.
class LaneMatrices {
public:
  static constexpr int64_t kRegisters = 4;

  LaneMatrices(OpBuilder &rewriter, Location loc, const LLVMTypeConverter &converter, Value memref,
               Value descriptor, Value thread = {})
      : rewriter(rewriter), loc(loc), tile(*SharedTile::get(memref.getType())) {
    auto bits = [&](Value v, int64_t shift, int64_t count) -> Value {
      if (shift)
        v = LLVM::LShrOp::create(rewriter, loc, v, constant(shift));
      return LLVM::AndOp::create(rewriter, loc, v, constant((1 << count) - 1));
    };
    auto add = [&](Value x, Value y) -> Value { return LLVM::AddOp::create(rewriter, loc, x, y); };
    auto mul = [&](Value x, int64_t y) -> Value {
      return LLVM::MulOp::create(rewriter, loc, x, constant(y));
    };
    if (!thread)
      thread = NVVM::ThreadIdXOp::create(rewriter, loc, rewriter.getI32Type());
    Value warp = bits(thread, 5, 2), matrix = bits(thread, 3, 2);
    Value row = add(mul(bits(matrix, 0, 1), 8), bits(thread, 0, 3));
    if (tile.rows == kWarpgroupRows)
      row = add(mul(warp, 16), row);
    // The swizzle stores 16-byte chunk c of row r at chunk c ^ (r mod 8) in 128-byte rows, c ^ (r/2
    // mod 4) in 64-byte rows and c ^ (r/4 mod 2) in 32-byte rows (PTX ISA, "swizzling modes").
    chunks = tile.getRowBytes() / kChunk;
    Value swizzle = bits(row, 3 - llvm::Log2_64(chunks), llvm::Log2_64(chunks));
    Value first = LLVM::XOrOp::create(rewriter, loc, bits(matrix, 1, 1), swizzle);
    base = createSharedAddress(rewriter, loc, converter, memref, descriptor);
    base = add(base, add(mul(row, tile.getRowBytes()), mul(first, kChunk)));
  }

  /// Returns the address that a lane supplies for the matrices of registers `i` to `i + 3`.
  Value getAddress(int64_t i) {
    // Each step covers two chunks. The bits of the panel and of the chunk do not overlap.
    int64_t chunk = i / kRegisters * 2;
    Value at = LLVM::XOrOp::create(rewriter, loc, base, constant(chunk % chunks * kChunk));
    return LLVM::AddOp::create(rewriter, loc, at,
                               constant(chunk / chunks * tile.getPanelStrideBytes()));
  }

private:
  static constexpr int64_t kChunk = 16;

  Value constant(int64_t v) {
    return LLVM::ConstantOp::create(rewriter, loc, rewriter.getI32IntegerAttr(v));
  }

  OpBuilder &rewriter;
  Location loc;
  SharedTile tile;
  int64_t chunks; ///< per row of a panel
  Value base;
};

struct StoreTileLowering : ConvertOpToLLVMPattern<StoreTileOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(StoreTileOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    LaneMatrices matrices(rewriter, loc, *getTypeConverter(), op.getTile(), adaptor.getTile());
    SmallVector<Value> registers = unpackRegisters(rewriter, loc, adaptor.getValue());
    for (size_t i = 0; i < registers.size(); i += LaneMatrices::kRegisters) {
      SmallVector<Value> inputs{matrices.getAddress(i)};
      llvm::append_range(inputs, ArrayRef(registers).slice(i, LaneMatrices::kRegisters));
      createInlinePTX(rewriter, loc,
                      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", {},
                      inputs);
    }
    rewriter.eraseOp(op);
    return success();
  }
};

struct ReadTileLowering : ConvertOpToLLVMPattern<ReadTileOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(ReadTileOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    LaneMatrices matrices(rewriter, loc, *getTypeConverter(), op.getTile(), adaptor.getTile(),
                          adaptor.getThread());
    auto type = cast<VectorType>(op.getResult().getType());
    SmallVector<Type> types(LaneMatrices::kRegisters, rewriter.getI32Type());
    SmallVector<Value> registers;
    // Four registers hold 16 columns.
    int64_t first = op.getFrom() / 16 * LaneMatrices::kRegisters;
    for (int64_t i = 0; i < type.getNumElements() / 2; i += LaneMatrices::kRegisters)
      llvm::append_range(
          registers,
          createInlinePTX(rewriter, loc,
                          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", types,
                          matrices.getAddress(first + i)));
    createInlinePTX(rewriter, loc, "bar.warp.sync -1;", {}, {});
    rewriter.replaceOp(op, packRegisters(rewriter, loc, type, registers));
    return success();
  }
};

/// Lowers to `ldmatrix`, byte permutations and `stmatrix`. Transposed, a lane's register holds two
/// adjacent columns of two rows. The registers of rows 0 to 7 and 8 to 15 give a word of each of
/// the two columns, which become rows of `target`. Lanes alternate in which of both words belongs
/// to which matrix, so that the 8 rows of a matrix have 8 different swizzles.
struct TransposeLowering : ConvertOpToLLVMPattern<TransposeOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(TransposeOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    SharedTile source = *SharedTile::get(op.getSource().getType()),
               target = *SharedTile::get(op.getTarget().getType());
    auto constant = [&](int64_t v) { return constantI32(rewriter, loc, v); };
    auto add = [&](Value x, Value y) -> Value { return LLVM::AddOp::create(rewriter, loc, x, y); };
    auto mul = [&](Value x, int64_t y) -> Value {
      return LLVM::MulOp::create(rewriter, loc, x, constant(y));
    };
    auto bits = [&](Value v, int64_t shift, int64_t count) -> Value {
      v = LLVM::LShrOp::create(rewriter, loc, v, constant(shift));
      return LLVM::AndOp::create(rewriter, loc, v, constant((1 << count) - 1));
    };
    // The address of 16-byte chunk `chunk` of row `row`, counted through all panels. The row's
    // swizzle is that of `period`, the row modulo 8.
    auto getAddress = [&](const SharedTile &tile, Value memref, Value converted, Value row,
                          Value chunk, Value period) {
      int64_t chunks = tile.getRowBytes() / 16;
      Value swizzle = bits(period, 3 - llvm::Log2_64(chunks), llvm::Log2_64(chunks));
      Value inRow =
          LLVM::XOrOp::create(rewriter, loc, bits(chunk, 0, llvm::Log2_64(chunks)), swizzle);
      Value panel = LLVM::LShrOp::create(rewriter, loc, chunk, constant(llvm::Log2_64(chunks)));
      Value at = createSharedAddress(rewriter, loc, *getTypeConverter(), memref, converted);
      at = add(at, mul(panel, tile.getPanelStrideBytes()));
      return add(at, add(mul(row, tile.getRowBytes()), mul(inRow, 16)));
    };
    Value lane = createLane(rewriter, loc), inMatrix = bits(lane, 0, 3);
    // Matrices 0 and 1 have the first 16 columns, of rows 0 to 7 and 8 to 15; 2 and 3 the others.
    Value row = add(adaptor.getRow(), add(mul(bits(lane, 3, 1), 8), inMatrix));
    Value chunk = add(bits(adaptor.getColumn(), 4, 27), bits(lane, 4, 1));
    Value from = getAddress(source, op.getSource(), adaptor.getSource(), row, chunk, inMatrix);
    Type i32 = rewriter.getI32Type();
    SmallVector<Value> held = createInlinePTX(
        rewriter, loc, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];",
        SmallVector<Type>(4, i32), from);
    // Bytes 0 and 2 of both registers are the first column, bytes 1 and 3 the second one.
    constexpr int64_t kFirst = 0x6420, kSecond = 0x7531;
    Value isHigh =
        LLVM::ICmpOp::create(rewriter, loc, LLVM::ICmpPredicate::ne, bits(lane, 4, 1), constant(0));
    auto choose = [&](Value x, Value y) -> Value {
      return LLVM::SelectOp::create(rewriter, loc, isHigh, x, y);
    };
    Value selectors[] = {choose(constant(kSecond), constant(kFirst)),
                         choose(constant(kFirst), constant(kSecond))};
    Value shown = op.getBegin() ? findShown(adaptor, lane, rewriter, loc) : Value();
    SmallVector<Value> words;
    for (int64_t half = 0; half < 2; ++half)
      for (Value selector : selectors) {
        Value word = LLVM::CallIntrinsicOp::create(
                         rewriter, loc, i32, rewriter.getStringAttr("llvm.nvvm.prmt"),
                         ValueRange{held[2 * half], held[2 * half + 1], selector})
                         .getResult(0);
        words.push_back(shown ? LLVM::AndOp::create(rewriter, loc, word, shown).getResult() : word);
      }
    // Row r of matrix m is column 2r, or 2r + 1 in odd matrices, of its 16; exchanged from r = 4
    // on.
    Value odd = LLVM::XOrOp::create(rewriter, loc, bits(lane, 3, 1), bits(lane, 2, 1));
    Value place = add(mul(bits(lane, 4, 1), 16), add(mul(inMatrix, 2), odd));
    Value to =
        getAddress(target, op.getTarget(), adaptor.getTarget(), add(adaptor.getColumn(), place),
                   bits(adaptor.getRow(), 4, 27), bits(place, 0, 3));
    SmallVector<Value> inputs{to};
    llvm::append_range(inputs, words);
    createInlinePTX(rewriter, loc,
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", {}, inputs);
    rewriter.eraseOp(op);
    return success();
  }

private:
  /// Returns a word with all bits of the bytes whose rows are transposed: rows 2j, 2j + 1, 2j + 8
  /// and 2j + 9, where j is the lane modulo 4.
  static Value findShown(OpAdaptor adaptor, Value lane, OpBuilder &b, Location loc) {
    Value first = LLVM::AndOp::create(b, loc, lane, constantI32(b, loc, 3));
    first = LLVM::AddOp::create(b, loc, adaptor.getRow(),
                                LLVM::MulOp::create(b, loc, first, constantI32(b, loc, 2)));
    Value shown = constantI32(b, loc, 0);
    constexpr int64_t kRows[] = {0, 1, 8, 9};
    for (auto [byte, row] : llvm::enumerate(kRows)) {
      Value at = LLVM::AddOp::create(b, loc, first, constantI32(b, loc, row));
      Value isBehind =
          LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::sge, at, adaptor.getBegin());
      Value isBefore = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::slt, at, adaptor.getEnd());
      Value isShown = LLVM::AndOp::create(b, loc, isBehind, isBefore);
      Value ones = LLVM::SelectOp::create(
          b, loc, isShown, constantI32(b, loc, int32_t(0xffu << 8 * byte)), constantI32(b, loc, 0));
      shown = LLVM::OrOp::create(b, loc, shown, ones);
    }
    return shown;
  }
};
} // namespace

void mlir::flashattn::hopper::populateWgmmaToNVVMPatterns(LLVMTypeConverter &converter,
                                                          RewritePatternSet &patterns) {
  patterns.add<WgmmaLowering, WgmmaWaitLowering, PinLowering, StoreTileLowering, ReadTileLowering,
               TransposeLowering>(converter);
}
