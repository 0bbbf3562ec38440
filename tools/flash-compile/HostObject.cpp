//===- HostObject.cpp -----------------------------------------------------===//

#include "HostObject.h"
#include "flashattn/Runtime/AOTABI.h"
#include "flashattn/Runtime/HostCode.h"
#include "flashattn/Target/Machine.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

StringRef CPULevel::getName() const {
  static constexpr StringLiteral names[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  return names[level - 1];
}

CPULevel CPULevel::getHost() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  auto hasAll = [&](ArrayRef<StringRef> names) {
    return llvm::all_of(names, [&](StringRef name) { return features.lookup(name); });
  };
  int level = 1;
  if (hasAll({"sse4.2", "popcnt", "cx16"}))
    level = 2;
  if (level == 2 && hasAll({"avx2", "bmi", "bmi2", "f16c", "fma", "movbe"}))
    level = 3;
  if (level == 3 && hasAll({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}))
    level = 4;
  return {level};
}

HostObject::HostObject(ArrayRef<CFunction> functions, CPULevel level)
    : functions(functions), level(level), object("flash-compile", context) {}

Error HostObject::add(ModuleOp lowered, StringRef chip) {
  prepareTranslation(lowered);
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(lowered, context);
  if (!code)
    return llvm::createStringError("the code for " + chip + " cannot be translated to LLVM IR");
  Variant &variant = variants.emplace_back();
  variant.chip = chip.str();
  SmallVector<llvm::Function *> entries;
  for (const CFunction &function : functions)
    entries.push_back(addEntry(*code, function.signature.function));
  // The code for each chip defines the same names, so the names get the chip as a suffix. Only the
  // table refers to the entries.
  for (llvm::GlobalValue &value : code->global_values())
    if (!value.isDeclaration() && !value.getName().starts_with("llvm."))
      value.setName(value.getName() + "." + chip);
  for (llvm::Function *entry : entries)
    variant.entries.push_back(entry->getName().str());
  // Only the code for the CPU may use the instructions of `level`. Host code of GPU kernels must
  // run on every processor.
  for (llvm::Function &function : *code)
    if (!function.isDeclaration())
      function.addFnAttr("target-cpu",
                         chip == Machine::kCPU ? level.getName() : CPULevel{1}.getName());
  hideAllBut(*code, entries);
  if (llvm::Linker::linkModules(object, std::move(code)))
    return llvm::createStringError("the code for " + chip +
                                   " cannot be linked with the other code of the object");
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

llvm::Constant *HostObject::number(int64_t value) {
  return llvm::ConstantInt::get(llvm::Type::getInt64Ty(context), value, /*IsSigned=*/true);
}

llvm::Constant *HostObject::text(StringRef value) {
  auto *data = llvm::ConstantDataArray::getString(context, value);
  return new llvm::GlobalVariable(object, data->getType(), /*isConstant=*/true,
                                  llvm::GlobalValue::PrivateLinkage, data);
}

llvm::Constant *HostObject::array(llvm::Type *element, ArrayRef<llvm::Constant *> values) {
  auto *type = llvm::ArrayType::get(element, values.size());
  return new llvm::GlobalVariable(object, type, /*isConstant=*/true,
                                  llvm::GlobalValue::PrivateLinkage,
                                  llvm::ConstantArray::get(type, values));
}

llvm::Constant *HostObject::numbers(ArrayRef<int64_t> values) {
  SmallVector<llvm::Constant *> constants;
  for (int64_t value : values)
    constants.push_back(number(value));
  return array(llvm::Type::getInt64Ty(context), constants);
}

/// Returns the architecture and the variant of a chip: 90 and 'a' for sm_90a, 0 and 0 for the CPU.
static std::pair<int64_t, int64_t> getArchitecture(StringRef chip) {
  int64_t architecture = 0;
  if (!chip.consume_front("sm_") || chip.consumeInteger(10, architecture))
    return {0, 0};
  return {architecture, chip.empty() ? 0 : chip.front()};
}

llvm::Constant *HostObject::addTable(const CFunction &function) {
  const Signature &signature = function.signature;
  auto *null = llvm::ConstantPointerNull::get(llvm::PointerType::get(context, 0));
  auto makeStruct = [&](ArrayRef<llvm::Constant *> fields) {
    return llvm::ConstantStruct::getAnon(context, fields);
  };
  auto makeArray = [&](ArrayRef<llvm::Constant *> rows) -> llvm::Constant * {
    return rows.empty() ? null : array(rows.front()->getType(), rows);
  };
  SmallVector<llvm::Constant *> arguments, shared, codes;
  for (auto [argument, name] : llvm::zip_equal(signature.arguments, function.names)) {
    bool isTensor = argument.kind == FLASHATTN_ARGUMENT_MEMREF;
    size_t rank = argument.rank;
    arguments.push_back(makeStruct(
        {text(name), number(isTensor), number(argument.elementBytes),
         number(argument.needsAlignedPointer ? 16 : argument.elementBytes),
         number((argument.direction & FLASHATTN_OUTPUT) != 0), number(argument.isPosition),
         number(argument.isFactor), number(argument.hasAlignedRows), number(argument.isDense),
         number(argument.rank), numbers(ArrayRef(argument.sizes, rank)),
         numbers(ArrayRef(argument.strides, rank))}));
  }
  auto addShared = [&](llvm::Constant *what, ArgumentDim checked, ArgumentDim expected, int more) {
    shared.push_back(makeStruct({what, number(checked.argument), number(checked.dim),
                                 number(expected.argument), number(expected.dim), number(more)}));
  };
  for (const SharedSize &size : signature.sharedSizes)
    addShared(text(size.name), size.checked, size.expected, size.more);
  for (const SharedHeads &heads : signature.sharedHeads)
    addShared(null, heads.queries, heads.keys, /*more=*/0);
  size_t index = &function - functions.data();
  for (const Variant &variant : variants) {
    auto [architecture, kind] = getArchitecture(variant.chip);
    int64_t ptxVersion = llvm::cantFail(Machine::get(variant.chip)).getPTXVersion();
    codes.push_back(
        makeStruct({text(variant.chip), number(architecture), number(kind), number(ptxVersion),
                    number(level.level), object.getFunction(variant.entries[index])}));
  }
  llvm::Constant *table = makeStruct({text(signature.function), number(arguments.size()),
                                      makeArray(arguments), number(shared.size()),
                                      makeArray(shared), number(codes.size()), makeArray(codes)});
  return new llvm::GlobalVariable(object, table->getType(), /*isConstant=*/true,
                                  llvm::GlobalValue::PrivateLinkage, table);
}

void HostObject::addCFunctions(const CFunction &function, llvm::Constant *table) {
  llvm::IRBuilder<> builder(context);
  llvm::Type *pointer = builder.getPtrTy(), *wide = builder.getInt64Ty();
  auto getType = [&](const Parameter &parameter) -> llvm::Type * {
    if (parameter.kind != Parameter::Scalar)
      return parameter.kind == Parameter::Data ? pointer : wide;
    const Argument &argument = function.signature.arguments[parameter.argument];
    if (argument.elementType == FLASHATTN_F32)
      return builder.getFloatTy();
    return builder.getIntNTy(8 * argument.elementBytes);
  };
  auto define = [&](const llvm::Twine &name, llvm::Type *result, ArrayRef<llvm::Type *> types) {
    auto *defined = llvm::Function::Create(llvm::FunctionType::get(result, types, false),
                                           llvm::Function::ExternalLinkage, name, object);
    defined->addFnAttr("target-cpu", CPULevel{1}.getName());
    builder.SetInsertPoint(llvm::BasicBlock::Create(context, "", defined));
    return defined;
  };
  SmallVector<llvm::Type *> types = {builder.getInt32Ty(), pointer};
  for (const Parameter &parameter : function.parameters)
    types.push_back(getType(parameter));
  llvm::Function *call = define(function.signature.function, pointer, types);
  llvm::Value *values = builder.CreateAlloca(
      llvm::ArrayType::get(wide, std::max<size_t>(function.parameters.size(), 1)));
  for (unsigned i = 0; i < function.parameters.size(); ++i) {
    llvm::Value *value = call->getArg(i + 2);
    if (value->getType()->isPointerTy())
      value = builder.CreatePtrToInt(value, wide);
    else if (value->getType()->isFloatTy())
      value = builder.CreateZExt(builder.CreateBitCast(value, builder.getInt32Ty()), wide);
    else
      value = builder.CreateSExt(value, wide);
    builder.CreateStore(value, builder.CreateConstGEP1_64(wide, values, i));
  }
  auto callRuntime = [&](const char *name, llvm::Type *result, ArrayRef<llvm::Value *> arguments) {
    SmallVector<llvm::Type *> types;
    for (llvm::Value *argument : arguments)
      types.push_back(argument->getType());
    builder.CreateRet(builder.CreateCall(
        object.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false)),
        arguments));
  };
  callRuntime(aot::kCall, pointer, {table, call->getArg(0), call->getArg(1), values});
  llvm::Function *find =
      define(function.signature.function + "_device", builder.getInt32Ty(), {pointer});
  callRuntime(aot::kFindDevice, builder.getInt32Ty(), {table, find->getArg(0)});
}

//===----------------------------------------------------------------------===//
// The object
//===----------------------------------------------------------------------===//

Expected<SmallVector<char, 0>> HostObject::emit() {
  llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string message;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, message);
  if (!target)
    return llvm::createStringError(message);
  llvm::TargetOptions options;
  options.FunctionSections = options.DataSections = true;
  boundScheduling();
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, CPULevel{1}.getName(), "", options, llvm::Reloc::PIC_,
                                  std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  object.setTargetTriple(triple);
  object.setDataLayout(machine->createDataLayout());
  for (const CFunction &function : functions)
    addCFunctions(function, addTable(function));
  for (const Variant &variant : variants)
    for (const std::string &entry : variant.entries)
      object.getFunction(entry)->setLinkage(llvm::GlobalValue::InternalLinkage);
  if (Error error =
          makeOptimizingTransformer(/*optLevel=*/3, /*sizeLevel=*/0, machine.get())(&object))
    return error;
  SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return llvm::createStringError("LLVM cannot write objects for " + triple.str());
  passes.run(object);
  return bytes;
}
