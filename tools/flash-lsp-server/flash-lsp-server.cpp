//===- flash-lsp-server.cpp - a language server for .mlir files -----------===//
//
// Upstream's server with the project's dialects. The server has no hook for the text of a hover, so
// this tool is a proxy between server and client: it forwards every message, tracks the text of the
// documents, and adds the tile map of a mask to the responses to hovers, and what is known of the
// numbers that the mask reads from tensors.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/IR/MaskText.h"
#include "flashattn/InitAll.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Support/ToolUtilities.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/LSP/Transport.h"
#include "llvm/Support/SourceMgr.h"

#include <csignal>
#include <map>
#include <mutex>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace mlir::flashattn;
using namespace llvm::lsp;
namespace json = llvm::json;

//===----------------------------------------------------------------------===//
// Tile maps
//===----------------------------------------------------------------------===//

/// `kLength` replaces a dynamic length. Problems with more than `kMostPairs` pairs are drawn with
/// shorter lengths, so that a hover takes no noticeable time.
constexpr int64_t kLength = 1024, kMostPairs = int64_t(1) << 22;

static std::string inFence(StringRef picture) { return ("```\n" + picture + "```\n").str(); }

/// Returns how the pairs that any of `sets` shows change with symbol `i`, counted after nq and nk:
/// a sentence, and which values of several show the most pairs. Both are empty if the symbol does
/// not count.
static std::pair<StringRef, StringRef> describeChange(ArrayRef<IntegerSet> sets, unsigned i) {
  bool grows = false, shrinks = false, isUnknown = false;
  for (IntegerSet set : sets) {
    if (i + 2 >= set.getNumSymbols())
      continue;
    SymbolChange change = getSymbolChange(set, i);
    grows |= change == SymbolChange::Grows;
    shrinks |= change == SymbolChange::Shrinks;
    isUnknown |= change == SymbolChange::Unknown;
  }
  if (isUnknown)
    return {"A set has it with both signs, in an equation, or in `mod` or `floordiv`.",
            "least and the greatest"};
  if (grows && shrinks)
    return {"Greater values show more pairs of one set and fewer of another.",
            "least and the greatest"};
  if (grows)
    return {"Greater values show more pairs.", "greatest"};
  if (shrinks)
    return {"Greater values show fewer pairs.", "least"};
  return {};
}

static std::string drawMask(MaskAttrInterface mask) {
  std::string picture;
  llvm::raw_string_ostream os(picture);
  TileMapSizes sizes{kLength, kLength, /*offset=*/0, /*tileM=*/64, /*tileN=*/64};
  SmallVector<IntegerSet> sets = mask.getVisibleSets();
  printTileMap(os, mask, sets, UnknownLoc::get(mask.getContext()), sizes);
  unsigned symbols = 2;
  for (IntegerSet set : sets)
    symbols = std::max(symbols, set.getNumSymbols());
  std::string text;
  if (symbols > 2)
    text = "The mask reads tensors: its symbols from s2 on are the operands of `per_sequence`, "
           "`per_query` and `per_key` of the op, in this order.\n\n";
  for (unsigned i = 2; i < symbols; ++i)
    if (StringRef change = describeChange(sets, i - 2).first; !change.empty())
      text += llvm::formatv("- `s{0}`: {1}\n", i, change);
  return text + (symbols > 2 ? "\n" : "") + "Tile map:\n\n" + inFence(picture);
}

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

/// Returns the name of a value in the document.
static std::string getName(const AsmParserState &state, Value value) {
  auto getText = [](SMRange range) {
    const char *begin = range.Start.getPointer();
    return range.isValid() ? std::string(begin, range.End.getPointer() - begin) : "a value";
  };
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    const AsmParserState::BlockDefinition *block = state.getBlockDef(argument.getOwner());
    bool isKnown = block && argument.getArgNumber() < block->arguments.size();
    return getText(isKnown ? block->arguments[argument.getArgNumber()].loc : SMRange());
  }
  auto result = cast<OpResult>(value);
  SMRange group;
  unsigned number = result.getResultNumber(), first = 0, end = result.getOwner()->getNumResults();
  if (const AsmParserState::OperationDefinition *op = state.getOpDef(result.getOwner()))
    for (const auto &[start, definition] : op->resultGroups) {
      if (start > number) {
        end = start;
        break;
      }
      first = start, group = definition.loc;
    }
  return getText(group) + (end - first > 1 ? "#" + std::to_string(number - first) : "");
}

