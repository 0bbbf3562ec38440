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

def FlashAttn_AttentionOpInterface : OpInterface<"AttentionOpInterface", [FlashAttn_KernelOpInterface]> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    Attention, forward or backward: what shapes the scores of queries and keys (rules A1 to A4 and
    M1 to M7) is the same for both, and whoever makes scores reads it here.
  }];
  let methods = [
    InterfaceMethod<"Queries.", "::mlir::TypedValue<::mlir::ShapedType>", "getQ">,
    InterfaceMethod<"Keys.", "::mlir::TypedValue<::mlir::ShapedType>", "getK">,
    InterfaceMethod<"Values.", "::mlir::TypedValue<::mlir::ShapedType>", "getV">,
    InterfaceMethod<"Added to the scores; may be null, as all below.",
      "::mlir::TypedValue<::mlir::ShapedType>", "getBias">,
    InterfaceMethod<"Hides pairs where false.", "::mlir::TypedValue<::mlir::ShapedType>", "getKeep">,
    InterfaceMethod<"A logit a query head.", "::mlir::TypedValue<::mlir::ShapedType>", "getSinkLogits">,
    InterfaceMethod<"Keys that exist, by batch.", "::mlir::TypedValue<::mlir::ShapedType>", "getKvLen">,
    InterfaceMethod<"Position of query 0.", "::mlir::TypedValue<::mlir::IndexType>", "getOffset">,
    InterfaceMethod<"The scale where it is an operand.",
      "::mlir::TypedValue<::mlir::FloatType>", "getScaleValue">,
    InterfaceMethod<"The scale where it is an attribute.", "::std::optional<::llvm::APFloat>", "getScale">,
    InterfaceMethod<"The softcap.", "::std::optional<::llvm::APFloat>", "getSoftcap">,
    InterfaceMethod<"The mask.", "::std::optional<::mlir::flashattn::MaskAttrInterface>", "getMask">,
    InterfaceMethod<"The mask, or null.", "::mlir::flashattn::MaskAttrInterface", "getMaskAttr">,
    InterfaceMethod<"Rule A3.", "::mlir::flashattn::Align", "getAlign">,
    InterfaceMethod<"Order of dimensions.", "::mlir::flashattn::Layout", "getLayout">,
    InterfaceMethod<"The schedule, or null.", "::mlir::flashattn::ScheduleAttr", "getScheduleAttr">,
    InterfaceMethod<"Sets the schedule.", "void", "setScheduleAttr",
      (ins "::mlir::flashattn::ScheduleAttr":$schedule)>,
    InterfaceMethod<"None or one.", "::mlir::MutableArrayRef<::mlir::Region>", "getScoreMods">,
  ];
  let extraSharedClassDeclaration = [{
    /// Dimension of heads and of sequence in `q`, `k`, `v` and what is shaped like them.
    unsigned getHeadDim() { return $_op.getLayout() == ::mlir::flashattn::Layout::BHSD ? 1 : 2; }
    unsigned getSeqDim() { return $_op.getLayout() == ::mlir::flashattn::Layout::BHSD ? 2 : 1; }
    /// D, the length of a query or key row in elements.
    int64_t getD() { return $_op.getQ().getType().getDimSize(3); }
    /// Dv, the length of a value or output row in elements.
    int64_t getDv() { return $_op.getV().getType().getDimSize(3); }
    ::mlir::FloatType getElementType() {
      return ::llvm::cast<::mlir::FloatType>($_op.getQ().getType().getElementType());
    }

    /// Query heads to a key/value head (A4), 1 where that is not known.
    int64_t getKnownGroup() { return ::mlir::flashattn::getKnownGroup($_op); }

    /// The factor of rule A1, given or `1/sqrt(D)`, where it is not an operand.
    double getScaleOrDefault() { return ::mlir::flashattn::getScaleOrDefault($_op); }

    /// Whether there is a score modification (rule A2).
    bool hasScoreMod() { return !$_op.getScoreMods().empty(); }
    /// The score modification, which there must be.
    ::mlir::Region &getScoreMod() { return $_op.getScoreMods().front(); }
    /// Whether the score modification, which there must be, only adds something to the score, so that
    /// its derivative is 1 (rule B6).
    bool addsToScore() { return ::mlir::flashattn::addsToScore($_op); }
    /// Whether a dimension of `bias` or `keep` is the same along all of the scores' dimension.
    static bool isBroadcastDim(::mlir::Value tensor, unsigned dim) {
      return ::llvm::cast<::mlir::ShapedType>(tensor.getType()).getDimSize(dim) == 1;
    }

    /// The value of every element of `keep`, where it is a constant of one value.
    ::std::optional<bool> getConstantKeep() { return ::mlir::flashattn::getConstantKeep($_op); }

    /// The sets of the mask, or one set that shows every pair (rules of MaskAttrInterface).
    ::llvm::SmallVector<::mlir::IntegerSet> getVisibleSets() {
      return ::mlir::flashattn::getVisibleSets($_op);
    }
  }];
}

#endif // FLASHATTN_INTERFACES_TD
