//===- KernelCode.cpp - serialization of compiled code --------------------===//

#include "KernelCode.h"
#include "llvm/Support/Endian.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

namespace {

/// Appends values: numbers as 8 bytes; texts and lists after their lengths.
class Writer {
public:
  std::string bytes;

  void visit(int64_t value) {
    char raw[sizeof(value)];
    llvm::support::endian::write64le(raw, value);
    bytes.append(raw, sizeof(raw));
  }
  void visit(const std::string &text) {
    visit(int64_t(text.size()));
    bytes += text;
  }
  template <typename T, typename F> void visitAll(const std::vector<T> &list, F visitOne) {
    visit(int64_t(list.size()));
    for (const T &element : list)
      visitOne(element);
  }
};

/// Reads the same values from the front.
class Reader {
public:
  explicit Reader(StringRef bytes) : bytes(bytes) {}

  /// Whether all values were present, and nothing else.
  bool isDone() const { return !failed && bytes.empty(); }

  void visit(int64_t &value) {
    StringRef raw = take(sizeof(value));
    value = failed ? 0 : llvm::support::endian::read64le(raw.data());
  }
  void visit(std::string &text) {
    int64_t size;
    visit(size);
    text = take(size).str();
  }
  template <typename T, typename F> void visitAll(std::vector<T> &list, F visitOne) {
    int64_t size;
    // An element is at least as long as a number, so a damaged length ends the loop early.
    for (visit(size); size > 0 && !failed; --size)
      visitOne(list.emplace_back());
  }

private:
  StringRef take(uint64_t size) {
    failed |= size > bytes.size();
    StringRef taken = bytes.take_front(failed ? 0 : size);
    bytes = bytes.drop_front(taken.size());
    return taken;
  }

  StringRef bytes;
  bool failed = false;
};

/// The order of the fields, for Writer and Reader.
template <typename Code, typename Visitor> void visitFields(Code &code, Visitor &visitor) {
  visitor.visitAll(code.stages, [&](auto &stage) {
    visitor.visit(stage.name);
    visitor.visit(stage.text);
  });
  visitor.visitAll(code.remarks, [&](auto &remark) {
    visitor.visit(remark.severity);
    visitor.visit(remark.file);
    visitor.visit(remark.line);
    visitor.visit(remark.column);
    visitor.visit(remark.message);
  });
  visitor.visit(code.workspaceBytes);
  visitor.visitAll(code.image.functions, [&](auto &function) { visitor.visit(function); });
  visitor.visitAll(code.image.kernels, [&](auto &kernels) {
    visitor.visit(kernels.first);
    visitor.visit(kernels.second);
  });
  visitor.visit(code.image.object);
}

} // namespace

std::string KernelCode::toBytes() const {
  Writer writer;
  visitFields(*this, writer);
  return std::move(writer.bytes);
}

bool KernelCode::fromBytes(StringRef bytes) {
  Reader reader(bytes);
  visitFields(*this, reader);
  return reader.isDone();
}
