//===- Inputs.cpp ---------------------------------------------------------===//

#include "Inputs.h"
#include "Npy.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Parallel.h"

#include <cmath>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

namespace {

/// A parsed --input.
struct InputSpec {
  std::string flag; ///< as the user wrote it, for messages
  std::optional<Scalar> scalar;
  SmallVector<int64_t> shape; ///< valid if `scalar` is given
  StringRef source;

  Error fail(const llvm::Twine &what) const {
    return llvm::createStringError("--input=" + flag + ": " + what);
  }
};

constexpr StringRef kSources = "@FILE.npy, random[:SEED], zeros, ones, poison or numbers";

} // namespace

static Expected<InputSpec> parseSpec(const std::string &text) {
  InputSpec spec;
  spec.flag = text;
  spec.source = text;
  // A file name may contain '=' too.
  StringRef type = spec.source.take_until([](char c) { return c == '=' || c == '@'; });
  bool hasSource = type.size() != text.size();
  if (hasSource && text[type.size()] == '@')
    return spec;
  SmallVector<StringRef> parts;
  type.split(parts, 'x');
  // "index" itself contains an 'x'.
  if (parts.size() >= 2 && parts.back().empty() && parts[parts.size() - 2] == "inde") {
    parts.pop_back();
    parts.back() = "index";
  }
  spec.scalar = parseScalar(parts.pop_back_val());
  if (!hasSource && !spec.scalar)
    return spec;
  spec.source = hasSource ? spec.source.drop_front(type.size() + 1) : "random";
  if (!spec.scalar)
    return spec.fail("expected a type such as 2x32x1024x128xf16 but got '" + type + "'");
  for (StringRef part : parts) {
    int64_t size;
    if (part.getAsInteger(10, size) || size < 0)
      return spec.fail("expected sizes of at least 0 but got '" + part + "'");
    spec.shape.push_back(size);
  }
  return spec;
}

/// Whether an argument of type `info` accepts this element type and shape.
static bool takes(const ValueInfo &info, Scalar scalar, ArrayRef<int64_t> shape) {
  if (info.scalar != scalar || info.shape.size() != shape.size())
    return false;
  return llvm::all_of(llvm::zip(info.shape, shape), [](auto pair) {
    auto [declared, given] = pair;
    return ShapedType::isDynamic(declared) || declared == given;
  });
}

/// Infers the dynamic sizes of an argument, as far as they follow from other operands.
static Error inferShape(const Program &program, unsigned index,
                        std::vector<SmallVector<int64_t>> &shapes) {
  if (!ShapedType::isDynamicShape(shapes[index]))
    return Error::success();
  Expected<std::vector<OperandSizes>> sizes = getSizes(program, shapes);
  if (!sizes)
    return sizes.takeError();
  for (auto [op, known] : llvm::zip_equal(program.ops, *sizes))
    for (auto [role, source] : llvm::zip_equal(op.op.roles, op.sources))
      if (source.argument == index && !role.rule->isScalar())
        for (auto [size, follows] : llvm::zip_equal(shapes[index], known.getShape(role.dims)))
          if (ShapedType::isDynamic(size))
            size = follows;
  return Error::success();
}

/// Returns the element type of the operand `name` of `op`, if the operand is an argument.
static std::optional<Scalar> getElement(const Program &program, const OpOfFunction &op,
                                        StringRef name) {
  std::optional<unsigned> argument = op.getArgument(name);
  return argument ? std::optional(program.arguments[*argument].scalar) : std::nullopt;
}

/// F1: fills an argument that is `k` or `v` of i8, with integers of the whole range, or their
/// scales, with positive numbers, so that the values are of order 1. Returns whether it is one of
/// these.
static bool fillScaled(const Program &program, unsigned index, uint64_t seed, HostTensor &tensor) {
  for (const OpOfFunction &op : program.ops)
    for (auto [role, source] : llvm::zip_equal(op.op.roles, op.sources)) {
      if (source.argument != index)
        continue;
      if (role.rule->element == ElementRule::LikeFirstOrNarrow &&
          tensor.getScalar() == Scalar::I8) {
        tensor.fillUniform(seed, -128, 128);
        return true;
      }
      StringRef scaled = getScaled(role);
      if (scaled.empty())
        continue;
      double unit = getElement(program, op, scaled) == Scalar::I8 ? 0x1p-6 : 1;
      tensor.fillUniform(seed, 0.5 * unit, 1.5 * unit);
      return true;
    }
  return false;
}

