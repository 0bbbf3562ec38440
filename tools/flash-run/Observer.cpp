//===- Observer.cpp -------------------------------------------------------===//

#include "Observer.h"
#include "Footprint.h"
#include "Runner.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

/// The prefix of the functions that the module calls.
static constexpr StringLiteral kPrefix = "flashattn_observe_";

/// A value that the module passes.
struct Observer::Slot {
  enum Owner { Op, Project, Captured };

  Owner owner;
  StringRef name; ///< in static storage
  bool isOutput = false;
  /// The value that was passed last; for constants of the module, always present.
  std::optional<HostTensor> value = std::nullopt;
  bool isConstant = false;
  CapturedValue captured = {};
  Footprint footprint = {};
};

/// An op, or an attention and its projection, with the result of the comparison.
struct Observer::Unit {
  CheckedOp op;
  std::optional<CheckedOp> project;
  std::vector<Slot> slots;
  size_t numBefore = 0; ///< number of `slots` passed before the op

  uint64_t runs = 0;
  Comparison total;
  std::string reason; ///< reason for a failure other than wrong numbers

  unsigned getNumOps() const { return project ? 2 : 1; }
  std::string describe() const {
    return op.describe() + (project ? " and " + project->describe() : "");
  }
  OperandValues getValues(Slot::Owner owner) const {
    OperandValues values;
    for (const Slot &slot : slots) {
      if (slot.owner == owner && slot.value)
        values.set(slot.name, &*slot.value);
      if (slot.owner == Slot::Captured && owner == Slot::Op)
        values.captured.push_back(
            {slot.captured.real, slot.captured.integer, slot.value ? &*slot.value : nullptr});
    }
    return values;
  }
};

namespace {
/// The observer that the running module calls.
Observer *current = nullptr;

struct CurrentScope {
  explicit CurrentScope(Observer *observer) { current = observer; }
  ~CurrentScope() { current = nullptr; }
};
} // namespace

Observer::Observer(ObserverOptions options) : options(std::move(options)) {}
Observer::~Observer() = default;

Expected<PlantedFault> PlantedFault::parse(StringRef text) {
  PlantedFault fault;
  auto [place, element] = text.split(':');
  auto [op, result] = place.split('.');
  unsigned number = 0;
  bool isNumber = !op.getAsInteger(10, number);
  if ((!isNumber && op != "all") || element.getAsInteger(10, fault.element) || fault.element < 0)
    return llvm::createStringError(
        "expected OP[.RESULT]:ELEMENT with OP a number or all but got '" + text + "'");
  if (isNumber)
    fault.op = number;
  fault.result = result;
  return fault;
}

//===----------------------------------------------------------------------===//
// Insertion of calls
//===----------------------------------------------------------------------===//

/// Returns the value that contains the op's output o.
static Value getOutput(AttentionOp op) {
  return op->getNumResults() ? Value(op->getResult(0)) : Value(op.getOInit());
}

/// Returns the projection that may be fused with `op`: the first one that follows, or null.
static ProjectOp findProjection(AttentionOp op) {
  for (Operation *next = op->getNextNode(); next; next = next->getNextNode())
    if (auto project = dyn_cast<ProjectOp>(next); project && project.getO() == getOutput(op))
      return project;
  return {};
}

/// Whether the output of `op` is needed by others than `project`.
static bool keepsOutput(AttentionOp op, ProjectOp project) {
  Value o = getOutput(op);
  bool isOfFunction = op->getNumResults() == 0 && !o.getDefiningOp<memref::AllocOp>();
  return isOfFunction ||
         llvm::any_of(o.getUsers(), [&](Operation *user) { return user != project && user != op; });
}

/// Returns the reason why the op's operands cannot be passed; empty if they can.
static std::string explainObstacle(const CheckedOp &op, Operation *operation) {
  if (!op.obstacle.empty())
    return op.obstacle;
  for (Operation *parent = operation->getParentOp(); parent; parent = parent->getParentOp())
    if (isa<scf::ParallelOp, scf::ForallOp, affine::AffineParallelOp>(parent))
      return ("expected no enclosing parallel loop but got " + parent->getName().getStringRef())
          .str();
  return {};
}

