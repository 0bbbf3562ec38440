#ifndef FLASHATTN_INTERFACES_TD
#define FLASHATTN_INTERFACES_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/Interfaces.td"

def FlashAttn_MaskAttrInterface : AttrInterface<"MaskAttrInterface"> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    A mask is the set of visible pairs `(p, k)`: `p` is the position of the query (rule A3) and `k`
    the index of the key. The set is a union of integer sets over the dimensions `(p, k)` and the
    symbols `[nq, nk]`, the numbers of queries and keys, which may be followed by symbols whose
    values are operands of the op (rules Y1 and Y2). All analyses and lowerings work on this union;
    none depends on the kind of mask attribute.
  }];
  let methods = [
    InterfaceMethod<[{
        Returns the sets over `(p, k)[nq, nk, ...]` whose union is the set of visible pairs. An
        empty list hides every pair.
      }], "::llvm::SmallVector<::mlir::IntegerSet>", "getVisibleSets">,
  ];
}

def FlashAttn_MappingAttrInterface : AttrInterface<"MappingAttrInterface"> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    How the programs of a schedule map to a machine. Code that builds tile programs does not depend
    on the kind of mapping: it asks the questions below.
  }];
  let methods = [
    InterfaceMethod<"Returns the number of warps of a program; 1 on the CPU.",
      "int64_t", "getWarps">,
    InterfaceMethod<[{
        Returns the number of threads that share a row. The row sum is kept as this many partial
        sums and reduced once at the end.
      }], "int64_t", "getThreadsPerRow">,
    InterfaceMethod<[{
        Returns the number of columns of a tile in registers that holds `columns` columns of memory.
      }], "int64_t", "padColumns", (ins "int64_t":$columns)>,
    InterfaceMethod<[{
        Whether a program is a thread block of a kernel, so that threads synchronize, branches are
        cheap and kernels cost a launch.
      }], "bool", "isOnGPU", (ins), [{}], [{ return true; }]>,
    InterfaceMethod<[{
        Returns how many steps late the last product of a step runs (`flashattn.stage lag`): 1 if it
        overlaps the next step, otherwise 0.
      }], "int64_t", "getLag", (ins), [{}], [{ return 0; }]>,
    InterfaceMethod<[{
        Returns the power of 2 by which the maximum of a row may grow before accumulators are
        rescaled; nullopt if they are rescaled at each growth.
      }], "::std::optional<int64_t>", "getThresholdOfRescale", (ins), [{}],
      [{ return ::std::nullopt; }]>,
    InterfaceMethod<"Whether the decision to rescale follows the exponentials of a tile.",
      "bool", "rescalesLazily", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<[{
        Whether values of each key are loaded with the tiles of V, by other threads than those that
        compute.
      }], "bool", "loadsKeyValuesAhead", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<[{
        Whether a program without a tile may run in the last block, so that loads of its rows may be
        out of bounds.
      }], "bool", "mayRunWithoutTile", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<[{
        Whether threads have registers for the base of each row in the backward pass (B1). If not,
        other programs recompute the gradients of large rows.
      }], "bool", "hasRegistersForBases", (ins), [{}], [{ return true; }]>,
    InterfaceMethod<[{
        Whether a thread keeps the limits that the mask sets for its rows in registers, and compares
        indices with them. If not, it compares with limits of the columns.
      }], "bool", "keepsRowLimits", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<[{
        Whether hidden pairs are replaced by zeros after conversion to a 16-bit type, two at once.
      }], "bool", "hidesPairsAtOnce", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<[{
        Whether tiles are added to global memory by bulk copies from shared memory, which add several
        adjacent elements at once.
      }], "bool", "addsByBulkCopy", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<[{
        Whether shared memory has space for two programs with tiles of 64 rows of up to 128 columns.
      }], "bool", "hasSpaceForWideTiles", (ins), [{}], [{ return false; }]>,
  ];
}

