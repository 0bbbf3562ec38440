//===- flash-numbers.cpp - attention over a grid of shapes, against float64 ===//
//
// Every mask, element type and head dimension is one module, compiled once; all head
// groupings and lengths run through that one kernel (rule M5). Outputs start as NaN, guard
// margins stand around every buffer, and o and lse must agree with the reference.
// With --features the modules are drawn at random from all that shapes a score, too. With --symbols
// they are as well, and each has a mask with symbols. With --backward they are of the gradients, of
// an o and lse that the reference gives, with --schedules each has a schedule of its own. With
// --large their scores are far from 0, and with --paged their keys are in pages.
//
//===----------------------------------------------------------------------===//

#include "Features.h"
#include "GuardedDevice.h"
#include "Inputs.h"
#include "Program.h"
#include "RandomSchedules.h"
#include "Runner.h"
#include "Verify.h"
#include "flashattn/InitAll.h"
#include "flashattn/Runtime/Executable.h"
#include "flashattn/Runtime/Model.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/ThreadPool.h"

#include <chrono>
#include <cmath>
#include <future>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
namespace cl = llvm::cl;

static cl::OptionCategory category("flash-numbers");
static cl::opt<std::string> deviceFlag("device", cl::desc("cpu, cuda[:N] or model:sm_XX"),
                                       cl::init("cpu"), cl::cat(category));
static cl::opt<std::string> chipFlag("chip",
                                     cl::desc("compile for this GPU instead of the device's own"),
                                     cl::cat(category));
static cl::opt<unsigned> sampleFlag("sample",
                                    cl::desc("this many points of the grid; 0 is all of it"),
                                    cl::init(0), cl::cat(category));
static cl::opt<unsigned> modulesFlag("modules",
                                     cl::desc("draw the sample from this many modules; 0 is all"),
                                     cl::init(0), cl::cat(category));
static cl::opt<unsigned> seedFlag("seed", cl::desc("seed of the sample and the inputs"),
                                  cl::init(1), cl::cat(category));
static cl::opt<unsigned> interleavingsFlag("interleavings", cl::desc("of each point, on a model"),
                                           cl::init(1), cl::cat(category));
static cl::opt<int64_t> pairsFlag("most-pairs",
                                  cl::desc("only shapes with no more queries times keys"),
                                  cl::init(INT64_MAX), cl::cat(category));
static cl::opt<std::string>
    filterFlag("filter",
               cl::desc("only modules whose name this regular expression matches somewhere"),
               cl::init("."), cl::cat(category));
static cl::opt<unsigned> everyFlag("every", cl::desc("of the modules, every Nth one alone"),
                                   cl::init(1), cl::cat(category));
static cl::opt<bool> othersFlag("others", cl::desc("all modules but those that --every has alone"),
                                cl::cat(category));
static cl::opt<unsigned>
    featuresFlag("features", cl::desc("instead of the grid, this many modules of random features"),
                 cl::init(0), cl::cat(category));
static cl::opt<unsigned>
    symbolsFlag("symbols", cl::desc("like --features, and each module has a mask with symbols"),
                cl::init(0), cl::cat(category));
static cl::opt<bool> largeFlag("large", cl::desc("with --features, scores that are far from 0"),
                               cl::cat(category));
static cl::opt<bool>
    packedFlag("packed", cl::desc("with --features, packed sequences and lengths of queries"),
               cl::cat(category));
static cl::opt<bool> pagedFlag("paged", cl::desc("with --features, keys and values in pages"),
                               cl::cat(category));
static cl::opt<bool> backwardFlag("backward", cl::desc("gradients: flashattn.attention_backward"),
                                  cl::cat(category));
static cl::opt<bool>
    schedulesFlag("schedules",
                  cl::desc("a random schedule for each module instead of the compiler's choice"),
                  cl::cat(category));
static cl::opt<double>
    workFlag("work",
             cl::desc("products of the reference for one point, above which rows are sampled"),
             cl::init(1e9), cl::cat(category));

