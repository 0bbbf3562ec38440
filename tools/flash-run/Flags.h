//===- Flags.h - command-line flags of flash-run ----------------*- C++ -*-===//

#ifndef FLASH_RUN_FLAGS_H
#define FLASH_RUN_FLAGS_H

#include "Emit.h"
#include "HostTensor.h"
#include "flashattn/Runtime/Device.h"
#include "llvm/Support/CommandLine.h"

namespace mlir::flashattn {

/// The flags. Flags.cpp has their descriptions, which --help prints.
namespace flags {
extern llvm::cl::list<std::string> files;
extern llvm::cl::opt<std::string> functionName;
extern llvm::cl::opt<std::string> deviceName;
extern llvm::cl::opt<bool> listDevices;
extern llvm::cl::opt<double> timeout;
extern llvm::cl::opt<int64_t> modelSeeds;
extern llvm::cl::opt<int64_t> modelMultiprocessors; ///< 0: as many as the GPU has
extern llvm::cl::opt<int64_t> modelSeed;
extern llvm::cl::opt<bool> modelStatistics;
extern llvm::cl::opt<std::string> modelTrace;
extern llvm::cl::list<std::string> inputs;
extern llvm::cl::list<std::string> outputs;
extern llvm::cl::opt<bool> printOutputs;
extern llvm::cl::list<std::string> expectedOutputs;
extern llvm::cl::opt<bool> verifyFlag;
extern llvm::cl::opt<std::string> plantedFault;
extern llvm::cl::opt<std::string> benchFlag;
extern llvm::cl::opt<std::string> jsonFile;
extern llvm::cl::opt<double> absoluteTolerance;
extern llvm::cl::opt<double> relativeTolerance;
extern llvm::cl::opt<Emit> emitFlag;
extern llvm::cl::opt<std::string> emitFile;
extern llvm::cl::opt<std::string> chip;
extern llvm::cl::opt<std::string> schedule;
extern llvm::cl::opt<bool> fuseFlag;
extern llvm::cl::opt<bool> raiseFlag;
extern llvm::cl::opt<bool> tuneFlag;
extern llvm::cl::opt<std::string> tunedFile;
extern llvm::cl::opt<std::string> dumpDir;
} // namespace flags

/// Hides the flags of other libraries from --help.
void hideOtherFlags();

/// Checks that the values of the flags are valid and that the flags can be combined. Sets
/// `benchSeconds` if --bench has a value. Errors name the flag, the expected and the actual value.
llvm::Error checkFlags(double &benchSeconds);

/// Whether a flag requires a run of the function.
bool asksToRun();

/// Opens the device of --device. If `auto` selects the CPU, sets `noGPU` to the reason.
llvm::Expected<std::unique_ptr<Device>> openDevice(std::string &noGPU);

/// Reads the arrays of --expected-output and the paths of --output. Errors: more of these flags
/// than `program` has outputs, a value other than @FILE.npy, or an unreadable file.
llvm::Error readOutputFlags(const Program &program, SmallVector<HostTensor> &expected,
                            SmallVector<StringRef> &paths);

/// Returns the options to compile `function` for `chip`; if `function` is empty, all functions.
LoweringOptions getLoweringOptions(StringRef function, StringRef chip);

} // namespace mlir::flashattn

#endif // FLASH_RUN_FLAGS_H