def FlashAttn_KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    An op that is lowered to kernels. A table of its operands (OperandRoles.h) is the basis of all
    code that verifies, describes or passes operands.
  }];
  let methods = [
    StaticInterfaceMethod<[{
        The table: one row for each operand in order, including optional operands that are omitted.
      }],
      "::llvm::ArrayRef<::mlir::flashattn::OperandRule>", "getOperandRules">,
    InterfaceMethod<"The same rows with the values, layout and broadcast dimensions of this op.",
      "::llvm::SmallVector<::mlir::flashattn::OperandRole>", "getOperandRoles", (ins), [{}], [{
        return ::mlir::flashattn::collectOperandRoles(
            $_op.getOperandRules(), $_op.getLayout(),
            [&](unsigned i) -> ::mlir::ValueRange { return $_op.getODSOperands(i); });
      }]>,
  ];
}

def FlashAttn_RowMapOpInterface : OpInterface<"RowMapOpInterface"> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    An op that describes where the rows of a sequence are in memory, as a value of type
    `!flashattn.rows`. Ops that access tiles of the sequence take the value; passes ask the op that
    defines it.
  }];
  let methods = [
    InterfaceMethod<"Returns the first row of memory that exists, an index; null if it is row 0.",
      "::mlir::Value", "getBegin">,
    InterfaceMethod<[{
        Returns the end of the rows of memory that exist, an index; null if it is that of the
        memref.
      }], "::mlir::Value", "getEnd">,
    InterfaceMethod<[{
        Returns the segments, in increasing order; the first one starts at row 0. If the list is
        empty, row r of the sequence is row r of memory.
      }], "::llvm::SmallVector<::mlir::flashattn::RowSegment>", "getSegments">,
    InterfaceMethod<[{
        Returns the number of rows, from each multiple of this number on, that are consecutive in
        memory; nullopt if all rows are.
      }], "::std::optional<int64_t>", "getGranularity">,
    InterfaceMethod<"Returns the pages that contain the rows; nullopt without pages.",
      "::std::optional<::mlir::flashattn::PageMap>", "getPages">,
    InterfaceMethod<[{
        Returns the size of a tile along each dimension of the memref along which its rows run;
        empty if they run along one dimension.
      }], "::llvm::SmallVector<int64_t>", "getRowShape">,
    InterfaceMethod<[{
        Returns the same map without `getBegin()`; null if no map is needed then.
      }], "::mlir::Value", "buildWithoutBegin", (ins "::mlir::OpBuilder &":$builder)>,
  ];
}

def FlashAttn_SpaceOpInterface : OpInterface<"SpaceOpInterface"> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    An op that describes the items of work of a `flashattn.program`, as a value of type
    `!flashattn.space`. A target numbers the points of a box of `getSizes()`, runs one program for
    each point, and asks the space for the item of a point (`emitItem` in Program/Spaces.h).
  }];
  let methods = [
    InterfaceMethod<"Returns the size of the box along each axis, index values.",
      "::mlir::OperandRange", "getSizes">,
    InterfaceMethod<"Returns what each coordinate of an item counts, ProgramAxisAttr.",
      "::mlir::ArrayAttr", "getAxes">,
    InterfaceMethod<[{
        Returns the ragged axes, the first and the last one; nullopt if the coordinates of an item
        are those of its point.
      }], "::std::optional<::mlir::flashattn::RaggedAxes>", "getRagged">,
  ];
}