/// Fills an argument with random values; an operand with a limit, such as `kv_len`, with integers
/// from 0 to the limit, which increase if they are starts (S1); and a symbol of the mask with
/// integers from 0 to the number of keys.
static void fillRandom(const Program &program, unsigned index,
                       ArrayRef<SmallVector<int64_t>> shapes, uint64_t seed, HostTensor &tensor) {
  int64_t limit = ShapedType::kDynamic;
  bool isSorted = false;
  Expected<std::vector<OperandSizes>> sizes = getSizes(program, shapes);
  if (!sizes)
    return llvm::consumeError(sizes.takeError()); // checkInputs reports it
  for (auto [op, known] : llvm::zip_equal(program.ops, *sizes))
    for (auto [role, source] : llvm::zip_equal(op.op.roles, op.sources))
      if (source.argument == index && role.rule->is(OperandRule::Variadic)) {
        limit = known.get('K');
      } else if (source.argument == index && role.rule->limit) {
        limit = known.get(role.rule->limit);
        isSorted |= role.dims == "C";
        // P1: an entry is the index of a page.
        limit -= role.dims == "BT" && limit > 0;
      }
  if (ShapedType::isDynamic(limit)) {
    if (!fillScaled(program, index, seed, tensor))
      tensor.fillRandom(seed);
    return;
  }
  std::mt19937_64 random(seed);
  std::vector<int64_t> numbers(tensor.getNumElements());
  for (int64_t &number : numbers)
    number = random() % (limit + 1);
  if (isSorted)
    llvm::sort(numbers);
  for (auto [i, number] : llvm::enumerate(numbers))
    tensor.set(i, number);
}

/// Parses numbers in the syntax of iree-run-module: separated by blanks, commas and brackets.
/// Returns nothing for any other text.
static std::optional<SmallVector<double>> parseNumbers(StringRef source) {
  SmallVector<StringRef> parts;
  llvm::SplitString(source, parts, " ,[]");
  SmallVector<double> numbers;
  for (StringRef part : parts)
    if (part.getAsDouble(numbers.emplace_back()))
      return std::nullopt;
  if (numbers.empty())
    return std::nullopt;
  return numbers;
}

/// Fills a tensor with one number, or with one for each element.
static Error fillNumbers(const InputSpec &spec, HostTensor &tensor, ArrayRef<double> numbers) {
  int64_t count = numbers.size();
  if (count != 1 && count != tensor.getNumElements())
    return spec.fail("expected 1 or " + llvm::Twine(tensor.getNumElements()) + " numbers but got " +
                     llvm::Twine(count));
  Scalar scalar = tensor.getScalar();
  for (double number : numbers)
    if (!isFloat(scalar) && !canHold(scalar, number))
      return spec.fail(
          llvm::formatv("expected numbers in the range of {0} but got {1}", getName(scalar), number)
              .str());
  if (count == 1)
    tensor.fillValue(numbers.front());
  for (int64_t i = 0; count != 1 && i < count; ++i)
    tensor.set(i, numbers[i]);
  return Error::success();
}

/// Fills `tensor` from the spec's source, which is not a file. `seed` is the default seed of
/// `random`.
static Error fill(const InputSpec &spec, HostTensor &tensor, uint64_t seed,
                  function_ref<void(uint64_t)> fillRandom) {
  StringRef source = spec.source;
  if (source == "zeros") {
    tensor.fillValue(0);
  } else if (source == "ones") {
    tensor.fillValue(1);
  } else if (source.consume_front("random")) {
    if (!source.empty() && (!source.consume_front(":") || source.getAsInteger(10, seed)))
      return spec.fail("expected random:SEED with a whole number but got '" + spec.source + "'");
    fillRandom(seed);
  } else {
    std::optional<SmallVector<double>> numbers = parseNumbers(source);
    if (!numbers)
      return spec.fail("expected " + kSources + " but got '" + source + "'");
    return fillNumbers(spec, tensor, *numbers);
  }
  return Error::success();
}

/// Returns the operands of the attention that belongs to a backward op; nothing if one of them is
/// neither an argument with values nor a constant.
static std::optional<OperandValues> getForwardValues(const OpOfFunction &op, const Inputs &inputs) {
  OperandValues values;
  auto find = [&](const OpOfFunction::Source &source) -> const HostTensor * {
    if (source.argument)
      return inputs.poisoned[*source.argument] ? nullptr : &inputs.tensors[*source.argument];
    return source.constant.get();
  };
  for (auto [role, source] : llvm::zip_equal(op.op.roles, op.sources)) {
    if (role.rule->is(OperandRule::Output) ||
        llvm::is_contained({"o", "lse", "d_o", "d_lse"}, role.getName()))
      continue;
    const HostTensor *value = find(source);
    if (!value)
      return std::nullopt;
    values.set(role.getName(), value);
  }
  for (const OpOfFunction::Source &source : op.captured) {
    const HostTensor *value = find(source);
    if (!value)
      return std::nullopt;
    double number = source.isTensor ? 0 : value->get(0);
    values.captured.push_back({number, int64_t(number), source.isTensor ? value : nullptr});
  }
  return values;
}