namespace {

struct Mask {
  StringRef name;
  StringRef clause, place; ///< of flashattn.attention: the mask, then alignment and layout
  bool isBSHD = false;
};

// Widths that are no multiple of any tile.
const Mask masks[] = {
    {"none", "", ""},
    {"causal", "mask(#flashattn.causal)", ""},
    {"causal_top_left", "mask(#flashattn.causal)", "align(top_left)"},
    {"causal_bshd", "mask(#flashattn.causal)", "layout(bshd)", true},
    {"window", "mask(#flashattn.window<left = 99, right = 0>)", ""},
    {"window_both_sides", "mask(#flashattn.window<left = 33, right = 70>)", ""},
    {"sink_window",
     "mask(#flashattn.any_of<[#flashattn.window<left = 99, right = 0>, "
     "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)",
     ""},
    {"set_causal", "mask(#flashattn.set<\"(p, k)[nq, nk] : (p - k >= 0)\">)", ""},
    {"set_strided", "mask(#flashattn.set<\"(p, k)[nq, nk] : (p - k >= 0, (p - k) mod 3 == 0)\">)",
     ""},
};
const StringRef types[] = {"f16", "bf16", "f32"};
const int64_t dims[] = {16, 32, 64, 128, 256};

struct Shape {
  int64_t batch, queryHeads, keyHeads, numQueries, numKeys;
};

struct Case {
  unsigned module;
  Shape shape;
};

/// One (mask, type, head dimensions, features).
struct Module {
  const Mask *mask;
  StringRef type;
  int64_t dim, valueDim;
  Features features;

  std::string name() const {
    std::string name = llvm::formatv("{0}/{1}/D{2}", mask->name, type, dim);
    if (valueDim != dim)
      name += llvm::formatv("/Dv{0}", valueDim);
    if (std::string extra = features.name(); !extra.empty())
      name += "/" + extra;
    return name;
  }
  std::string maskClause() const {
    return features.symbolMask.isEmpty() ? mask->clause.str() : features.symbolMask.clause();
  }
  std::string text() const { return backwardFlag ? gradientText() : attentionText(); }

private:
  std::string batches() const { return features.isPacked ? "1" : "?"; }
  std::string rowType() const { return "memref<" + batches() + "x?x?xf32>"; }
  std::string attentionText() const {
    std::string t = llvm::formatv("memref<{0}x?x?x{1}x{2}>", batches(), dim, type);
    std::string tv = llvm::formatv("memref<{0}x?x?x{1}x{2}>", batches(), valueDim, type);
    auto pool = [&](int64_t width) -> std::string {
      return llvm::formatv(mask->isBSHD ? "memref<?x{0}x?x{1}x{2}>" : "memref<?x?x{0}x{1}x{2}>",
                           features.pageRows, width, type);
    };
    std::string k = features.pageRows ? pool(dim) : t, v = features.pageRows ? pool(valueDim) : tv;
    return llvm::formatv(
        "func.func @attention(%query: {0}, %key: {8}, %value: {9}, {2}%o: {1}, "
        "%lse: {7}) {{\n"
        "  flashattn.attention {3} {4} {5} ins(%query, %key, %value : {0}, {8}, {9}){6}\n"
        "      outs(%o, %lse : {1}, {7})\n"
        "  return\n}\n",
        t, tv, features.parameters(), maskClause(), features.attributeClauses(), mask->place,
        features.operandClauses(), rowType(), k, v);
  }
  std::string gradientText() const {
    std::string t = llvm::formatv("memref<{0}x?x?x{1}x{2}>", batches(), dim, type);
    std::string tv = llvm::formatv("memref<{0}x?x?x{1}x{2}>", batches(), valueDim, type);
    // What follows from the sizes of others comes behind them.
    std::string parameters = features.parameters(), clauses = features.operandClauses(), results;
    if (features.hasDLse) {
      parameters += "%d_lse: " + rowType() + ", ";
      clauses = "\n      d_lse(%d_lse : " + rowType() + ")" + clauses;
    }
    std::string written = "%dq: " + t + ", %dk: " + t + ", %dv: " + tv;
    if (features.hasDBias) {
      written += ", %d_bias: memref<" + features.bias + ">";
      results += " d_bias(%d_bias : memref<" + features.bias + ">)";
    }
    if (features.hasDSinkLogits) {
      written += ", %d_sinks: memref<?xf32>";
      results += " d_sink_logits(%d_sinks : memref<?xf32>)";
    }
    return llvm::formatv("func.func @gradients(%query: {0}, %key: {0}, %value: {1}, {2}%o: {1}, "
                         "%lse: {10}, %d_o: {1}, {3}) {{\n"
                         "  flashattn.attention_backward {4} {5} {6} {7}\n"
                         "      ins(%query, %key, %value, %o, %lse, %d_o : {0}, {0}, {1}, {1}, "
                         "{10}, {1})"
                         "{8}\n      outs(%dq, %dk, %dv : {0}, {0}, {1}){9}\n"
                         "  return\n}\n",
                         t, tv, parameters, written, maskClause(), features.attributeClauses(),
                         mask->place, features.isDeterministic ? "deterministic" : "", clauses,
                         results, rowType());
  }
};

/// A module, lowered. A context of its own, so that several can be compiled at once.
struct Lowered {
  std::unique_ptr<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
  std::optional<Program> program;
  ScheduleAttr schedule; ///< where it is a random one
  std::string error;
};

} // namespace