/// Returns the sets of an op whose mask reads tensors, the operands that bind their symbols, and
/// how kernels test tiles with the values; empty for another mask.
static std::string describeSymbols(AttentionOpInterface op, const AsmParserState &state,
                                   int64_t tileN) {
  struct Symbol {
    std::string name, operand;
    StringRef unit; ///< for which there is a value each
  };
  SmallVector<Symbol> symbols;
  for (auto [clause, unit, operands] : {std::tuple("per_sequence", "sequence", op.getPerSequence()),
                                        {"per_query", "query", op.getPerQuery()},
                                        {"per_key", "key", op.getPerKey()}})
    for (auto [i, value] : llvm::enumerate(operands)) {
      std::string type;
      llvm::raw_string_ostream(type) << value.getType();
      symbols.push_back(
          {llvm::formatv("{0}{1}", unit, i),
           llvm::formatv("{0}[{1}] = {2} : {3}", clause, i, getName(state, value), type), unit});
    }
  if (symbols.empty())
    return {};
  auto names = llvm::map_to_vector(symbols, [](const Symbol &symbol) { return symbol.name; });
  SmallVector<IntegerSet> sets = op.getVisibleSets();
  std::string text = "The mask reads tensors. It shows the pairs of any of these sets:\n\n```\n";
  for (IntegerSet set : sets)
    text += toText(set, names) + "\n";
  text += "```\n";

  for (auto [i, symbol] : llvm::enumerate(symbols)) {
    auto [change, tested] = describeChange(sets, i);
    text += llvm::formatv("- `{0}` is `{1}`, a value for each {2}. ", symbol.name, symbol.operand,
                          symbol.unit);
    if (change.empty()) {
      text += "No set depends on it.\n";
      continue;
    }
    text += change;
    if (symbol.unit == "sequence") {
      text += " A tile is tested with the value of its sequence.\n";
      continue;
    }
    bool ofKeys = symbol.unit == "key";
    text += llvm::formatv(" A tile is tested with the {0} value of its {1}{2}.\n", tested,
                          ofKeys ? "keys" : "queries",
                          ofKeys && isa<AttentionOp>(*op) ? ", unless keys are split" : "");
  }

  text += "\n";
  for (TileAxis axis : {TileAxis::Keys, TileAxis::Queries}) {
    if (axis == TileAxis::Queries && !isa<AttentionBackwardOp>(*op))
      break;
    bool isExact = TileIntervalPlan(sets, axis, tileN, getSymbolKnowledge(op, axis)).isExact();
    text += llvm::formatv(isExact ? "Kernels visit only tiles of {0} {1} with a visible pair.\n"
                                  : "Kernels may visit tiles of {0} {1} without a visible pair, "
                                    "as a remark of the compiler says.\n",
                          tileN, axis == TileAxis::Keys ? "keys" : "queries");
  }
  return text + "\n";
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Draws the mask of an op with the op's own lengths, offset and tile sizes, as far as they are
/// static.
static std::string drawOp(AttentionOpInterface op, const AsmParserState &state) {
  MaskAttrInterface mask = op.getMaskAttr();
  if (!mask)
    return {};
  auto getLength = [&](int64_t size) {
    return ShapedType::isDynamic(size) || size < 1 ? kLength : size;
  };
  TileMapSizes sizes{getLength(op.getStaticQueries()), getLength(op.getStaticKeys()), 0, 64, 64};
  bool isTooMuch = sizes.nq > kMostPairs / sizes.nk;
  if (isTooMuch)
    sizes.nq = std::min(sizes.nq, kLength), sizes.nk = std::min(sizes.nk, kMostPairs / kLength);
  // A3
  if (Value offset = op.getOffset())
    sizes.offset = getConstantIntValue(offset).value_or(0);
  else if (!op.getOffsets() && op.getAlign() == Align::BottomRight)
    sizes.offset = sizes.nk - sizes.nq;
  if (ScheduleAttr schedule = op.getScheduleAttr()) {
    sizes.tileM = schedule.getTileM() / schedule.getPack();
    sizes.tileN = schedule.getTileN();
  }
  std::string picture;
  llvm::raw_string_ostream os(picture);
  for (TileAxis axis : {TileAxis::Keys, TileAxis::Queries})
    if (axis == TileAxis::Keys || isa<AttentionBackwardOp>(*op))
      printTileMap(os, mask, op.getVisibleSets(), op.getLoc(), sizes, axis);
  return describeSymbols(op, state, sizes.tileN) +
         (isTooMuch ? "Tile map of shorter lengths:\n\n" : "Tile map:\n\n") + inFence(picture);
}

//===----------------------------------------------------------------------===//
// Text of a hover
//===----------------------------------------------------------------------===//

static bool contains(SMRange range, SMLoc loc) {
  return range.isValid() && range.Start.getPointer() <= loc.getPointer() &&
         loc.getPointer() <= range.End.getPointer();
}

/// Returns a document in which only the split that contains `line` is left; all other lines are
/// empty.
static std::string takeChunk(StringRef text, int line) {
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  size_t first = 0, last = lines.size();
  for (auto [i, content] : llvm::enumerate(lines)) {
    if (!content.starts_with(kDefaultSplitMarker))
      continue;
    if (int64_t(i) < line) {
      first = i + 1;
    } else {
      last = i;
      break;
    }
  }
  return std::string(first, '\n') + llvm::join(ArrayRef(lines).slice(first, last - first), "\n") +
         "\n";
}

/// Returns the mask that an alias stands for, or null: an affine_set is one if an attention op uses
/// it.
static MaskAttrInterface getMask(const AsmParserState::AttributeAliasDefinition &alias,
                                 const AsmParserState &state) {
  auto set = dyn_cast_or_null<IntegerSetAttr>(alias.value);
  if (!set)
    return dyn_cast_or_null<MaskAttrInterface>(alias.value);
  for (const AsmParserState::OperationDefinition &op : state.getOpDefs())
    if (isa<AttentionOpInterface>(op.op) && llvm::any_of(alias.definition.uses, [&](SMRange use) {
          return contains(op.scopeLoc, use.Start);
        }))
      return SetAttr::get(set.getContext(), set);
  return {};
}

/// Returns the text about a mask for a hover at `position` of `text`; empty if there is no mask. If
/// upstream has answered the hover (`isAnswered`), an op is described only at its name, otherwise
/// everywhere in its text. An alias is always described.
static std::string describe(MLIRContext &context, StringRef text, Position position,
                            bool isAnswered) {
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(takeChunk(text, position.line)),
                             SMLoc());
  SMLoc loc = position.getAsSMLoc(sources);
  ScopedDiagnosticHandler quiet(&context, [](mlir::Diagnostic &) {}); // upstream reports them
  Block parsed;
  AsmParserState state;
  if (!loc.isValid() ||
      failed(parseAsmSourceFile(sources, &parsed, ParserConfig(&context), &state)))
    return {};
  const AsmParserState::OperationDefinition *innermost = nullptr;
  for (const AsmParserState::OperationDefinition &op : state.getOpDefs())
    if (contains(op.scopeLoc, loc) &&
        (!innermost || innermost->scopeLoc.Start.getPointer() <= op.scopeLoc.Start.getPointer()))
      innermost = &op;
  auto attention = dyn_cast_or_null<AttentionOpInterface>(innermost ? innermost->op : nullptr);
  for (const AsmParserState::AttributeAliasDefinition &alias : state.getAttributeAliasDefs()) {
    auto isHere = [&](SMRange range) { return contains(range, loc); };
    if (!isHere(alias.definition.loc) && llvm::none_of(alias.definition.uses, isHere))
      continue;
    MaskAttrInterface mask = getMask(alias, state);
    return !mask                                          ? ""
           : attention && attention.getMaskAttr() == mask ? drawOp(attention, state)
                                                          : drawMask(mask);
  }
  if (!attention || (isAnswered && !contains(innermost->loc, loc)))
    return {};
  return drawOp(attention, state);
}