Expected<std::unique_ptr<Observer>> Observer::instrument(ModuleOp module, StringRef function,
                                                         ObserverOptions options) {
  module.getContext()
      ->loadDialect<arith::ArithDialect, bufferization::BufferizationDialect,
                    memref::MemRefDialect>();
  std::unique_ptr<Observer> observer(new Observer(std::move(options)));
  for (Operation &op : module.getBody()->getOperations())
    if (auto symbol = dyn_cast<SymbolOpInterface>(op))
      if (symbol.getName().starts_with(kPrefix))
        return llvm::createStringError("expected no symbol named " + kPrefix + "… but got '" +
                                       symbol.getName() + "'");
  llvm::SetVector<func::FuncOp> functions;
  functions.insert(module.lookupSymbol<func::FuncOp>(function));
  for (size_t i = 0; i < functions.size(); ++i) {
    func::FuncOp reached = functions[i];
    reached.walk([&](func::CallOp call) {
      auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
      if (callee && !callee.isExternal())
        functions.insert(callee);
    });
    if (Error error = observer->addOps(module, reached))
      return error;
  }
  return observer;
}

Error Observer::addOps(ModuleOp module, func::FuncOp function) {
  std::vector<std::pair<Operation *, ProjectOp>> found;
  llvm::SmallPtrSet<Operation *, 4> paired;
  function.walk([&](Operation *op) {
    if (!isa<AttentionOpInterface, CombineOp, ProjectOp>(op) || paired.contains(op))
      return;
    auto attention = dyn_cast<AttentionOp>(op);
    ProjectOp project = attention && options.fusesProjection ? findProjection(attention) : nullptr;
    if (project)
      paired.insert(project);
    found.emplace_back(op, project);
  });
  for (auto [op, project] : found) {
    auto unit = std::make_unique<Unit>();
    unit->op = *CheckedOp::create(op);
    std::string obstacle = explainObstacle(unit->op, op);
    if (project) {
      unit->project = CheckedOp::create(project);
      if (obstacle.empty())
        obstacle = explainObstacle(*unit->project, project);
    }
    if (!obstacle.empty() && options.compares)
      return llvm::createStringError(
          unit->describe() + " cannot be compared with the reference: " + obstacle +
          "; --expected-output compares the function's outputs with files instead");
    Unit &added = *units.emplace_back(std::move(unit));
    addCalls(module, added, op, project);
    if (auto backward = dyn_cast<AttentionBackwardOp>(op))
      deterministic &= backward.getDeterministic();
  }
  return Error::success();
}

void Observer::addCall(OpBuilder &builder, ModuleOp module, Location loc, StringRef suffix,
                       ValueRange arguments) {
  std::string name = (kPrefix + suffix).str();
  auto callee = module.lookupSymbol<func::FuncOp>(name);
  if (!callee) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    callee =
        func::FuncOp::create(builder, loc, name, builder.getFunctionType(arguments.getTypes(), {}));
    callee.setPrivate();
    void *address = suffix == "scalar"   ? reinterpret_cast<void *>(seeScalar)
                    : suffix == "finish" ? reinterpret_cast<void *>(finish)
                                         : reinterpret_cast<void *>(seeBuffer);
    symbols.emplace_back("_mlir_ciface_" + name, address);
  }
  func::CallOp::create(builder, loc, callee, arguments);
}

/// Converts a scalar to 64 bits; floats become f64.
static Value toBits(OpBuilder &b, Location loc, Value value) {
  Type type = value.getType();
  if (isa<IndexType>(type))
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), value);
  if (auto real = dyn_cast<FloatType>(type)) {
    if (real.getWidth() < 64)
      value = arith::ExtFOp::create(b, loc, b.getF64Type(), value);
    return arith::BitcastOp::create(b, loc, b.getI64Type(), value);
  }
  if (type.isInteger(64))
    return value;
  if (type.isInteger(1))
    return arith::ExtUIOp::create(b, loc, b.getI64Type(), value);
  return arith::ExtSIOp::create(b, loc, b.getI64Type(), value);
}

