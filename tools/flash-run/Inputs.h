//===- Inputs.h - what goes into the function --------------------*- C++ -*-===//

#ifndef FLASH_RUN_INPUTS_H
#define FLASH_RUN_INPUTS_H

#include "Program.h"
#include "Verify.h"
#include "llvm/ADT/BitVector.h"

namespace mlir::flashattn {

struct Inputs {
  std::vector<HostTensor> tensors; ///< one for each argument
  llvm::BitVector poisoned;        ///< those that hold nothing yet
};

/// What `specs`, in order of the arguments, ask for: `[TYPE=]SOURCE` or `TYPE`, with SOURCE
/// `@FILE.npy`, `random[:SEED]`, `zeros`, `ones`, `poison` or numbers, one or as many as there are
/// elements; `TYPE` alone means random, and the seed left out is the argument's index.
/// Arguments without: poison where they are only written, otherwise random; sizes of operands of
/// the dialect's ops follow from the other operands. What is `random`, without a seed, and reaches
/// an attention_backward as its `o` or `lse`, is what the attention of its other operands gives,
/// where these are arguments or constants; beyond `maxWork` products from a sample of the keys.
/// Errors name the flag: a bad form, a shape or
/// type that the argument does not take (both), a dynamic argument without a type, a file that
/// cannot be read.
llvm::Expected<Inputs> makeInputs(const Program &program, ArrayRef<std::string> specs,
                                  double maxWork = 4 * kDefaultVerifyWork);

/// Fills of the `o` and `lse` of an attention_backward the arguments that are `wanted`, as
/// makeInputs does.
void fillForward(const Program &program, const OpOfFunction &op, const llvm::BitVector &wanted,
                 double maxWork, Inputs &inputs);

} // namespace mlir::flashattn

#endif // FLASH_RUN_INPUTS_H
