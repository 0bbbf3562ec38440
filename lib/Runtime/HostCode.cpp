//===- HostCode.cpp -------------------------------------------------------===//

#include "flashattn/Runtime/HostCode.h"
#include "Errors.h"
#include "RuntimeContext.h"
#include "flashattn/Support/Environment.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ExecutionEngine/Orc/CompileUtils.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using llvm::Error;
using llvm::Expected;

/// Removes argument attributes that are promises to passes, which LLVM would report as unknown.
static void dropPromises(ModuleOp lowered) {
  for (auto function : lowered.getOps<FunctionOpInterface>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      SmallVector<NamedAttribute> known;
      for (NamedAttribute attribute : function.getArgAttrs(i))
        if (isa_and_nonnull<LLVM::LLVMDialect>(attribute.getNameDialect()))
          known.push_back(attribute);
      function.setArgAttrs(i, known);
    }
}

void flashattn::prepareTranslation(ModuleOp lowered) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  gpu::registerOffloadingLLVMTranslationInterfaceExternalModels(registry);
  lowered.getContext()->appendDialectRegistry(registry);
  dropPromises(lowered);
}

/// Creates a function that is looked up by its name. Any other value of the module with that name
/// is renamed.
static llvm::Function *createFunction(llvm::Module &code, llvm::FunctionType *type,
                                      const llvm::Twine &name) {
  std::string wanted = name.str();
  if (llvm::GlobalValue *taken = code.getNamedValue(wanted))
    taken->setName(wanted + ".hidden");
  return llvm::Function::Create(type, llvm::Function::ExternalLinkage, wanted, code);
}

llvm::Function *flashattn::addEntry(llvm::Module &code, StringRef name) {
  llvm::Function *callee = code.getFunction((kCInterfacePrefix + name).str());
  llvm::IRBuilder<> builder(code.getContext());
  llvm::Function *entry = createFunction(
      code, llvm::FunctionType::get(builder.getVoidTy(), builder.getPtrTy(), /*isVarArg=*/false),
      name + ".entry");
  builder.SetInsertPoint(llvm::BasicBlock::Create(code.getContext(), "", entry));
  auto getAddress = [&](unsigned i) {
    llvm::Value *place = builder.CreateConstGEP1_64(builder.getPtrTy(), entry->getArg(0), i);
    return builder.CreateLoad(builder.getPtrTy(), place);
  };
  SmallVector<llvm::Value *> arguments;
  for (auto [i, argument] : llvm::enumerate(callee->args()))
    arguments.push_back(builder.CreateLoad(argument.getType(), getAddress(i)));
  llvm::Value *result = builder.CreateCall(callee, arguments);
  if (!result->getType()->isVoidTy())
    builder.CreateStore(result, getAddress(arguments.size()));
  builder.CreateRetVoid();
  return entry;
}

void flashattn::hideAllBut(llvm::Module &code, ArrayRef<llvm::Function *> kept) {
  // Lists of constructors and the like are not changed.
  for (llvm::GlobalValue &value : code.global_values())
    if (!value.isDeclaration() && !value.getName().starts_with("llvm.") &&
        !llvm::is_contained(kept, &value))
      value.setLinkage(llvm::GlobalValue::InternalLinkage);
}

std::string flashattn::getKernelsSymbol(StringRef name) { return (name + "_binary").str(); }

/// Removes the images of kernels from the code, which reads them when it is loaded. LLVM then
/// neither copies them nor waits for them.
static void takeKernels(ModuleOp lowered, llvm::Module &code, flashattn::HostImage &image) {
  for (auto binary : lowered.getOps<gpu::BinaryOp>()) {
    std::string symbol = flashattn::getKernelsSymbol(binary.getName());
    llvm::GlobalVariable *constant = code.getNamedGlobal(symbol);
    if (!constant)
      continue;
    // LLVM has another constant for all zeros, as for PTX that does not exist yet.
    auto *bytes = llvm::dyn_cast<llvm::ConstantDataSequential>(constant->getInitializer());
    image.kernels.emplace_back(symbol, bytes ? bytes->getRawDataValues().str() : "");
    constant->setInitializer(nullptr);
    constant->setLinkage(llvm::GlobalValue::ExternalLinkage);
  }
}

/// Adds `name`, void (), which calls the functions of the list by priority, and removes the list.
static llvm::Function *addCaller(llvm::Module &code, StringRef name, StringRef listName,
                                 llvm::iterator_range<llvm::orc::CtorDtorIterator> list) {
  SmallVector<llvm::orc::CtorDtorIterator::Element> elements;
  for (auto element : list)
    elements.push_back(element);
  llvm::sort(elements, [](auto &a, auto &b) { return a.Priority < b.Priority; });
  llvm::IRBuilder<> builder(code.getContext());
  llvm::Function *caller =
      createFunction(code, llvm::FunctionType::get(builder.getVoidTy(), /*isVarArg=*/false), name);
  builder.SetInsertPoint(llvm::BasicBlock::Create(code.getContext(), "", caller));
  for (auto &element : elements)
    builder.CreateCall(element.Func);
  builder.CreateRetVoid();
  if (llvm::GlobalVariable *variable = code.getNamedGlobal(listName))
    variable->eraseFromParent();
  return caller;
}