void Observer::addSlot(OpBuilder &builder, ModuleOp module, Unit &unit, Slot slot, Value value,
                       Location loc) {
  auto constant = [&](int64_t number) {
    return arith::ConstantIntOp::create(builder, loc, number, 64).getResult();
  };
  Value unitNumber = constant(units.size() - 1), slotNumber = constant(unit.slots.size());
  auto type = dyn_cast<ShapedType>(value.getType());
  if (!type) {
    slot.footprint.scalar = isa<FloatType>(value.getType()) ? Scalar::F64 : Scalar::I64;
    addCall(builder, module, loc, "scalar", {unitNumber, slotNumber, toBits(builder, loc, value)});
    unit.slots.push_back(std::move(slot));
    return;
  }
  if (!slot.isOutput)
    slot.value = getConstant(value);
  slot.isConstant = slot.value.has_value();
  slot.footprint.scalar = *getScalar(type.getElementType());
  slot.footprint.shape.resize(type.getRank());
  slot.footprint.strides.resize(type.getRank());
  unit.slots.push_back(std::move(slot));
  if (unit.slots.back().isConstant)
    return;
  // Cast every layout to a fully dynamic one, so that few callees suffice.
  SmallVector<int64_t> dynamic(type.getRank(), ShapedType::kDynamic);
  auto layout = StridedLayoutAttr::get(builder.getContext(), ShapedType::kDynamic, dynamic);
  if (isa<TensorType>(type))
    value = bufferization::ToBufferOp::create(
        builder, loc, MemRefType::get(type.getShape(), type.getElementType(), layout), value,
        /*read_only=*/true);
  Attribute space = cast<MemRefType>(value.getType()).getMemorySpace();
  auto whole = MemRefType::get(dynamic, type.getElementType(), layout, space);
  value = memref::CastOp::create(builder, loc, whole, value);
  std::string suffix =
      llvm::formatv("{0}x{1}", type.getRank(), getName(*getScalar(type.getElementType())));
  addCall(builder, module, loc, suffix, {unitNumber, slotNumber, value});
}

void Observer::addCalls(ModuleOp module, Unit &unit, Operation *op, Operation *project) {
  OpBuilder builder(op);
  Location loc = op->getLoc();
  for (const OperandRole &role : unit.op.roles)
    if (!role.rule->is(OperandRule::Output))
      addSlot(builder, module, unit, {Slot::Op, role.getName()}, role.value, loc);
  if (unit.op.attention.scoreMod)
    for (Value value : unit.op.attention.scoreMod->getCaptured())
      addSlot(builder, module, unit, {Slot::Captured, ""}, value, loc);
  unit.numBefore = unit.slots.size();

  // A call between attention and projection would prevent their fusion.
  builder.setInsertionPointAfter(project ? project : op);
  unsigned result = 0;
  for (const OperandRole &role : unit.op.roles) {
    if (!role.rule->is(OperandRule::Output))
      continue;
    Value value = op->getNumResults() ? Value(op->getResult(result++)) : role.value;
    if (project && role.getName() == "o" &&
        !keepsOutput(cast<AttentionOp>(op), cast<ProjectOp>(project)))
      continue;
    addSlot(builder, module, unit, {Slot::Op, role.getName(), /*isOutput=*/true}, value, loc);
  }
  if (project)
    for (const OperandRole &role : ArrayRef(unit.project->roles).drop_front()) {
      bool isOutput = role.rule->is(OperandRule::Output);
      Value value =
          isOutput && project->getNumResults() ? Value(project->getResult(0)) : role.value;
      addSlot(builder, module, unit, {Slot::Project, role.getName(), isOutput}, value, loc);
    }
  Value number = arith::ConstantIntOp::create(builder, loc, units.size() - 1, 64);
  addCall(builder, module, loc, "finish", number);
}

