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
  }];
  let useDefaultAttributePrinterParser = 1;
}

#endif // FLASHATTN_DIALECT_TD
