//===- FlashAttn.td - umbrella of the flashattn dialect ----*- tablegen -*-===//
//
// Includes all .td files of the dialect.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TD
#define FLASHATTN_TD

include "flashattn/Dialect/FlashAttn/IR/FlashAttnDialect.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnInterfaces.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnProgramOps.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnDeviceOps.td"

#endif // FLASHATTN_TD