//===----------------------------------------------------------------------===//
// Callbacks
//===----------------------------------------------------------------------===//

void Observer::fail(Error failure) {
  std::string text = llvm::toString(std::move(failure));
  if (error.empty())
    error = text;
}

void Observer::seeScalar(int64_t number, int64_t slotNumber, int64_t bits) {
  Unit &unit = *current->units[number];
  Slot &slot = unit.slots[slotNumber];
  double real;
  std::memcpy(&real, &bits, sizeof(real));
  slot.captured = {real, bits, /*tensor=*/nullptr};
  if (slot.owner == Slot::Captured)
    return;
  Expected<HostTensor> value = HostTensor::create(slot.footprint.scalar, {});
  if (!value)
    return current->fail(value.takeError());
  std::memcpy(value->data(), &bits, sizeof(bits));
  slot.value = std::move(*value);
}

void Observer::seeBuffer(int64_t number, int64_t slotNumber, int64_t *descriptor) {
  if (!current->error.empty())
    return;
  Unit &unit = *current->units[number];
  Slot &slot = unit.slots[slotNumber];
  slot.footprint.setDescriptor(descriptor);
  if (Error error = current->copyBuffer(unit, slot))
    return current->fail(std::move(error));
  if (size_t(slotNumber) + 1 != unit.numBefore)
    return;
  // With sizes that do not agree, the op could write anywhere in memory, so exit.
  Expected<OperandSizes> sizes = getSizes(unit.op, unit.getValues(Slot::Op));
  if (sizes)
    return;
  llvm::outs().flush();
  llvm::errs() << "flash-run: error: the operands of " << unit.op.describe()
               << " do not fit together: " << llvm::toString(sizes.takeError()) << "\n";
  std::_Exit(1);
}

/// Copies the memory of the slot's footprint to the host.
Error Observer::copyBuffer(Unit &unit, Slot &slot) {
  const Footprint &footprint = slot.footprint;
  Expected<HostTensor> value = HostTensor::create(footprint.scalar, footprint.shape);
  if (!value)
    return value.takeError();
  slot.value = std::move(*value);
  // Counting the work needs only sizes and lengths.
  if (slot.value->getNumElements() == 0 || (!options.compares && footprint.scalar != Scalar::I32))
    return Error::success();
  if (Error error = device->synchronize())
    return error;
  if (slot.isOutput)
    if (Error error = plantFault(unit, slot))
      return error;
  unsigned bytes = getByteWidth(footprint.scalar);
  auto *address = reinterpret_cast<void *>(footprint.address);
  if (footprint.isContiguous())
    return device->copyToHost(slot.value->data(), address, slot.value->getNumBytes());
  std::vector<uint8_t> sharedRange(footprint.getHullBytes());
  if (Error error = device->copyToHost(sharedRange.data(), address, sharedRange.size()))
    return error;
  for (int64_t i = 0; i < slot.value->getNumElements(); ++i)
    std::memcpy(slot.value->data() + i * bytes, sharedRange.data() + footprint.getByteOffset(i),
                bytes);
  return Error::success();
}

/// Changes an element of the slot if the options request it.
Error Observer::plantFault(const Unit &unit, const Slot &slot) {
  if (!options.fault || (!options.fault->result.empty() && options.fault->result != slot.name) ||
      (options.fault->op && units[*options.fault->op].get() != &unit))
    return Error::success();
  Expected<HostTensor> element = HostTensor::create(slot.footprint.scalar, {1});
  if (!element)
    return element.takeError();
  int64_t place = options.fault->element % slot.value->getNumElements();
  auto *address =
      reinterpret_cast<uint8_t *>(slot.footprint.address) + slot.footprint.getByteOffset(place);
  if (Error error = device->copyToHost(element->data(), address, element->getNumBytes()))
    return error;
  double right = element->get(0);
  element->set(0, std::isfinite(right) ? right + 1 + std::abs(right) : 0.5);
  return device->copyToDevice(address, element->data(), element->getNumBytes());
}