static std::vector<Shape> getShapes(int64_t dim) {
  const std::pair<int64_t, int64_t> heads[] = {{4, 4}, {8, 2}, {4, 1}}; // MHA, groups of 4, MQA
  const std::pair<int64_t, int64_t> lengths[] = {{1, 1},     {17, 17},     {64, 64},    {113, 113},
                                                 {128, 128}, {203, 203},   {256, 256},  {512, 113},
                                                 {113, 512}, {1023, 1024}, {2048, 2048}};
  std::vector<Shape> shapes;
  for (auto [queryHeads, keyHeads] : heads)
    for (auto [numQueries, numKeys] : lengths)
      shapes.push_back({numQueries < 512 ? 2 : 1, queryHeads, keyHeads, numQueries, numKeys});
  // The sizes of the first assignment.
  if (dim == 16)
    for (auto [numHeads, length] :
         {std::pair<int64_t, int64_t>{8, 512}, {8, 1024}, {16, 2048}, {16, 4096}})
      shapes.push_back({1, numHeads, numHeads, length, length});
  return shapes;
}

/// Lengths that end within tiles and at their ends, other numbers of queries than keys.
static Shape drawShape(std::mt19937 &random) {
  const std::pair<int64_t, int64_t> heads[] = {{2, 2}, {4, 2}, {6, 2}, {3, 1}};
  const int64_t lengths[] = {1, 7, 31, 32, 64, 65, 100, 127, 191, 300, 513};
  auto [queryHeads, keyHeads] = heads[random() % std::size(heads)];
  return {int64_t(1 + random() % 3), queryHeads, keyHeads,
          lengths[random() % (std::size(lengths) - 2)], lengths[random() % std::size(lengths)]};
}

static std::vector<Module> drawModules(std::mt19937 &random, unsigned count, bool isCPU) {
  SmallVector<int64_t> dims = {8, 24, 40, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256};
  if (isCPU)
    dims.append({1, 2, 3, 5, 17});
  std::vector<Module> modules;
  for (unsigned i = 0; i < count; ++i) {
    Module module{&masks[random() % std::size(masks)], types[random() % std::size(types)],
                  dims[i % std::size(dims)], 0, Features::draw(random)};
    if (largeFlag)
      module.features.prepareLarge(backwardFlag);
    if (pagedFlag)
      module.features.page(random);
    else if (packedFlag)
      module.features.pack(random);
    if (backwardFlag)
      module.features.drawGradients(random);
    module.valueDim = random() % 2 ? module.dim : dims[random() % std::size(dims)];
    // From other random numbers, so that the features of all modules stay as they are.
    if (std::mt19937 own(seedFlag * 1000 + i); symbolsFlag || own() % 4 == 0)
      module.features.drawSymbols(own, module.mask->clause);
    modules.push_back(std::move(module));
  }
  return modules;
}

