//===- Hopper.td - umbrella of the hopper dialect ----------*- tablegen -*-===//
//
// Includes all .td files of the dialect.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_HOPPER_TD
#define FLASHATTN_HOPPER_TD

include "flashattn/Dialect/Hopper/IR/HopperDialect.td"
include "flashattn/Dialect/Hopper/IR/HopperOps.td"

#endif // FLASHATTN_HOPPER_TD
