//===- HostObject.h - one object for several chips --------------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_HOSTOBJECT_H
#define FLASHATTN_FLASHCOMPILE_HOSTOBJECT_H

#include "CForm.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

namespace mlir::flashattn {

/// The instruction set of CPU code: x86-64-vN.
struct CPULevel {
  int level;
  StringRef getName() const;       ///< CPU name in LLVM
  int64_t getVectorWidth() const { ///< f32 lanes of a vector register
    return level == 4 ? 16 : level == 3 ? 8 : 4;
  }
  /// Returns the highest level that this machine supports.
  static CPULevel getHost();
};

/// A module with code for several chips and the functions that C calls.
class HostObject {
public:
  HostObject(ArrayRef<CFunction> functions, CPULevel level);

  /// Adds the code of a module that `compile` has lowered for `chip` and that has the functions of
  /// the object. Errors: LLVM cannot translate or link it.
  llvm::Error add(ModuleOp lowered, StringRef chip);

  /// Optimizes the added code and returns the bytes of an object file.
  llvm::Expected<SmallVector<char, 0>> emit();

private:
  /// Returns the table that describes a function (flashattn/Runtime/AOTABI.h).
  llvm::Constant *addTable(const CFunction &function);
  /// Defines the function that C calls, and the function that finds a device for it.
  void addCFunctions(const CFunction &function, llvm::Constant *table);

  llvm::Constant *number(int64_t value);
  llvm::Constant *text(StringRef value);
  /// Returns a private constant array of `element`.
  llvm::Constant *array(llvm::Type *element, ArrayRef<llvm::Constant *> values);
  llvm::Constant *numbers(ArrayRef<int64_t> values);

  struct Variant {
    std::string chip;
    std::vector<std::string> entries; ///< one for each function
  };

  ArrayRef<CFunction> functions;
  CPULevel level;
  llvm::LLVMContext context;
  llvm::Module object;
  std::vector<Variant> variants;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_HOSTOBJECT_H