/// Gives the op of the module a random schedule, of its own for each `index` of a module.
static Error drawSchedule(Lowered &lowered, StringRef chip, unsigned index) {
  Expected<Machine> machine = Machine::get(chip);
  if (!machine)
    return machine.takeError();
  std::mt19937 random(seedFlag + index);
  AttentionOpInterface op;
  lowered.module->walk([&](AttentionOpInterface found) { op = found; });
  if (!drawSchedule(op, *machine, random))
    return llvm::createStringError("none of many random schedules fits");
  lowered.schedule = op.getScheduleAttr();
  return Error::success();
}

static std::unique_ptr<Lowered> compile(const DialectRegistry &registry, const Module &module,
                                        unsigned index, StringRef chip, bool forModel) {
  auto lowered = std::make_unique<Lowered>();
  lowered->context = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  lowered->module = parseSourceString<ModuleOp>(module.text(), lowered->context.get());
  if (!lowered->module) {
    lowered->error = "cannot be parsed";
    return lowered;
  }
  Expected<Program> program = analyze(*lowered->module, "");
  if (!program) {
    lowered->error = llvm::toString(program.takeError());
    return lowered;
  }
  lowered->program = std::move(*program);
  if (schedulesFlag)
    if (Error error = drawSchedule(*lowered, chip, index)) {
      lowered->error = llvm::toString(std::move(error));
      return lowered;
    }
  LoweringOptions options;
  options.chip = chip.str();
  options.forModel = forModel;
  if (Error error = lower(*lowered->module, options))
    lowered->error = llvm::toString(std::move(error));
  return lowered;
}

/// What the op reads.
static OperandValues getInputs(const OpOfFunction &op, ArrayRef<const HostTensor *> arguments) {
  OperandValues values;
  for (auto [role, source] : llvm::zip_equal(op.op.roles, op.sources))
    if (!role.rule->is(OperandRule::Output))
      values.set(role.getName(), arguments[*source.argument]);
  return values;
}