void Observer::finish(int64_t number) {
  if (!current->error.empty())
    return;
  Unit &unit = *current->units[number];
  if (Error error = current->finishUnit(unit))
    current->fail(
        llvm::createStringError(unit.describe() + ": " + llvm::toString(std::move(error))));
  for (Slot &slot : unit.slots)
    if (!slot.isConstant)
      slot.value.reset();
}

Error Observer::finishUnit(Unit &unit) {
  ++unit.runs;
  OperandValues values = unit.getValues(Slot::Op);
  for (auto [op, owner] : {std::pair(&unit.op, Slot::Op),
                           std::pair(unit.project ? &*unit.project : nullptr, Slot::Project)}) {
    if (!op || op->kind == CheckedOp::Kind::Combine)
      continue;
    Expected<OperandSizes> sizes = getSizes(*op, unit.getValues(owner));
    if (!sizes)
      return sizes.takeError();
    if (op->kind == CheckedOp::Kind::Project) {
      flops += 2.0 * sizes->get('B') * sizes->get('N') * sizes->get('H') * sizes->get('V') *
               sizes->get('E');
      continue;
    }
    Expected<AttentionProblem> problem = getProblem(*op, values);
    if (!problem)
      return problem.takeError();
    // Forward, a pair costs a multiplication and an addition for each element of a row of K and of
    // V. Backward, D of these for each of S, dQ and dK, and Dv for each of dP and dV.
    uint64_t visible = countVisiblePairs(*problem);
    pairs += visible;
    bool isBackward = op->kind == CheckedOp::Kind::AttentionBackward;
    flops +=
        double(visible) * 2 *
        (isBackward ? 3 * problem->dim + 2 * problem->valueDim : problem->dim + problem->valueDim);
  }
  return options.compares ? compareUnit(unit) : Error::success();
}

/// Returns an error text if an output shares memory with another operand; otherwise empty.
static std::string explainOverlap(ArrayRef<std::pair<StringRef, const Footprint *>> inputs,
                                  ArrayRef<std::pair<StringRef, const Footprint *>> outputs) {
  for (auto [i, output] : llvm::enumerate(outputs))
    for (auto [name, other] :
         llvm::concat<const std::pair<StringRef, const Footprint *>>(inputs, outputs.take_front(i)))
      if (shareMemory(output.second->getPlace(), other->getPlace()))
        return llvm::formatv("expected separate memory for {0} but got memory of {1}", output.first,
                             name)
            .str();
  return {};
}

Error Observer::compareUnit(Unit &unit) {
  for (Slot::Owner owner : {Slot::Op, Slot::Project}) {
    SmallVector<std::pair<StringRef, const Footprint *>> inputs, outputs;
    for (const Slot &slot : unit.slots)
      if (slot.owner == owner && !slot.isConstant && slot.footprint.address)
        (slot.isOutput ? outputs : inputs).emplace_back(slot.name, &slot.footprint);
    if (unit.reason.empty())
      unit.reason = explainOverlap(inputs, outputs);
  }
  // The remaining work. A sample is charged half of it, so that later runs are compared too.
  double left = std::max(options.maxWork - unit.total.work, 0.0);
  auto add = [&](const CheckedOp &op, const OperandValues &values,
                 const AttentionProblem *producer) -> Error {
    Expected<Comparison> found = compare(op, values, left, producer);
    if (!found)
      return found.takeError();
    unit.total.rows += found->rows;
    unit.total.allRows += found->allRows;
    unit.total.work += found->rows < found->allRows ? left / 2 : found->work;
    for (const Verdict &verdict : found->verdicts) {
      auto known = llvm::find_if(unit.total.verdicts,
                                 [&](const Verdict &other) { return other.name == verdict.name; });
      if (known == unit.total.verdicts.end())
        unit.total.verdicts.push_back(verdict);
      else
        known->merge(verdict);
    }
    return Error::success();
  };
  OperandValues values = unit.getValues(Slot::Op);
  if (!unit.project)
    return add(unit.op, values, nullptr);
  if (values.get("o") || values.get("lse"))
    if (Error error = add(unit.op, values, nullptr))
      return error;
  Expected<AttentionProblem> problem = getProblem(unit.op, values);
  if (!problem)
    return problem.takeError();
  return add(*unit.project, unit.getValues(Slot::Project), &*problem);
}

