//===- HostObject.h - one object for several chips --------------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_HOSTOBJECT_H
#define FLASHATTN_FLASHCOMPILE_HOSTOBJECT_H

#include "CForm.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

namespace mlir::flashattn {

/// What is compiled for the CPU: x86-64-vN.
struct CPULevel {
  int level;
  StringRef getName() const;       ///< as LLVM calls it
  int64_t getVectorWidth() const { ///< f32 lanes of a register
    return level == 4 ? 16 : level == 3 ? 8 : 4;
  }
  /// The highest level of this machine.
  static CPULevel getHost();
};

/// Code of several chips in one module, with the functions that C calls.
class HostObject {
public:
  HostObject(ArrayRef<CFunction> functions, CPULevel level);

  /// Adds the code of a module that `compile` has lowered for `chip`, whose functions are those of
  /// the object. Errors: what LLVM says of it.
  llvm::Error add(ModuleOp lowered, StringRef chip);

  /// Optimises what was added and gives the bytes of an object file.
  llvm::Expected<SmallVector<char, 0>> emit();

private:
  /// The table of what is said of a function (flashattn/Runtime/AOTABI.h).
  llvm::Constant *addTable(const CFunction &function);
  /// The function that C calls, and the one that finds its device.
  void addCFunctions(const CFunction &function, llvm::Constant *table);

  llvm::Constant *number(int64_t value);
  llvm::Constant *text(StringRef value);
  /// A private array of that type.
  llvm::Constant *array(llvm::Type *element, ArrayRef<llvm::Constant *> values);
  llvm::Constant *numbers(ArrayRef<int64_t> values);

  struct Variant {
    std::string chip;
    std::vector<std::string> entries; ///< by function
  };

  ArrayRef<CFunction> functions;
  CPULevel level;
  llvm::LLVMContext context;
  llvm::Module object;
  std::vector<Variant> variants;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_HOSTOBJECT_H