/// Returns the symbols that the object needs and that the runtime, `image` and `symbols` all lack.
static Expected<SmallVector<std::string>> findUnresolved(const flashattn::HostImage &image,
                                                         ArrayRef<StringRef> symbols) {
  auto object = llvm::object::ObjectFile::createObjectFile({image.object, "host code"});
  if (!object)
    return object.takeError();
  SmallVector<std::string> names;
  for (const llvm::object::SymbolRef &symbol : (*object)->symbols()) {
    Expected<uint32_t> flags = symbol.getFlags();
    Expected<StringRef> name = symbol.getName();
    if (!flags || !name)
      return llvm::joinErrors(flags.takeError(), name.takeError());
    bool isDefined = !(*flags & llvm::object::SymbolRef::SF_Undefined) || name->empty() ||
                     *name == "_GLOBAL_OFFSET_TABLE_";
    if (!isDefined && !flashattn::isRuntimeSymbol(*name) && !llvm::is_contained(symbols, *name) &&
        !llvm::is_contained(llvm::make_first_range(image.kernels), *name))
      names.push_back(name->str());
  }
  return names;
}

void flashattn::boundScheduling() {
  static const bool isBound = [] {
    constexpr StringLiteral name = "dag-maps-huge-region", most = "100";
    llvm::cl::Option *option = llvm::cl::getRegisteredOptions().lookup(name);
    return !option || option->getNumOccurrences() || option->addOccurrence(0, name, most);
  }();
  (void)isBound;
}

bool flashattn::optimizesForCPU() { return getSwitch("FLASHATTN_OPTIMIZE_CPU", true); }

/// Host code of GPU kernels always is, because it runs on every call.
static bool isOptimized(flashattn::HostTarget target) {
  return target == flashattn::HostTarget::Portable ||
         (target == flashattn::HostTarget::Native && flashattn::optimizesForCPU());
}

static Expected<std::unique_ptr<llvm::TargetMachine>>
createHostMachine(flashattn::HostTarget target) {
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;
  flashattn::boundScheduling();
  auto builder = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!builder)
    return builder.takeError();
  if (target == flashattn::HostTarget::Portable) {
    builder->setCPU(flashattn::getPortableHostCPU().str());
    builder->getFeatures() = llvm::SubtargetFeatures();
  }
  builder->setCodeGenOptLevel(isOptimized(target) ? llvm::CodeGenOptLevel::Aggressive
                                                  : llvm::CodeGenOptLevel::None);
  return builder->createTargetMachine();
}

/// Runs the passes of code that is not optimized. Kernels on a model spend their time in the model,
/// and are long, so most passes cost more than they save. These passes split vectors of a hundred
/// or more elements that are used separately, on which instruction selection would spend most of a
/// launch's time.
static Error simplify(llvm::Module &code, llvm::TargetMachine &machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager cycles;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(cycles);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, cycles, modules);
  llvm::ModulePassManager passes;
  if (Error error =
          builder.parsePassPipeline(passes, "function(early-cse,instcombine<no-verify-fixpoint>)"))
    return error;
  passes.run(code, modules);
  return Error::success();
}

StringRef flashattn::getPortableHostCPU() {
  static const bool isV3 = [] {
    auto features = llvm::sys::getHostCPUFeatures();
    return llvm::all_of(
        ArrayRef<StringRef>{"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"},
        [&](StringRef feature) { return features.lookup(feature); });
  }();
  if (!llvm::Triple(llvm::sys::getProcessTriple()).isX86())
    return "generic";
  return isV3 ? "x86-64-v3" : "x86-64";
}

Expected<flashattn::HostImage> flashattn::compileHostCode(ModuleOp lowered, HostTarget target,
                                                          ArrayRef<StringRef> symbols) {
  auto machine = createHostMachine(target);
  if (!machine)
    return machine.takeError();
  prepareTranslation(lowered);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(lowered, context);
  if (!code)
    return makeError("the host code cannot be translated to LLVM IR");
  code->setTargetTriple((*machine)->getTargetTriple());
  code->setDataLayout((*machine)->createDataLayout());

  HostImage image;
  takeKernels(lowered, *code, image);
  SmallVector<llvm::Function *> kept = {
      addCaller(*code, kInitializeName, "llvm.global_ctors", llvm::orc::getConstructors(*code)),
      addCaller(*code, kFinishName, "llvm.global_dtors", llvm::orc::getDestructors(*code))};
  for (auto function : lowered.getOps<LLVM::LLVMFuncOp>()) {
    StringRef name = function.getName();
    if (function.isExternal() || !name.consume_front(kCInterfacePrefix))
      continue;
    kept.push_back(addEntry(*code, name));
    image.functions.push_back(name.str());
  }
  hideAllBut(*code, kept);
  if (Error error = isOptimized(target) ? makeOptimizingTransformer(/*optLevel=*/3, /*sizeLevel=*/0,
                                                                    machine->get())(code.get())
                                        : simplify(*code, **machine))
    return error;
  auto object = llvm::orc::SimpleCompiler(**machine)(*code);
  if (!object)
    return object.takeError();
  image.object = (*object)->getBuffer().str();
  auto unresolved = findUnresolved(image, symbols);
  if (!unresolved)
    return unresolved.takeError();
  if (!unresolved->empty())
    return formatError("the module calls undefined functions: {0}", llvm::join(*unresolved, ", "));
  return image;
}
