//===- CForm.cpp ----------------------------------------------------------===//

#include "CForm.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Runtime/AOTABI.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

template <typename... Args> static Error fail(const char *format, Args &&...args) {
  return llvm::createStringError(llvm::formatv(format, std::forward<Args>(args)...).str());
}

/// Whether `name` is a valid name for a function in C and C++, and not a reserved one.
static bool isFreeName(StringRef name) {
  static const llvm::StringSet<> keywords = {
      "alignas",  "alignof",  "and",      "asm",     "auto",      "bool",     "break",
      "case",     "catch",    "char",     "class",   "const",     "continue", "default",
      "delete",   "do",       "double",   "else",    "enum",      "explicit", "export",
      "extern",   "false",    "float",    "for",     "friend",    "goto",     "if",
      "inline",   "int",      "long",     "mutable", "namespace", "new",      "not",
      "nullptr",  "operator", "or",       "private", "protected", "public",   "register",
      "restrict", "return",   "short",    "signed",  "sizeof",    "static",   "struct",
      "switch",   "template", "this",     "throw",   "true",      "try",      "typedef",
      "typename", "union",    "unsigned", "using",   "virtual",   "void",     "volatile",
      "while",    "xor",      "main"};
  return !name.empty() && !llvm::isDigit(name[0]) && !keywords.contains(name) &&
         llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; }) &&
         !name.starts_with("flashattn");
}

/// Returns the type of a row-major memref with the elements of a tensor.
static MemRefType getMemRef(RankedTensorType tensor) {
  return MemRefType::get(tensor.getShape(), tensor.getElementType());
}

/// Keeps the original function, under another name, for its callers in the module.
static void keepForCallers(ModuleOp module, func::FuncOp function) {
  if (SymbolTable::symbolKnownUseEmpty(function, module))
    return;
  SymbolTable symbols(module);
  func::FuncOp called = function.clone();
  called.setPrivate();
  StringAttr name = symbols.insert(called);
  (void)SymbolTable::replaceAllSymbolUses(function, name, module);
}

/// Replaces tensors by memrefs. Results become memrefs of the caller.
static Error replaceTensors(func::FuncOp function) {
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if (!isa<RankedTensorType>(type))
      return fail("result {0} of function '{1}': expected a ranked tensor, whose elements go to "
                  "memory of the caller, but got {2}",
                  i, function.getName(), type);
  Block &body = function.front();
  OpBuilder builder = OpBuilder::atBlockBegin(&body);
  Location loc = function.getLoc();
  for (BlockArgument argument : body.getArguments()) {
    auto tensor = dyn_cast<RankedTensorType>(argument.getType());
    if (!tensor)
      continue;
    argument.setType(getMemRef(tensor));
    auto read = bufferization::ToTensorOp::create(builder, loc, tensor, argument,
                                                  /*restrict=*/true, /*writable=*/false);
    argument.replaceAllUsesExcept(read, read);
  }
  SmallVector<BlockArgument> outputs;
  for (Type type : function.getResultTypes())
    outputs.push_back(body.addArgument(getMemRef(cast<RankedTensorType>(type)), loc));
  function.walk([&](func::ReturnOp op) {
    builder.setInsertionPoint(op);
    for (auto [result, output] : llvm::zip_equal(op.getOperands(), outputs))
      bufferization::MaterializeInDestinationOp::create(builder, loc, TypeRange(), result, output,
                                                        /*restrict=*/true, /*writable=*/true);
    op->setOperands({});
  });
  SmallVector<Attribute> attributes;
  if (ArrayAttr given = function.getArgAttrsAttr())
    llvm::append_range(attributes, given);
  function.setFunctionType(
      FunctionType::get(function.getContext(), body.getArgumentTypes(), TypeRange()));
  function.removeResAttrsAttr();
  if (!attributes.empty()) {
    attributes.resize(body.getNumArguments(), DictionaryAttr::get(function.getContext()));
    function.setArgAttrsAttr(ArrayAttr::get(function.getContext(), attributes));
  }
  return Error::success();
}

