#ifndef FLASHATTN_INTERFACES_TD
#define FLASHATTN_INTERFACES_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/Interfaces.td"

def FlashAttn_MaskAttrInterface : AttrInterface<"MaskAttrInterface"> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    A mask is the set of visible pairs `(p, k)`, `p` the position of the query
    (rule A3) and `k` the index of the key: a union of integer sets over the
    dimensions `(p, k)` and the symbols `[nq, nk]`, the numbers of queries and
    keys. Every analysis and lowering reads that union and knows no mask by name.
  }];
  let methods = [
    InterfaceMethod<[{
        The sets whose union is the visible pairs, each over `(p, k)[nq, nk]`.
        An empty list hides every pair.
      }], "::llvm::SmallVector<::mlir::IntegerSet>", "getVisibleSets">,
  ];
}

def FlashAttn_KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    An op that becomes kernels. What its operands are stands in one table (OperandRoles.h), which
    whoever checks, describes or passes them reads.
  }];
  let methods = [
    StaticInterfaceMethod<"The table: a row for each operand, those left out too, in their order.",
      "::llvm::ArrayRef<::mlir::flashattn::OperandRule>", "getOperandRules">,
    InterfaceMethod<"The same rows with this op's values, layout and broadcasts.",
      "::llvm::SmallVector<::mlir::flashattn::OperandRole>", "getOperandRoles", (ins), [{}], [{
        return ::mlir::flashattn::collectOperandRoles(
            $_op.getOperandRules(), $_op.getLayout(),
            [&](unsigned i) -> ::mlir::ValueRange { return $_op.getODSOperands(i); });
      }]>,
  ];
}

#endif // FLASHATTN_INTERFACES_TD
