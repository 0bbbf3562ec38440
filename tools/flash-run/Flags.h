//===- Flags.h - what flash-run is asked for ---------------------*- C++ -*-===//

#ifndef FLASH_RUN_FLAGS_H
#define FLASH_RUN_FLAGS_H

#include "Emit.h"
#include "HostTensor.h"
#include "flashattn/Runtime/Device.h"
#include "llvm/Support/CommandLine.h"

namespace mlir::flashattn {

/// The flags, whose descriptions (--help, Flags.cpp) say what each is.
namespace flags {
extern llvm::cl::list<std::string> files;
extern llvm::cl::opt<std::string> functionName;
extern llvm::cl::opt<std::string> deviceName;
extern llvm::cl::opt<bool> listDevices;
extern llvm::cl::opt<double> timeout;
extern llvm::cl::opt<int64_t> modelSeeds;
extern llvm::cl::opt<int64_t> modelMultiprocessors; ///< 0: the GPU's
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

/// Has --help list these flags and no other library's.
void hideOtherFlags();

/// Whether flags and their values go together, and what they name is such. Gives the seconds of
/// --bench, where it has some. Errors: the flag, what it has and what was expected.
llvm::Error checkFlags(double &benchSeconds);

/// Whether more than a compilation is asked for.
bool asksToRun();

/// The device of --device. `noGPU` says why `auto` is the CPU.
llvm::Expected<std::unique_ptr<Device>> openDevice(std::string &noGPU);

/// The arrays of --expected-output and the paths of --output. Errors: more of them than `program`
/// has outputs, no @FILE.npy, or a file that cannot be read.
llvm::Error readOutputFlags(const Program &program, SmallVector<HostTensor> &expected,
                            SmallVector<StringRef> &paths);

/// How `function` is compiled for `chip`; all functions where it is empty.
LoweringOptions getLoweringOptions(StringRef function, StringRef chip);

} // namespace mlir::flashattn

#endif // FLASH_RUN_FLAGS_H
