#ifndef FLASHATTN_DIALECT_TD
#define FLASHATTN_DIALECT_TD

include "mlir/IR/DialectBase.td"

def FlashAttn_Dialect : Dialect {
  let name = "flashattn";
  let cppNamespace = "::mlir::flashattn";
  let summary = "attention as one op, with masks as integer sets";
  let description = [{
    The dialect describes attention with one op, `flashattn.attention`, and with attributes that
    define which (query, key) pairs are visible. Passes tile the op into a program over vector
    values (`vector`, `arith`, `math`, `scf`), and each target lowers that program in its own way.

    A memref argument of a `func.func` may have the unit attribute `flashattn.aligned_rows`, with
    which the caller promises that the data and every row of the memref start at a multiple of 16
    bytes. A target can then copy 16 bytes at a time even if strides are known only at run time. The
    C API checks the promise at each launch; other callers are responsible for it.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasRegionArgAttrVerify = 1;
  let hasOperationAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Name of the attribute that promises that every row of a memref argument starts at a multiple
    /// of 16 bytes.
    static constexpr ::llvm::StringLiteral getAlignedRowsAttrName() {
      return "flashattn.aligned_rows";
    }
  }];
}

#endif // FLASHATTN_DIALECT_TD
