//===- PythonTensors.h - what matches keep ----------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_PYTHONTENSORS_H
#define FLASHATTN_LIB_CAPI_PYTHONTENSORS_H

#include "flashattn-c/FlashAttn.h"

namespace mlir::flashattn::capi {

/// What flashattnMatchPythonTensors learned of tensors that match.
struct Match {
  void *stream;
  void *data[FLASHATTN_MAX_OPERANDS];
};

/// The match of a number that this thread was given; null for what is none.
const Match *getMatch(int64_t number);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_PYTHONTENSORS_H
