#ifndef FLASHATTN_DIALECT_TD
#define FLASHATTN_DIALECT_TD

include "mlir/IR/DialectBase.td"

def FlashAttn_Dialect : Dialect {
  let name = "flashattn";
  let cppNamespace = "::mlir::flashattn";
  let summary = "Attention as one op, masks as integer sets";
  let description = [{
    The dialect has one op for what is computed, `flashattn.attention`, and
    attributes that say which (query, key) pairs are visible. Passes tile the op
    into a program over vector values (`vector`, `arith`, `math`, `scf`), which
    each target lowers in its own way.

    A memref argument of a `func.func` may carry the unit attribute
    `flashattn.aligned_rows`: the caller promises that its data and every row of it
    start at multiples of 16 bytes, so that strides that are only known at run time
    do not keep a target from copying 16 bytes at a time. Who calls the function
    must see to it; the C API checks it at each launch.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasRegionArgAttrVerify = 1;
  let hasOperationAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Of a function's memref argument: every row starts at a multiple of 16 bytes.
    static constexpr ::llvm::StringLiteral getAlignedRowsAttrName() {
      return "flashattn.aligned_rows";
    }
  }];
}

#endif // FLASHATTN_DIALECT_TD
