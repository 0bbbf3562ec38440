//===- flash-numbers.cpp - attention over a grid of shapes, against float64 ===//
//
// Every mask, element type and head dimension is one module, compiled once; all head
// groupings and lengths run through that one kernel (rule M5). Outputs start as NaN, guard
// margins stand around every buffer, and o and lse must agree with the reference.
//
//===----------------------------------------------------------------------===//

#include "GuardedDevice.h"
#include "Inputs.h"
#include "Program.h"
#include "Runner.h"
#include "Verify.h"
#include "flashattn/InitAll.h"
#include "flashattn/Runtime/Executable.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ThreadPool.h"

#include <chrono>
#include <future>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
namespace cl = llvm::cl;

static cl::OptionCategory category("flash-numbers");
static cl::opt<std::string> deviceFlag("device", cl::desc("cpu, or cuda[:N]"), cl::init("cpu"),
                                       cl::cat(category));
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
static cl::opt<std::string>
    filterFlag("filter", cl::desc("only modules whose name holds this text"), cl::cat(category));
static cl::opt<double>
    workFlag("work",
             cl::desc("products of the reference for one point, above which rows are sampled"),
             cl::init(1e9), cl::cat(category));

namespace {

struct Mask {
  StringRef name;
  StringRef clauses; ///< of flashattn.attention
  bool isBSHD = false;
};

// Widths that are no multiple of any tile.
const Mask masks[] = {
    {"none", ""},
    {"causal", "mask(#flashattn.causal)"},
    {"causal_top_left", "mask(#flashattn.causal) align(top_left)"},
    {"causal_bshd", "mask(#flashattn.causal) layout(bshd)", true},
    {"window", "mask(#flashattn.window<left = 99, right = 0>)"},
    {"window_both_sides", "mask(#flashattn.window<left = 33, right = 70>)"},
    {"sink_window", "mask(#flashattn.any_of<[#flashattn.window<left = 99, right = 0>, "
                    "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)"},
    {"set_causal", "mask(#flashattn.set<\"(p, k)[nq, nk] : (p - k >= 0)\">)"},
    {"set_strided", "mask(#flashattn.set<\"(p, k)[nq, nk] : (p - k >= 0, (p - k) mod 3 == 0)\">)"},
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

/// One (mask, type, head dimension).
struct Module {
  const Mask *mask;
  StringRef type;
  int64_t dim;

  std::string name() const { return llvm::formatv("{0}/{1}/D{2}", mask->name, type, dim); }
  std::string text() const {
    std::string t = llvm::formatv("memref<?x?x?x{0}x{1}>", dim, type);
    return llvm::formatv(
        "func.func @attention(%q: {0}, %k: {0}, %v: {0}, %o: {0}, %lse: memref<?x?x?xf32>) {{\n"
        "  flashattn.attention {1} ins(%q, %k, %v : {0}, {0}, {0})\n"
        "      outs(%o, %lse : {0}, memref<?x?x?xf32>)\n"
        "  return\n}\n",
        t, mask->clauses);
  }
};

/// A module, lowered. A context of its own, so that several can be compiled at once.
struct Lowered {
  std::unique_ptr<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
  std::optional<Program> program;
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

static std::unique_ptr<Lowered> compile(const DialectRegistry &registry, const Module &module,
                                        StringRef chip) {
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
  LoweringOptions options;
  options.chip = chip.str();
  if (Error error = lower(*lowered->module, options))
    lowered->error = llvm::toString(std::move(error));
  return lowered;
}

/// Runs one point; its failures, empty where it is right.
static Expected<std::string> runCase(const Program &program, const Module &module, Shape shape,
                                     GuardedDevice &device, Executable &executable) {
  size_t mark = device.mark();
  Scalar scalar = *parseScalar(module.type);
  std::vector<HostTensor> tensors;
  llvm::BitVector poisoned(5);
  auto make = [&](int64_t heads, int64_t length) -> Error {
    SmallVector<int64_t> sizes = {shape.batch, heads, length, module.dim};
    if (module.mask->isBSHD)
      std::swap(sizes[1], sizes[2]);
    Expected<HostTensor> tensor = HostTensor::create(scalar, sizes);
    if (!tensor)
      return tensor.takeError();
    tensor->fillRandom(seedFlag * 16 + tensors.size());
    tensors.push_back(std::move(*tensor));
    return Error::success();
  };
  for (auto [heads, length] : {std::pair(shape.queryHeads, shape.numQueries),
                               {shape.keyHeads, shape.numKeys},
                               {shape.keyHeads, shape.numKeys},
                               {shape.queryHeads, shape.numQueries}})
    if (Error error = make(heads, length))
      return error;
  Expected<HostTensor> lse =
      HostTensor::create(Scalar::F32, {shape.batch, shape.queryHeads, shape.numQueries});
  if (!lse)
    return lse.takeError();
  tensors.push_back(std::move(*lse));
  poisoned.set(3, 5);

  SmallVector<const HostTensor *> arguments;
  for (const HostTensor &tensor : tensors)
    arguments.push_back(&tensor);
  Expected<AttentionProblem> problem = getProblem(program, arguments);
  if (!problem)
    return problem.takeError();
  Runner runner(program, device, executable);
  if (Error error = runner.upload(arguments, poisoned))
    return error;
  Expected<SmallVector<HostTensor>> results = runner.run();
  if (!results)
    return results.takeError();
  SmallVector<const HostTensor *> outputs;
  for (const HostTensor &output : *results)
    outputs.push_back(&output);
  std::string text;
  llvm::raw_string_ostream stream(text);
  bool pass = verify(*problem, *program.attention, arguments, outputs, stream, workFlag);
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
      cases.push_back({i, shape});
  if (sampleFlag && sampleFlag < cases.size()) {
    std::shuffle(cases.begin(), cases.end(), random);
    cases.resize(sampleFlag);
  }
  llvm::sort(cases, [](const Case &a, const Case &b) { return a.module < b.module; });
  return cases;
}

static Expected<bool> runGrid() {
  StringRef id = deviceFlag;
  int ordinal = 0;
  bool isCUDA = id.consume_front("cuda");
  if (isCUDA ? (id.consume_front(":") && id.getAsInteger(10, ordinal)) : id != "cpu")
    return llvm::createStringError("expected --device cpu or cuda[:N] but got '" + deviceFlag +
                                   "'");
  Expected<std::unique_ptr<Device>> device = isCUDA ? createCUDADevice(ordinal) : createCPUDevice();
  if (!device)
    return device.takeError();
  std::string chip = chipFlag.empty() ? (*device)->getChip() : chipFlag;
  llvm::outs() << (*device)->getDescription() << ", chip " << chip << "\n";

  std::vector<Module> modules;
  for (const Mask &mask : masks)
    for (StringRef type : types)
      for (int64_t dim : dims)
        if (Module module{&mask, type, dim}; StringRef(module.name()).contains(filterFlag))
          modules.push_back(module);
  std::vector<Case> cases = chooseCases(modules);
  if (cases.empty())
    return llvm::createStringError("no point of the grid matches --filter=" + filterFlag);

  DialectRegistry registry;
  registerAllFlashAttnDialects(registry);
  registerAllFlashAttnExtensions(registry);
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency());
  std::map<unsigned, std::shared_future<std::shared_ptr<Lowered>>> lowered;
  for (const Case &c : cases)
    if (!lowered.count(c.module))
      lowered[c.module] = pool.async([&, index = c.module] {
        return std::shared_ptr<Lowered>(compile(registry, modules[index], chip));
      });

  GuardedDevice guarded(**device);
  unsigned passed = 0, failed = 0;
  auto fail = [&](const Case &c, StringRef why) {
    ++failed;
    const Shape &s = c.shape;
    llvm::outs() << llvm::formatv("FAIL {0} B={1} Hq={2} Hkv={3} Nq={4} Nk={5}: {6}\n",
                                  modules[c.module].name(), s.batch, s.queryHeads, s.keyHeads,
                                  s.numQueries, s.numKeys, why.trim());
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
        fail(cases[begin], error);
        continue;
      }
      Expected<std::string> text =
          runCase(*code->program, modules[index], cases[begin].shape, guarded, **executable);
      if (!text)
        fail(cases[begin], llvm::toString(text.takeError()));
      else if (!text->empty())
        fail(cases[begin], *text);
      else
        ++passed;
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
