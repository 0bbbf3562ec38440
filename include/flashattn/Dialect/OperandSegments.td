#ifndef FLASHATTN_OPERAND_SEGMENTS_TD
#define FLASHATTN_OPERAND_SEGMENTS_TD

include "mlir/IR/OpBase.td"

def CheckedOperandSegments
    : NativeOpTrait<"CheckedOperandSegments", [AttrSizedOperandSegments]>, StructuralOpTrait {
  let cppNamespace = "::mlir::flashattn";
}

/// Replaces AttrSizedOperandSegments for ops with several optional or variadic operands. Requires
/// `OperandSegmentsOf<arguments>.declaration` in the op's extraClassDeclaration.
def OperandSegments : TraitList<[AttrSizedOperandSegments, CheckedOperandSegments]>;

class OperandSegmentsOf<dag arguments> {
  // An operand is a type constraint, or a variable (`Arg`) with a type constraint. Attributes are
  // neither.
  list<string> names = !foldl([]<string>, !range(!size(arguments)), all, i, !listconcat(all,
      !foreach(constraint,
               !listconcat(!filter(c, [!getdagarg<TypeConstraint>(arguments, i)], !initialized(c)),
                           !foreach(v, !filter(w, [!getdagarg<OpVariable>(arguments, i)],
                                               !initialized(w)),
                                    !cast<TypeConstraint>(v.constraint))),
               !if(!or(!isa<Optional>(constraint), !isa<Variadic>(constraint)), "",
                   !getdagname(arguments, i)))));
  code declaration = [{
    /// The name of each operand segment with exactly one operand; empty for other segments.
    static constexpr ::llvm::StringLiteral requiredOperands[] = {"}] #
      !interleave(names, "\", \"") # [{"};
  }];
}

#endif // FLASHATTN_OPERAND_SEGMENTS_TD
