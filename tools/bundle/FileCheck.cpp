//===- FileCheck.cpp - LLVM's FileCheck, for machines without LLVM --------===//
//
// Debian's binary needs shared libraries that the target machine may lack. This is a command line
// around LLVM's FileCheck library, with the flags that the tests use.
//
//===----------------------------------------------------------------------===//

#include "llvm/FileCheck/FileCheck.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

static cl::opt<std::string> checkFile(cl::Positional, cl::desc("<check-file>"), cl::Required);
static cl::opt<std::string> inputFile("input-file", cl::desc("file to check"), cl::init("-"));
static cl::list<std::string> prefixes("check-prefix", cl::CommaSeparated,
                                      cl::desc("prefix of the check lines"));
static cl::alias prefixesAlias("check-prefixes", cl::aliasopt(prefixes), cl::CommaSeparated);
static cl::list<std::string> commentPrefixes("comment-prefixes", cl::CommaSeparated,
                                             cl::desc("prefixes of comments"));
static cl::list<std::string> defines("D", cl::Prefix, cl::desc("define a variable, NAME=VALUE"));
static cl::list<std::string> implicitNots("implicit-check-not", cl::desc("pattern to refuse"));
static cl::opt<bool> strictWhitespace("strict-whitespace", cl::desc("do not fold white space"));
static cl::opt<bool> ignoreCase("ignore-case", cl::desc("ignore case"));
static cl::opt<bool> allowEmpty("allow-empty", cl::desc("allow empty input"));
static cl::opt<bool> allowUnused("allow-unused-prefixes",
                                 cl::desc("allow prefixes without checks"));
static cl::opt<bool> matchFullLines("match-full-lines", cl::desc("match whole lines"));
static cl::opt<bool> enableVarScope("enable-var-scope", cl::desc("labels end local variables"));
static cl::opt<std::string> dumpInput("dump-input", cl::desc("accepted, without effect"));

/// Returns the text of `path` as a buffer of `sources`, or null after printing an error.
static const MemoryBuffer *open(SourceMgr &sources, FileCheck &checker, StringRef path) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/true);
  if (std::error_code error = file.getError()) {
    errs() << "cannot open '" << path << "': " << error.message() << "\n";
    return nullptr;
  }
  SmallString<4096> canonical;
  StringRef text = checker.CanonicalizeFile(**file, canonical);
  unsigned id = sources.AddNewSourceBuffer(
      MemoryBuffer::getMemBufferCopy(text, (*file)->getBufferIdentifier()), SMLoc());
  return sources.getMemoryBuffer(id);
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "checks text against patterns in a file\n");

  FileCheckRequest request;
  append_range(request.CheckPrefixes, prefixes);
  request.IsDefaultCheckPrefix = request.CheckPrefixes.empty();
  append_range(request.CommentPrefixes, commentPrefixes);
  append_range(request.ImplicitCheckNot, implicitNots);
  append_range(request.GlobalDefines, defines);
  request.NoCanonicalizeWhiteSpace = strictWhitespace;
  request.IgnoreCase = ignoreCase;
  request.AllowEmptyInput = allowEmpty;
  request.AllowUnusedPrefixes = allowUnused;
  request.MatchFullLines = matchFullLines;
  request.EnableVarScope = enableVarScope;

  FileCheck checker(request);
  SourceMgr sources;
  if (!checker.ValidateCheckPrefixes())
    return 2;
  const MemoryBuffer *checks = open(sources, checker, checkFile);
  if (!checks || checker.readCheckFile(sources, checks->getBuffer()))
    return 2;
  const MemoryBuffer *input = open(sources, checker, inputFile);
  if (!input)
    return 2;
  if (input->getBuffer().empty() && !allowEmpty) {
    errs() << "FileCheck error: '" << inputFile << "' is empty\n";
    return 2;
  }
  return checker.checkInput(sources, input->getBuffer()) ? 0 : 1;
}