/// Runs one point; its failures, empty where it is right.
static Expected<std::string> runCase(const Lowered &code, const Module &module, Shape shape,
                                     GuardedDevice &device, Executable &executable) {
  const Program &program = *code.program;
  size_t mark = device.mark();
  bool isPacked = module.features.isPacked;
  int64_t pageRows = module.features.pageRows, batch = isPacked ? 1 : shape.batch;
  // Enough pages for all sequences, and some more. A random table shares pages.
  int64_t tablePages = pageRows ? 2 + shape.numKeys / pageRows : 0;
  int64_t sequences = isPacked ? shape.batch + 1 : shape.batch;
  int64_t keyBatch = pageRows ? sequences * tablePages / 2 + 3 : batch;
  int64_t keyRows = pageRows ? pageRows : shape.numKeys;
  auto getSpec = [&](int64_t batch, int64_t heads, int64_t length, int64_t width,
                     unsigned argument) {
    if (module.mask->isBSHD)
      std::swap(heads, length);
    return llvm::formatv("{0}x{1}x{2}x{3}x{4}=random:{5}", batch, heads, length, width, module.type,
                         seedFlag * 16 + argument)
        .str();
  };
  // What else there is follows from these; outputs start as NaN.
  std::vector<std::string> specs = {
      getSpec(batch, shape.queryHeads, shape.numQueries, module.dim, 0),
      getSpec(keyBatch, shape.keyHeads, keyRows, module.dim, 1),
      getSpec(keyBatch, shape.keyHeads, keyRows, module.valueDim, 2)};
  if (module.features.hasOffset)
    specs.push_back(llvm::formatv("index={0}", shape.numKeys / 2));
  for (unsigned i = 0; i < (pageRows ? 1 : 2) && isPacked; ++i)
    specs.push_back(llvm::formatv("{0}xi32=random:{1}", shape.batch + 2, seedFlag * 16 + 3 + i));
  if (pageRows)
    specs.push_back(
        llvm::formatv("{0}x{1}xi32=random:{2}", sequences, tablePages, seedFlag * 16 + 5));
  Expected<Inputs> inputs = makeInputs(program, specs, workFlag);
  if (!inputs)
    return inputs.takeError();
  const llvm::BitVector &poisoned = inputs->poisoned;
  SmallVector<const HostTensor *> arguments;
  for (const HostTensor &tensor : inputs->tensors)
    arguments.push_back(&tensor);
  if (Error error = checkInputs(program, arguments))
    return error;
  const OpOfFunction &op = program.ops.front();
  OperandValues values = getInputs(op, arguments);
  Expected<AttentionProblem> problem = getProblem(op.op, values);
  if (!problem)
    return problem.takeError();
  // Of the point's own numbers, so that it is the same alone as among others.
  std::mt19937 random(seedFlag + shape.numQueries * shape.numKeys + module.dim);
  bool hasSymbols = !module.features.symbolMask.isEmpty();
  if (hasSymbols) {
    module.features.symbolMask.fill(op, *problem, random(), inputs->tensors);
    if (problem = getProblem(op.op, values); !problem)
      return problem.takeError();
  }
  std::optional<unsigned> attnMask = op.getArgument("attn_mask");
  bool hidesBlocks = attnMask && random() % 4;
  if (hidesBlocks)
    hideBlocks(inputs->tensors[*attnMask], random);
  if (largeFlag)
    makeLarge(op, random, inputs->tensors);
  if (hidesBlocks || largeFlag || hasSymbols) {
    llvm::BitVector wanted = poisoned;
    // Rows that are not sampled have a log-sum-exp like others', which large ones do not.
    fillForward(program, op, wanted.flip(), largeFlag ? HUGE_VAL : workFlag, *inputs);
  }
  if (pageRows)
    plantInPages(op, *problem, inputs->tensors);
  else if (featuresFlag)
    plantNaN(op, *problem, !backwardFlag && (!code.schedule || code.schedule.getSplits() == 1),
             inputs->tensors);
  Runner runner(program, device, executable);
  if (Error error = runner.upload(arguments, poisoned))
    return error;
  Expected<SmallVector<HostTensor>> results = runner.run();
  if (!results)
    return results.takeError();
  const HostTensor *result = results->begin();
  for (const OperandRole &role : op.op.roles)
    if (role.rule->is(OperandRule::Output))
      values.set(role.getName(), result++);
  Expected<Comparison> comparison = flashattn::compare(op.op, values, workFlag);
  if (!comparison)
    return comparison.takeError();
  std::string text;
  llvm::raw_string_ostream stream(text);
  bool pass = true;
  for (const Verdict &verdict : comparison->verdicts) {
    print(verdict, stream);
    pass &= verdict.holds();
  }
  auto changed = runner.findChangedInput(arguments, poisoned);
  if (!changed)
    return changed.takeError();
  if (*changed) {
    stream << "argument " << **changed << ", an input, was written\n";
    pass = false;
  }
  if (Error error = device.releaseSince(mark))
    return error;
  return pass ? std::string() : text;
}

