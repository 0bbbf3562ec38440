//===- PythonTensors.h - matched Python tensors -----------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_PYTHONTENSORS_H
#define FLASHATTN_LIB_CAPI_PYTHONTENSORS_H

#include "flashattn-c/FlashAttn.h"

namespace mlir::flashattn::capi {

/// The stream and the addresses that flashattnMatchPythonTensors found.
struct Match {
  void *stream;
  void *data[FLASHATTN_MAX_OPERANDS];
};

/// Returns the match with a number that was returned on this thread; null if there is none.
const Match *getMatch(int64_t number);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_PYTHONTENSORS_H
