//===- RandomSchedules.h - schedules drawn at random -------------*- C++ -*-===//

#ifndef FLASH_NUMBERS_RANDOMSCHEDULES_H
#define FLASH_NUMBERS_RANDOMSCHEDULES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Target/Machine.h"

#include <random>

namespace mlir::flashattn {

/// Gives `op` a schedule of a few fields drawn at random, of which the others follow. Most draws
/// fit no kernel; the first that does is it. Returns false where none of many did.
bool drawSchedule(AttentionOpInterface op, const Machine &machine, std::mt19937 &random);

} // namespace mlir::flashattn

#endif // FLASH_NUMBERS_RANDOMSCHEDULES_H