//===----------------------------------------------------------------------===//
// Proxy
//===----------------------------------------------------------------------===//

namespace {
/// Tracks a session. Ignores messages that it cannot parse, because the server reports them.
class Session {
public:
  explicit Session(DialectRegistry &registry)
      : context(registry, MLIRContext::Threading::DISABLED) {
    context.allowUnregisteredDialects();
    context.loadAllAvailableDialects();
  }

  /// Records a message to the server. Returns false if it is the last one of the session.
  bool note(const json::Value &message);
  /// Extends a message from the server if it answers a hover. Returns whether it did.
  bool extend(json::Value &message);

private:
  struct Hovered {
    std::string text;
    Position position;
  };

  MLIRContext context;
  std::mutex mutex; ///< guards the members below
  llvm::StringMap<std::string> documents;
  std::map<std::string, Hovered> hovers; ///< by the id of the request
};

/// The server, in a child process, because it may call `exit` (for an unknown option), which is not
/// safe in a process with running threads.
class Server {
public:
  explicit Server(llvm::function_ref<int()> run);

  /// Waits until the server exits. Returns the exit status for this process.
  int wait();

  int input, output; ///< pipes to the server's input and from its output

private:
  pid_t process;
};
} // namespace

Server::Server(llvm::function_ref<int()> run) {
  int toServer[2], fromServer[2];
  if (pipe(toServer) != 0 || pipe(fromServer) != 0 || (process = fork()) < 0)
    llvm::report_fatal_error(llvm::Twine("expected to start the server but got: ") +
                             llvm::sys::StrError());
  if (process == 0) {
    dup2(toServer[0], STDIN_FILENO);
    dup2(fromServer[1], STDOUT_FILENO);
    for (int end : {toServer[0], toServer[1], fromServer[0], fromServer[1]})
      close(end);
    std::exit(run());
  }
  close(toServer[0]);
  close(fromServer[1]);
  input = toServer[1];
  output = fromServer[0];
}

