//===- Inputs.h - arguments of the function ---------------------*- C++ -*-===//

#ifndef FLASH_RUN_INPUTS_H
#define FLASH_RUN_INPUTS_H

#include "Program.h"
#include "Verify.h"
#include "llvm/ADT/BitVector.h"

namespace mlir::flashattn {

struct Inputs {
  std::vector<HostTensor> tensors; ///< one for each argument
  llvm::BitVector poisoned;        ///< arguments without values
};

/// Creates the inputs. `specs` describe the arguments in order: `[TYPE=]SOURCE` or `TYPE`, where
/// SOURCE is `@FILE.npy`, `random[:SEED]`, `zeros`, `ones`, `poison`, a number for all elements, or
/// a number for each element. `TYPE` alone means random; the default seed is the argument's index.
/// An argument without a spec is poison if it is only written, otherwise random; the sizes of
/// operands of the dialect's ops follow from the other operands. If an argument is random without a
/// given seed, and is `o` or `lse` of an attention_backward, it is computed by the attention of the
/// other operands, if these are arguments or constants; beyond `maxWork` multiplications, from a
/// sample of the keys. Errors name the flag: invalid syntax, a shape or type other than the
/// argument's (with both), a dynamic argument without a type, an unreadable file.
llvm::Expected<Inputs> makeInputs(const Program &program, ArrayRef<std::string> specs,
                                  double maxWork = 4 * kDefaultVerifyWork);

/// Computes those of the arguments `o` and `lse` of an attention_backward that are `wanted`, as
/// makeInputs does.
void fillForward(const Program &program, const OpOfFunction &op, const llvm::BitVector &wanted,
                 double maxWork, Inputs &inputs);

} // namespace mlir::flashattn

#endif // FLASH_RUN_INPUTS_H