/// The points to run, by module: a sample of `sampleFlag`, or all.
static std::vector<Case> chooseCases(ArrayRef<Module> modules) {
  std::vector<unsigned> order(modules.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(seedFlag);
  if (modulesFlag && modulesFlag < order.size()) {
    std::shuffle(order.begin(), order.end(), random);
    order.resize(modulesFlag);
  }
  std::vector<Case> cases;
  for (unsigned i : order)
    for (Shape shape : getShapes(modules[i].dim))
      if (shape.numQueries * shape.numKeys <= pairsFlag)
        cases.push_back({i, shape});
  if (sampleFlag && sampleFlag < cases.size()) {
    std::shuffle(cases.begin(), cases.end(), random);
    cases.resize(sampleFlag);
  }
  llvm::sort(cases, [](const Case &a, const Case &b) { return a.module < b.module; });
  return cases;
}

/// The device of --device; `model` is the same one where it is a model of the machine.
static Expected<std::unique_ptr<Device>> openDevice(ModelDevice *&model) {
  StringRef id = deviceFlag;
  if (id.consume_front("model:")) {
    Expected<Machine> machine = Machine::get(id);
    if (!machine)
      return machine.takeError();
    std::unique_ptr<ModelDevice> made = createModelDevice(id, machine->getSharedMemoryPerBlock());
    model = made.get();
    return made;
  }
  int ordinal = 0;
  bool isCUDA = id.consume_front("cuda");
  if (isCUDA ? (id.consume_front(":") && id.getAsInteger(10, ordinal)) : id != "cpu")
    return llvm::createStringError("expected --device cpu, cuda[:N] or model:sm_XX but got '" +
                                   deviceFlag + "'");
  return isCUDA ? createCUDADevice(ordinal) : createCPUDevice();
}

/// The points to run, random features or those of the grid, and the modules they are of.
static Expected<std::vector<Case>> choosePoints(const Device &device,
                                                std::vector<Module> &modules) {
  std::vector<Case> cases;
  llvm::Regex filter(filterFlag);
  if (std::string error; !filter.isValid(error))
    return llvm::createStringError("expected a regular expression for --filter but got '" +
                                   filterFlag + "': " + error);
  auto isChosen = [&](const Module &module) { return filter.match(module.name()); };
  if (featuresFlag) {
    constexpr unsigned kShapes = 4; // for each module
    std::mt19937 random(seedFlag);
    modules = drawModules(random, featuresFlag, device.getChip() == Machine::kCPU);
    for (unsigned i = 0; i < modules.size(); ++i)
      for (unsigned j = 0; j < kShapes; ++j)
        if (Shape shape = drawShape(random);
            isChosen(modules[i]) && shape.numQueries * shape.numKeys <= pairsFlag)
          cases.push_back({i, shape});
  } else {
    for (const Mask &mask : masks)
      for (StringRef type : types)
        for (int64_t dim : dims)
          if (Module module{&mask, type, dim, dim, {}}; isChosen(module))
            modules.push_back(module);
    cases = chooseCases(modules);
  }
  llvm::DenseMap<unsigned, bool> isLeftOut;
  for (const Case &c : cases)
    isLeftOut.insert({c.module, (isLeftOut.size() % everyFlag == 0) == othersFlag});
  llvm::erase_if(cases, [&](const Case &c) { return isLeftOut.lookup(c.module); });
  if (cases.empty())
    return llvm::createStringError("no point of the grid matches --filter=" + filterFlag);
  return cases;
}

static Expected<bool> runGrid() {
  if (symbolsFlag && featuresFlag)
    return llvm::createStringError("expected --symbols or --features but got both");
  if (symbolsFlag)
    featuresFlag = symbolsFlag;
  if (featuresFlag && (sampleFlag || modulesFlag))
    return llvm::createStringError(
        "expected no --sample and no --modules, which are of the grid, with --features");
  if ((largeFlag || packedFlag || pagedFlag) && !featuresFlag)
    return llvm::createStringError(llvm::Twine("expected --features with --") + (largeFlag ? "large"
                                                                                 : pagedFlag
                                                                                     ? "paged"
                                                                                     : "packed"));
  if (pagedFlag && (largeFlag || backwardFlag))
    return llvm::createStringError(llvm::Twine("expected no --") +
                                   (largeFlag ? "large" : "backward") + " with --paged");
  if (everyFlag < (othersFlag ? 2 : 1))
    return llvm::createStringError(
        "expected --every of at least 1, and of at least 2 with --others");
  if (!(workFlag > 0))
    return llvm::createStringError(llvm::Twine("expected --work above 0 but got ") +
                                   llvm::formatv("{0}", double(workFlag)).str());
  ModelDevice *model = nullptr;
  Expected<std::unique_ptr<Device>> device = openDevice(model);
  if (!device)
    return device.takeError();
  if (interleavingsFlag != 1 && !model)
    return llvm::createStringError("expected --device=model:sm_XX with --interleavings");
  std::string chip = chipFlag.empty() ? (*device)->getChip() : chipFlag;
  llvm::outs() << (*device)->getDescription() << ", chip " << chip << "\n";

  std::vector<Module> modules;
  std::vector<Case> cases;
  if (Error error = choosePoints(**device, modules).moveInto(cases))
    return error;

  DialectRegistry registry;
  registerAllFlashAttnDialects(registry);
  registerAllFlashAttnExtensions(registry);
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency());
  std::map<unsigned, std::shared_future<std::shared_ptr<Lowered>>> lowered;
  for (const Case &c : cases)
    if (!lowered.count(c.module))
      lowered[c.module] = pool.async([&, index = c.module] {
        return std::shared_ptr<Lowered>(
            compile(registry, modules[index], index, chip, /*forModel=*/model != nullptr));
      });

  GuardedDevice guarded(**device);
  unsigned passed = 0, failed = 0;
  auto fail = [&](const Case &c, const Lowered &code, StringRef why) {
    ++failed;
    const Shape &s = c.shape;
    const SymbolMask &symbols = modules[c.module].features.symbolMask;
    llvm::outs() << llvm::formatv(
        "FAIL {0} B={1} Hq={2} Hkv={3} Nq={4} Nk={5}{6}: {7}\n", modules[c.module].name(), s.batch,
        s.queryHeads, s.keyHeads, s.numQueries, s.numKeys,
        (symbols.isEmpty() ? "" : " " + symbols.clause()) +
            (code.schedule ? " <" + formatFields(code.schedule.getFields()) + ">" : ""),
        why.trim());
  };
  for (size_t begin = 0; begin < cases.size();) {
    size_t end = begin;
    while (end < cases.size() && cases[end].module == cases[begin].module)
      ++end;
    unsigned index = cases[begin].module;
    std::shared_ptr<Lowered> code = lowered[index].get();
    lowered.erase(index);
    Expected<std::unique_ptr<Executable>> executable =
        code->error.empty() ? Executable::create(*code->module, guarded)
                            : llvm::createStringError(code->error);
    std::string error = executable ? "" : llvm::toString(executable.takeError());
    for (; begin < end; ++begin) {
      if (!error.empty()) {
        fail(cases[begin], *code, error);
        continue;
      }
      std::string why;
      for (unsigned i = 0; i < interleavingsFlag && why.empty(); ++i) {
        if (model)
          model->setSeed(seedFlag + i);
        Expected<std::string> text =
            runCase(*code, modules[index], cases[begin].shape, guarded, **executable);
        why = text ? *text : llvm::toString(text.takeError());
      }
      if (why.empty())
        ++passed;
      else
        fail(cases[begin], *code, why);
    }
    llvm::outs().flush();
  }
  llvm::outs() << llvm::formatv("{0} passed, {1} failed\n", passed, failed);
  return failed == 0;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  initializeBackEnds();
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "Attention over a grid of shapes, against float64\n");
  Expected<bool> pass = runGrid();
  llvm::outs().flush();
  if (!pass) {
    llvm::errs() << "flash-numbers: error: " << llvm::toString(pass.takeError()) << "\n";
    return 1;
  }
  return *pass ? 0 : 1;
}