int Server::wait() {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <typename T> static std::optional<T> read(const json::Value &params) {
  T value;
  json::Path::Root root;
  return fromJSON(params, value, root) ? std::optional<T>(std::move(value)) : std::nullopt;
}

bool Session::note(const json::Value &message) {
  const json::Object *object = message.getAsObject();
  std::optional<StringRef> method = object ? object->getString("method") : std::nullopt;
  const json::Value *params = object ? object->get("params") : nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  if (!method || *method == "exit" || !params)
    return method != "exit";
  if (*method == "textDocument/didOpen") {
    if (auto opened = read<DidOpenTextDocumentParams>(*params))
      documents[opened->textDocument.uri.uri()] = opened->textDocument.text;
  } else if (*method == "textDocument/didChange") {
    if (auto changed = read<DidChangeTextDocumentParams>(*params)) {
      std::string &text = documents[changed->textDocument.uri.uri()];
      if (failed(TextDocumentContentChangeEvent::applyTo(changed->contentChanges, text)))
        text.clear();
    }
  } else if (*method == "textDocument/didClose") {
    if (auto closed = read<DidCloseTextDocumentParams>(*params))
      documents.erase(closed->textDocument.uri.uri());
  } else if (*method == "textDocument/hover") {
    auto hovered = read<TextDocumentPositionParams>(*params);
    const json::Value *id = object->get("id");
    if (hovered && id)
      hovers[llvm::formatv("{0}", *id)] = {documents[hovered->textDocument.uri.uri()],
                                           hovered->position};
  }
  return true;
}

bool Session::extend(json::Value &message) {
  json::Object *object = message.getAsObject();
  json::Value *id = object ? object->get("id") : nullptr,
              *result = object ? object->get("result") : nullptr;
  if (!id || !result)
    return false;
  Hovered hovered;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto entry = hovers.find(llvm::formatv("{0}", *id));
    if (entry == hovers.end())
      return false;
    hovered = std::move(entry->second);
    hovers.erase(entry);
  }
  json::Object *answer = result->getAsObject();
  std::string added = describe(context, hovered.text, hovered.position, answer != nullptr);
  if (added.empty())
    return false;
  if (json::Object *contents = answer ? answer->getObject("contents") : nullptr) {
    (*contents)["value"] = (contents->getString("value").value_or("") + "\n\n" + added).str();
  } else {
    *result = json::Object{{"contents", json::Object{{"kind", "markdown"}, {"value", added}}}};
  }
  return true;
}