def FlashAttn_AttentionOpInterface
    : OpInterface<"AttentionOpInterface", [FlashAttn_KernelOpInterface]> {
  let cppNamespace = "::mlir::flashattn";
  let description = [{
    Attention, forward or backward. Both passes compute the scores in the same way (rules A1 to A4
    and M1 to M7), through this interface.
  }];
  let methods = [
    InterfaceMethod<"Queries.", "::mlir::TypedValue<::mlir::ShapedType>", "getQ">,
    InterfaceMethod<"Keys.", "::mlir::TypedValue<::mlir::ShapedType>", "getK">,
    InterfaceMethod<"Values.", "::mlir::TypedValue<::mlir::ShapedType>", "getV">,
    InterfaceMethod<"The bias, which is added to the scores. It may be null, as all values below.",
      "::mlir::TypedValue<::mlir::ShapedType>", "getBias">,
    InterfaceMethod<"The boolean mask; false hides a pair.",
      "::mlir::TypedValue<::mlir::ShapedType>", "getAttnMask">,
    InterfaceMethod<"The sink logits, one for each query head.",
      "::mlir::TypedValue<::mlir::ShapedType>", "getSinkLogits">,
    InterfaceMethod<"The number of existing keys of each batch.",
      "::mlir::TypedValue<::mlir::ShapedType>", "getKvLen">,
    InterfaceMethod<"The number of existing queries of each batch.",
      "::mlir::TypedValue<::mlir::ShapedType>", "getQLen">,
    InterfaceMethod<"The first row of each packed sequence of queries (rule S1).",
      "::mlir::TypedValue<::mlir::ShapedType>", "getCuSeqlensQ">,
    InterfaceMethod<"The first row of each packed sequence of keys (rule S1).",
      "::mlir::TypedValue<::mlir::ShapedType>", "getCuSeqlensK">,
    InterfaceMethod<"The pages that hold the keys of each batch (rule P1).",
      "::mlir::TypedValue<::mlir::ShapedType>", "getPageTable">,
    InterfaceMethod<"The number of rows before the first key of each batch (rule P3).",
      "::mlir::TypedValue<::mlir::ShapedType>", "getLeftpadK">,
    InterfaceMethod<"The scales of `k` (rule F1).",
      "::mlir::TypedValue<::mlir::ShapedType>", "getKScale">,
    InterfaceMethod<"The scales of `v` (rule F1).",
      "::mlir::TypedValue<::mlir::ShapedType>", "getVScale">,
    InterfaceMethod<"Position of query 0.", "::mlir::TypedValue<::mlir::IndexType>", "getOffset">,
    InterfaceMethod<"Position of query 0 of each batch (rule A3).",
      "::mlir::TypedValue<::mlir::ShapedType>", "getOffsets">,
    InterfaceMethod<"The symbols of the mask with a value for each batch (rule Y1).",
      "::mlir::OperandRange", "getPerSequence">,
    InterfaceMethod<"The symbols of the mask with a value for each query (rule Y2).",
      "::mlir::OperandRange", "getPerQuery">,
    InterfaceMethod<"The symbols of the mask with a value for each key (rule Y2).",
      "::mlir::OperandRange", "getPerKey">,
    InterfaceMethod<"The scale, if it is an operand.",
      "::mlir::TypedValue<::mlir::FloatType>", "getScaleValue">,
    InterfaceMethod<"The scale, if it is an attribute.",
      "::std::optional<::llvm::APFloat>", "getScale">,
    InterfaceMethod<"The softcap.", "::std::optional<::llvm::APFloat>", "getSoftcap">,
    InterfaceMethod<"The mask.",
      "::std::optional<::mlir::flashattn::MaskAttrInterface>", "getMask">,
    InterfaceMethod<"The mask, or null.", "::mlir::flashattn::MaskAttrInterface", "getMaskAttr">,
    InterfaceMethod<"The alignment of queries and keys (rule A3).",
      "::mlir::flashattn::Align", "getAlign">,
    InterfaceMethod<"The order of the operands' dimensions.",
      "::mlir::flashattn::Layout", "getLayout">,
    InterfaceMethod<"The schedule, or null.", "::mlir::flashattn::ScheduleAttr", "getScheduleAttr">,
    InterfaceMethod<"Sets the schedule.", "void", "setScheduleAttr",
      (ins "::mlir::flashattn::ScheduleAttr":$schedule)>,
    InterfaceMethod<"The score modification: no region or one.",
      "::mlir::MutableArrayRef<::mlir::Region>", "getScoreMods">,
  ];
  let extraSharedClassDeclaration = [{
    /// Returns the dimension of heads and the dimension of positions in `q`, `k`, `v` and operands
    /// of the same layout.
    unsigned getHeadDim() { return $_op.getLayout() == ::mlir::flashattn::Layout::BHSD ? 1 : 2; }
    unsigned getSeqDim() { return $_op.getLayout() == ::mlir::flashattn::Layout::BHSD ? 2 : 1; }
    /// Returns D, the number of elements in a query or key row.
    int64_t getD() { return $_op.getQ().getType().getDimSize(3); }
    /// Returns Dv, the number of elements in a value or output row.
    int64_t getDv() { return $_op.getV().getType().getDimSize(3); }
    ::mlir::FloatType getElementType() {
      return ::llvm::cast<::mlir::FloatType>($_op.getQ().getType().getElementType());
    }

    /// Whether the elements of `k`, or of `v`, are converted where tiles are loaded (F1).
    bool hasNarrowKeys() {
      return ::mlir::flashattn::isNarrow($_op.getK().getType().getElementType());
    }
    bool hasNarrowValues() {
      return ::mlir::flashattn::isNarrow($_op.getV().getType().getElementType());
    }
    /// Whether queries or keys are packed sequences (S1).
    bool hasPackedSequences() { return $_op.getCuSeqlensQ() || $_op.getCuSeqlensK(); }
    /// Whether the numbers of queries and keys differ between batches (S4, A7).
    bool hasOwnLengths() {
      return hasPackedSequences() || $_op.getQLen() || $_op.getKvLen() || $_op.getLeftpadK();
    }
    /// Whether positions, lengths or symbols of the mask differ between batches (A3, S4, A7, Y1).
    bool hasOwnSequences() {
      return hasOwnLengths() || $_op.getOffsets() || !$_op.getPerSequence().empty();
    }
    /// Whether an operand states the position of query 0 (A3).
    bool hasOffset() { return $_op.getOffset() || $_op.getOffsets(); }
    /// S7: returns the numbers of rows of `q` that a computed sequence must have at least and at
    /// most, if there is such a limit.
    ::std::optional<int64_t> getLeastQueries() {
      return ::mlir::flashattn::getLimit($_op, "min_seqlen_q");
    }
    ::std::optional<int64_t> getMostQueries() {
      return ::mlir::flashattn::getLimit($_op, "max_seqlen_q");
    }
    /// Returns the number of queries, or of keys, of every batch; dynamic if it is not known or if
    /// batches differ.
    int64_t getStaticQueries() {
      return $_op.getCuSeqlensQ() ? ::mlir::ShapedType::kDynamic
                                  : $_op.getQ().getType().getDimSize(getSeqDim());
    }
    int64_t getStaticKeys() {
      return $_op.getCuSeqlensK() || $_op.getPageTable()
                 ? ::mlir::ShapedType::kDynamic
                 : $_op.getK().getType().getDimSize(getSeqDim());
    }
    /// Whether the rows of a batch's keys are in several pages (P1); false if the table has one
    /// column (P4).
    bool hasPages() {
      return $_op.getPageTable() && $_op.getPageTable().getType().getDimSize(1) != 1;
    }

    /// Returns the number of query heads per key/value head (A4), or 1 if it is not known.
    int64_t getKnownGroup() { return ::mlir::flashattn::getKnownGroup($_op); }

    /// Returns the scale of rule A1, which must not be an operand: the attribute or `1/sqrt(D)`.
    double getScaleOrDefault() { return ::mlir::flashattn::getScaleOrDefault($_op); }

    /// Whether there is a score modification (rule A2).
    bool hasScoreMod() { return !$_op.getScoreMods().empty(); }
    /// Returns the score modification, which must exist.
    ::mlir::Region &getScoreMod() { return $_op.getScoreMods().front(); }
    /// Whether the score modification, which must exist, only adds to the score, so that its
    /// derivative is 1 (rule B6).
    bool addsToScore() { return ::mlir::flashattn::addsToScore($_op); }
    /// Whether `bias` or `attn_mask` is broadcast along a dimension of the scores.
    static bool isBroadcastDim(::mlir::Value tensor, unsigned dim) {
      return ::llvm::cast<::mlir::ShapedType>(tensor.getType()).getDimSize(dim) == 1;
    }

    /// Returns the value of all elements of `attn_mask` if it is a splat constant, else nullopt.
    ::std::optional<bool> getConstantAttnMask() {
      return ::mlir::flashattn::getConstantAttnMask($_op);
    }

    /// Returns the number of symbols of the mask after nq and nk (rules Y1 and Y2).
    unsigned countSymbols() {
      return $_op.getPerSequence().size() + $_op.getPerQuery().size() + $_op.getPerKey().size();
    }
    /// Whether symbols of the mask vary between the queries or the keys of a sequence (rule Y2).
    bool hasVaryingSymbols() { return !$_op.getPerQuery().empty() || !$_op.getPerKey().empty(); }

    /// Returns the sets of the mask (see MaskAttrInterface), each with all symbols of the op, or
    /// one set that shows every pair if there is no mask.
    ::llvm::SmallVector<::mlir::IntegerSet> getVisibleSets() {
      return ::mlir::flashattn::getVisibleSets($_op);
    }
  }];
}

#endif // FLASHATTN_INTERFACES_TD