/// Names each argument by its role; arguments without a unique role are numbered.
static std::vector<std::string> nameArguments(const Signature &signature, size_t numGiven) {
  std::vector<std::string> names;
  for (auto [i, argument] : llvm::enumerate(signature.arguments)) {
    StringRef role = argument.role;
    bool isAlone = llvm::count_if(signature.arguments,
                                  [&](const Argument &other) { return role == other.role; }) == 1;
    if (!role.empty() && isAlone)
      names.push_back(role.str());
    else if (i < numGiven)
      names.push_back(llvm::formatv("arg{0}", i).str());
    else
      names.push_back(llvm::formatv("result{0}", i - numGiven).str());
  }
  return names;
}

static std::vector<Parameter> listParameters(const CFunction &function) {
  std::vector<Parameter> parameters;
  for (auto [i, argument] : llvm::enumerate(function.signature.arguments)) {
    const std::string &name = function.names[i];
    unsigned index = i;
    if (argument.kind == FLASHATTN_ARGUMENT_SCALAR) {
      parameters.push_back({Parameter::Scalar, name, index});
      continue;
    }
    parameters.push_back({Parameter::Data, name, index});
    for (unsigned d = 0; d < unsigned(argument.rank); ++d)
      if (argument.sizes[d] < 0)
        parameters.push_back(
            {Parameter::Size, llvm::formatv("{0}_size{1}", name, d).str(), index, d});
    for (unsigned d = 0; d < unsigned(argument.rank) && !argument.isDense; ++d)
      if (argument.strides[d] < 0)
        parameters.push_back(
            {Parameter::Stride, llvm::formatv("{0}_stride{1}", name, d).str(), index, d});
  }
  return parameters;
}

static Expected<CFunction> convert(ModuleOp module, func::FuncOp function, StringRef chip) {
  if (!isFreeName(function.getName()))
    return fail("function '{0}': expected a name of letters, digits and '_' that is not reserved "
                "in C or C++, is not 'main' and does not begin with 'flashattn'",
                function.getName());
  keepForCallers(module, function);
  size_t numGiven = function.getNumArguments();
  if (Error error = replaceTensors(function))
    return error;
  IRRewriter rewriter(function.getContext());
  // Compute results directly in the caller's memory.
  if (failed(bufferization::eliminateEmptyTensors(rewriter, function)))
    return fail("function '{0}' cannot store its results to memory of the caller",
                function.getName());
  CFunction result;
  describe(result.signature, function, chip);
  if (!result.signature.reason.empty())
    return llvm::createStringError(result.signature.reason);
  // Results are overwritten completely.
  for (Argument &argument : llvm::drop_begin(result.signature.arguments, numGiven))
    argument.direction = FLASHATTN_OUTPUT;
  for (auto [i, argument] : llvm::enumerate(result.signature.arguments))
    if (i >= numGiven && !*argument.role && llvm::is_contained(argument.sizes, -1))
      return fail("result {0} of function '{1}': expected static sizes, or the sizes of an operand "
                  "of an op, but got {2}",
                  i - numGiven, function.getName(), function.getArgument(i).getType());
  size_t numArguments = result.signature.arguments.size();
  if (numArguments > aot::kMaxArguments)
    return fail("function '{0}': expected at most {1} arguments and results but got {2}",
                function.getName(), aot::kMaxArguments, numArguments);
  result.names = nameArguments(result.signature, numGiven);
  result.parameters = listParameters(result);
  return result;
}

Expected<std::vector<CFunction>> flashattn::makeCForm(ModuleOp module, StringRef name,
                                                      StringRef chip) {
  SmallVector<func::FuncOp> functions;
  if (!name.empty()) {
    Expected<func::FuncOp> found = findFunction(module, name, "--function");
    if (!found)
      return found.takeError();
    functions.push_back(*found);
  } else {
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic() && !function.isExternal())
        functions.push_back(function);
    // findFunction explains why there is no function.
    if (functions.empty())
      return findFunction(module, "", "--function").takeError();
  }
  std::vector<CFunction> converted;
  for (func::FuncOp function : functions) {
    Expected<CFunction> result = convert(module, function, chip);
    if (!result)
      return result.takeError();
    converted.push_back(std::move(*result));
  }
  return converted;
}

StringRef flashattn::getCType(int32_t elementType) {
  switch (elementType) {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C)                                             \
  case FLASHATTN_##NAME:                                                                           \
    return C;
#include "flashattn/Pipelines/Elements.def"
  }
  llvm_unreachable("unknown element type");
}