//===----------------------------------------------------------------------===//
// Run and report
//===----------------------------------------------------------------------===//

Expected<SmallVector<HostTensor>> Observer::run(ModuleOp module, const Program &program,
                                                const Inputs &inputs, Device &plain,
                                                const LoweringOptions &options) {
  if (this->options.fault && this->options.fault->op && *this->options.fault->op >= units.size())
    return llvm::createStringError(
        llvm::formatv("expected the number of an op below {0} for the fault but got {1}",
                      units.size(), *this->options.fault->op)
            .str());
  {
    // Warnings and remarks are emitted when the module is compiled without the calls.
    ScopedDiagnosticHandler errorsOnly(module.getContext(), [](Diagnostic &diagnostic) {
      return failure(diagnostic.getSeverity() == DiagnosticSeverity::Error);
    });
    LoweringOptions quiet = options;
    quiet.dumpDir.clear();
    if (Error error = lower(module, quiet))
      return error;
  }
  GuardedDevice guarded(plain);
  Expected<std::unique_ptr<Executable>> executable = Executable::create(module, guarded, symbols);
  if (!executable)
    return executable.takeError();
  SmallVector<const HostTensor *> arguments;
  for (const HostTensor &tensor : inputs.tensors)
    arguments.push_back(&tensor);
  Runner runner(program, guarded, **executable);
  if (Error error = runner.upload(arguments, inputs.poisoned))
    return error;
  device = &guarded;
  CurrentScope scope(this);
  Expected<SmallVector<HostTensor>> outputs = runner.run();
  device = nullptr;
  if (outputs && !error.empty())
    return llvm::createStringError(error);
  return outputs;
}

unsigned Observer::getNumOps() const {
  unsigned count = 0;
  for (const std::unique_ptr<Unit> &unit : units)
    count += unit->getNumOps();
  return count;
}

bool Observer::report(raw_ostream &os) const {
  bool pass = true;
  unsigned compared = 0;
  for (const std::unique_ptr<Unit> &unit : units) {
    os << "verify: " << unit->describe();
    if (unit->runs == 0) {
      os << ", not reached\n";
      continue;
    }
    const Comparison &total = unit->total;
    if (unit->runs > 1)
      os << ", " << unit->runs << " runs";
    os << ", " << describeRows(total.rows, total.allRows);
    if (!unit->reason.empty()) {
      os << ": " << unit->reason << ": FAIL";
      pass = false;
    }
    os << "\n";
    for (const Verdict &verdict : total.verdicts) {
      print(verdict, os);
      pass &= verdict.holds();
    }
    if (llvm::any_of(total.verdicts, [](const Verdict &verdict) { return verdict.elements != 0; }))
      compared += unit->getNumOps();
  }
  os << "verify: " << compared << " of " << getNumOps() << " ops compared"
     << (compared ? "" : ": FAIL") << "\n";
  return pass && compared;
}

llvm::json::Array Observer::describe() const {
  llvm::json::Array ops;
  for (const std::unique_ptr<Unit> &unit : units) {
    llvm::json::Array results;
    for (const Verdict &verdict : unit->total.verdicts)
      results.push_back(flashattn::describe(verdict));
    llvm::json::Object op{{"op", unit->describe()},
                          {"runs", int64_t(unit->runs)},
                          {"rows", int64_t(unit->total.rows)},
                          {"of_rows", int64_t(unit->total.allRows)},
                          {"results", std::move(results)}};
    if (!unit->reason.empty())
      op["error"] = unit->reason;
    ops.push_back(std::move(op));
  }
  return ops;
}