/// Returns the argument that is the operand `name` of `op`, if no op writes it or reads it as
/// another operand.
static std::optional<unsigned> findOwnArgument(const Program &program, const OpOfFunction &op,
                                               StringRef name) {
  std::optional<unsigned> argument = op.getArgument(name);
  for (const OpOfFunction &other : program.ops)
    for (auto [role, source] : llvm::zip_equal(other.op.roles, other.sources))
      if (argument && source.argument == argument &&
          (role.getName() != name || role.rule->is(OperandRule::Output)))
        return std::nullopt;
  return argument;
}

/// Computes o and lse of all rows. Either tensor may be null.
static void fillRows(const AttentionProblem &problem, int64_t every, HostTensor *o,
                     HostTensor *lse) {
  std::vector<float> keys(problem.numKeys * problem.dim),
      values(problem.numKeys * problem.valueDim);
  for (int64_t b = 0; b < problem.batch; ++b)
    for (int64_t h = 0; h < problem.queryHeads; ++h) {
      int64_t keyHead = h / (problem.queryHeads / problem.keyHeads); // rule A4
      readHead(*problem.getOperand("k"), problem.isBSHD, b, keyHead, problem.keyHeads,
               problem.numKeys, problem.dim, keys.data());
      readHead(*problem.getOperand("v"), problem.isBSHD, b, keyHead, problem.keyHeads,
               problem.numKeys, problem.valueDim, values.data());
      llvm::parallelFor(0, problem.numQueries, [&](size_t i) {
        auto getStart = [&](int64_t width) {
          return getRowStart(problem.isBSHD, b, h, i, problem.queryHeads, problem.numQueries,
                             width);
        };
        SmallVector<float> query(problem.dim);
        problem.getOperand("q")->getFloats(getStart(problem.dim), problem.dim, query.data());
        ForwardRow row =
            computeForwardRow(problem, query, keys.data(), values.data(), b, h, i, every);
        for (int64_t d = 0; o && d < problem.valueDim; ++d)
          o->set(getStart(problem.valueDim) + d, row.o[d]);
        if (lse)
          lse->set((b * problem.queryHeads + h) * problem.numQueries + i, row.lse);
      });
    }
}

void flashattn::fillForward(const Program &program, const OpOfFunction &op,
                            const llvm::BitVector &wanted, double maxWork, Inputs &inputs) {
  if (op.op.kind != CheckedOp::Kind::AttentionBackward)
    return;
  auto find = [&](StringRef name) -> HostTensor * {
    std::optional<unsigned> argument = findOwnArgument(program, op, name);
    return argument && wanted[*argument] ? &inputs.tensors[*argument] : nullptr;
  };
  HostTensor *o = find("o"), *lse = find("lse");
  std::optional<OperandValues> values = getForwardValues(op, inputs);
  if ((!o && !lse) || !values)
    return;
  for (auto [name, tensor] : {std::pair<StringRef, HostTensor *>("o", o), {"lse", lse}})
    if (tensor)
      values->set(name, tensor);
  Expected<AttentionProblem> problem = getProblem(op.op, *values);
  if (!problem)
    return llvm::consumeError(problem.takeError()); // checkInputs reports it
  double work = double(countVisiblePairs(*problem)) * (problem->dim + problem->valueDim);
  fillRows(*problem, std::max(1.0, std::ceil(work / maxWork)), o, lse);
}

/// Converts the array of a file to elements of type `to` if this changes no value. Otherwise sets
/// `remedy` to advice for the user, if there is any.
static Error convert(HostTensor &tensor, Scalar to, std::string &remedy) {
  Scalar from = tensor.getScalar();
  if (from == to)
    return Error::success();
  Expected<std::optional<HostTensor>> converted = tensor.convertExactly(to);
  if (!converted)
    return converted.takeError();
  if (*converted)
    tensor = std::move(**converted);
  else if (isFloat(from) && to == Scalar::BF16)
    remedy = ", whose values bf16 cannot all hold: write the upper 16 bits of float32 as uint16";
  else if (isFloat(from) && isF8(to))
    remedy =
        (", whose values " + getName(to) + " cannot all hold: write their bits as uint8").str();
  else if (isFloat(from) && isFloat(to))
    remedy = (", whose values " + getName(to) +
              " cannot all hold: round them before, as with .astype(numpy.float" +
              llvm::Twine(8 * getByteWidth(to)) + ")")
                 .str();
  return Error::success();
}

