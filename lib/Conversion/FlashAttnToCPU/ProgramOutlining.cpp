//===- ProgramOutlining.cpp -----------------------------------------------===//

#include "ProgramOutlining.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
#include "flashattn/Runtime/ABI.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::cpu;

/// Collects the values that the program captures. Vectors and constants are not captured but
/// created again in the function, vectors from the scalars that they are computed from.
static void collectCaptures(ProgramOp program, SetVector<Value> &captures,
                            SetVector<Operation *> &constants) {
  SetVector<Value> used;
  getUsedValuesDefinedAbove(program.getRegion(), used);
  Operation *space = program.getSpaceOp();
  used.insert(space->operand_begin(), space->operand_end());
  for (unsigned i = 0; i < used.size(); ++i) { // `used` grows in the loop
    Value value = used[i];
    Operation *def = value.getDefiningOp();
    if (isa<VectorType>(value.getType()) && def)
      used.insert(def->operand_begin(), def->operand_end());
    else if (def && def->hasTrait<OpTrait::ConstantLike>())
      constants.insert(def);
    else
      captures.insert(value);
  }
}

/// Declares a function of the runtime.
static func::FuncOp declare(SymbolTable &symbols, StringRef name, TypeRange arguments,
                            TypeRange results) {
  if (auto existing = symbols.lookup<func::FuncOp>(name))
    return existing;
  Operation *module = symbols.getOp();
  auto function = func::FuncOp::create(module->getLoc(), name,
                                       FunctionType::get(module->getContext(), arguments, results));
  function.setPrivate();
  symbols.insert(function);
  return function;
}

Value mlir::flashattn::cpu::countThreads(OpBuilder &b, Location loc, SymbolTable &symbols) {
  func::FuncOp function = declare(symbols, abi::kThreadCount, {}, b.getI64Type());
  Value count = func::CallOp::create(b, loc, function).getResult(0);
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), count);
}

FailureOr<func::FuncOp>
mlir::flashattn::cpu::outlineProgram(ProgramOp program, SymbolTable &symbols, IRMapping &mapping) {
  Location loc = program.getLoc();
  MLIRContext *context = program.getContext();
  auto parent = program->getParentOfType<func::FuncOp>();
  if (!parent)
    return program.emitOpError("expected a tile program inside of a 'func.func'");

  SetVector<Value> captures;
  SetVector<Operation *> constants;
  collectCaptures(program, captures, constants);

  // A cast to the lowered type and back cancels when the functions are lowered.
  LLVMTypeConverter typeConverter(context);
  SmallVector<Type> fields;
  for (Value capture : captures) {
    fields.push_back(typeConverter.convertType(capture.getType()));
    if (!fields.back())
      return program.emitOpError("expected captured values of types known to LLVM but got ")
             << capture.getType();
  }
  auto frameType = LLVM::LLVMStructType::getLiteral(context, fields);
  Type pointer = LLVM::LLVMPointerType::get(context);
  Type i64 = IntegerType::get(context, 64);
  auto fieldOf = [&](OpBuilder &b, Value frame, unsigned i) -> Value {
    return LLVM::GEPOp::create(b, loc, pointer, frameType, frame,
                               ArrayRef<LLVM::GEPArg>{0, static_cast<int32_t>(i)});
  };

  // The function: unpack the captures, then compute the program indices from the linear index.
  auto function = func::FuncOp::create(loc, (parent.getName() + "_program").str(),
                                       FunctionType::get(context, {pointer, i64}, {}));
  function.setPrivate();
  symbols.insert(function);
  OpBuilder b = OpBuilder::atBlockBegin(function.addEntryBlock());
  for (Operation *constant : constants)
    b.clone(*constant, mapping);
  for (auto [i, capture] : llvm::enumerate(captures)) {
    Value lowered = LLVM::LoadOp::create(b, loc, fields[i], fieldOf(b, function.getArgument(0), i));
    auto cast = UnrealizedConversionCastOp::create(b, loc, capture.getType(), lowered);
    mapping.map(capture, cast.getResult(0));
  }
  Value linear = arith::IndexCastOp::create(b, loc, b.getIndexType(), function.getArgument(1));
  // The space in the function, whose operands are those of the function.
  SpaceOpInterface space = program.getSpaceOp();
  auto inside = cast<SpaceOpInterface>(b.clone(*space, mapping));
  SmallVector<Value> numbers = emitItem(b, inside, linear);
  inside->erase();
  mapping.map(program.getNumbers(), numbers);
  func::ReturnOp::create(b, loc);

  // The call: pack, count, run. The frame is allocated once per call of the parent function.
  b.setInsertionPointToStart(&parent.getBody().front());
  Value one = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(1));
  Value frame = LLVM::AllocaOp::create(b, loc, pointer, frameType, one);
  b.setInsertionPoint(program);
  for (auto [i, capture] : llvm::enumerate(captures)) {
    auto lowered = UnrealizedConversionCastOp::create(b, loc, fields[i], capture);
    LLVM::StoreOp::create(b, loc, lowered.getResult(0), fieldOf(b, frame, i));
  }
  Value count = countPoints(b, space);
  count = arith::IndexCastOp::create(b, loc, i64, count);
  Value body = func::ConstantOp::create(b, loc, function.getFunctionType(),
                                        FlatSymbolRefAttr::get(function));
  body = UnrealizedConversionCastOp::create(b, loc, pointer, body).getResult(0);
  func::FuncOp loop = declare(symbols, abi::kParallelFor, {b.getI64Type(), pointer, pointer}, {});
  func::CallOp::create(b, loc, loop, ValueRange{count, body, frame});
  return function;
}