/// Forwards messages from client to server until the session or the input ends.
static void passToServer(Session &session, int from, int to) {
  std::FILE *input = fdopen(from, "r");
  int first = getc(input);
  ungetc(first, input);
  bool isStandard = first == 'C'; // first letter of Content-Length
  JSONTransportInputOverFile messages(input, isStandard ? JSONStreamStyle::Standard
                                                        : JSONStreamStyle::Delimited);
  llvm::raw_fd_ostream output(to, /*shouldClose=*/true);
  std::string text;
  while (!messages.isEndOfInput() && !messages.hasError()) {
    if (failed(messages.readMessage(text)))
      continue;
    bool isLast = false;
    if (llvm::Expected<json::Value> message = json::parse(text))
      isLast = !session.note(*message);
    else
      llvm::consumeError(message.takeError());
    if (isStandard)
      output << "Content-Length: " << text.size() << "\r\n\r\n" << text;
    else
      output << text << "\n// -----\n";
    output.flush();
    if (isLast)
      break;
  }
  output.clear_error(); // the server may have exited
}

/// Forwards messages from server to client until the server exits.
static void passToClient(Session &session, int from, int to) {
  JSONTransportInputOverFile messages(fdopen(from, "r"));
  llvm::raw_fd_ostream output(to, /*shouldClose=*/false);
  std::string text;
  while (!messages.isEndOfInput() && !messages.hasError()) {
    if (failed(messages.readMessage(text)))
      continue;
    if (llvm::Expected<json::Value> message = json::parse(text)) {
      bool isPretty = text.find('\n') != std::string::npos;
      if (session.extend(*message))
        text = isPretty ? llvm::formatv("{0:2}", *message).str()
                        : llvm::formatv("{0}", *message).str();
    } else {
      llvm::consumeError(message.takeError());
    }
    output << "Content-Length: " << text.size() << "\r\n\r\n" << text;
    output.flush();
  }
  output.clear_error(); // the client may have exited
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  DialectRegistry registry;
  registerAllFlashAttnDialects(registry);
  registerAllFlashAttnExtensions(registry);
  registerVersionPrinter();
  // Hide the flags of LLVM's libraries from --help. The server registers its own flags later.
  for (auto &[name, option] : llvm::cl::getRegisteredOptions())
    if (!llvm::is_contained({"help", "help-hidden", "version"}, name))
      option->setHiddenFlag(llvm::cl::Hidden);
  // These options print text instead of messages, so they need no proxy.
  if (llvm::any_of(ArrayRef(argv + 1, argc - 1), [](StringRef argument) {
        argument = argument.ltrim('-');
        return argument.starts_with("help") || argument == "h" || argument == "version";
      }))
    return failed(MlirLspServerMain(argc, argv, registry));

  Server server([&] { return failed(MlirLspServerMain(argc, argv, registry)); });
  // If the server or the client has exited, writing to it must return an error instead of ending
  // this process.
  std::signal(SIGPIPE, SIG_IGN);
  URIForFile::registerSupportedScheme("mlir.bytecode-mlir"); // as the server does
  Session session(registry);
  std::thread toServer(passToServer, std::ref(session), STDIN_FILENO, server.input);
  passToClient(session, server.output, STDOUT_FILENO);
  int status = server.wait();
  // The thread may be blocked on a client that has not ended its session and never writes again.
  toServer.detach();
  _exit(status);
}