Expected<Inputs> flashattn::makeInputs(const Program &program, ArrayRef<std::string> texts,
                                       double maxWork) {
  size_t count = program.arguments.size();
  if (texts.size() > count)
    return llvm::createStringError(
        llvm::formatv("expected at most {0} --input for function '{1}' but got {2}", count,
                      program.function, texts.size())
            .str());
  SmallVector<InputSpec> specs;
  for (const std::string &text : texts) {
    Expected<InputSpec> spec = parseSpec(text);
    if (!spec)
      return spec.takeError();
    specs.push_back(std::move(*spec));
  }

  auto describe = [&](unsigned i) {
    return llvm::formatv("argument {0} of function '{1}'", i, program.function).str();
  };
  Inputs inputs;
  inputs.tensors.resize(count);
  inputs.poisoned.resize(count);
  // Unknown sizes are dynamic.
  std::vector<SmallVector<int64_t>> shapes;
  for (const ValueInfo &info : program.arguments)
    shapes.push_back(info.shape);
  // First the shapes in the flags, then the shapes that follow from them.
  for (size_t i = 0; i < specs.size(); ++i) {
    InputSpec &spec = specs[i];
    const ValueInfo &info = program.arguments[i];
    if (spec.scalar && !takes(info, *spec.scalar, spec.shape))
      return spec.fail("expected " + info.getTypeName() + " for " + describe(i) + " but got " +
                       formatShape(spec.shape, *spec.scalar));
    if (spec.scalar)
      shapes[i] = spec.shape;
    if (StringRef path = spec.source; path.consume_front("@")) {
      Expected<HostTensor> tensor = readNpy(path, info.scalar);
      if (!tensor)
        return spec.fail(llvm::toString(tensor.takeError()));
      std::string remedy;
      if (Error error = convert(*tensor, info.scalar, remedy))
        return spec.fail(llvm::toString(std::move(error)));
      bool isGiven = !spec.scalar || ArrayRef(spec.shape) == tensor->getShape();
      if (!takes(info, tensor->getScalar(), tensor->getShape()) || !isGiven)
        return spec.fail(
            "expected " +
            (spec.scalar ? formatShape(spec.shape, *spec.scalar) : info.getTypeName()) + " for " +
            describe(i) + " but the file holds " + tensor->getTypeName() + remedy);
      shapes[i] = SmallVector<int64_t>(tensor->getShape());
      inputs.tensors[i] = std::move(*tensor);
    } else if (!spec.scalar && ShapedType::isDynamicShape(info.shape)) {
      return spec.fail("expected sizes, as in TYPE=" + spec.source + ", for " + describe(i) +
                       ", which is " + info.getTypeName());
    }
  }

  for (size_t i = 0; i < count; ++i) {
    const ValueInfo &info = program.arguments[i];
    bool isGiven = i < specs.size();
    if (isGiven && specs[i].source.starts_with("@"))
      continue;
    if (Error error = inferShape(program, i, shapes))
      return error;
    if (ShapedType::isDynamicShape(shapes[i]) || (!isGiven && info.isScalar))
      return llvm::createStringError(describe(i) + " of type " + info.getTypeName() +
                                     " needs an --input");
    Expected<HostTensor> tensor = HostTensor::create(info.scalar, shapes[i]);
    if (!tensor)
      return llvm::createStringError(describe(i) + ": " + llvm::toString(tensor.takeError()));
    auto random = [&](uint64_t seed) { fillRandom(program, i, shapes, seed, *tensor); };
    if (isGiven ? specs[i].source == "poison" : info.isWriteOnly) {
      inputs.poisoned.set(i);
    } else if (isGiven) {
      if (Error error = fill(specs[i], *tensor, i, random))
        return error;
    } else {
      random(i);
    }
    inputs.tensors[i] = std::move(*tensor);
  }
  llvm::BitVector wanted(count);
  for (size_t i = 0; i < count; ++i)
    wanted[i] = !inputs.poisoned[i] && (i >= specs.size() || specs[i].source == "random");
  for (const OpOfFunction &op : program.ops)
    fillForward(program, op, wanted, maxWork, inputs);
  return inputs;
}
