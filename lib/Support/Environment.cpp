//===- Environment.cpp ----------------------------------------------------===//

#include "flashattn/Support/Environment.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <strings.h>

using namespace mlir::flashattn;

const char *mlir::flashattn::getVariable(const char *name) {
  const char *value = std::getenv(name);
  return value && *value ? value : nullptr;
}

/// Returns 0 or 1 if `value` is a switch, otherwise -1.
static int readSwitch(const char *value) {
  static const char *const words[][2] = {
      {"0", "1"}, {"off", "on"}, {"no", "yes"}, {"false", "true"}};
  for (const char *const(&pair)[2] : words)
    for (int i = 0; i < 2; ++i)
      if (strcasecmp(value, pair[i]) == 0)
        return i;
  return -1;
}

/// Warns once per variable and process, because every compilation reads some variables.
static void warn(const char *name, const char *expected, const char *value, const char *used) {
  constexpr int kMost = 32;
  static std::atomic<const char *> said[kMost];
  for (std::atomic<const char *> &place : said) {
    const char *other = nullptr;
    if (place.compare_exchange_strong(other, name))
      break;
    if (std::strcmp(other, name) == 0)
      return;
  }
  std::fprintf(stderr, "flashattn: warning: expected %s to be %s but got '%s'; %s is used\n", name,
               expected, value, used);
}

bool mlir::flashattn::getSwitch(const char *name, bool byDefault) {
  const char *value = getVariable(name);
  if (!value)
    return byDefault;
  int found = readSwitch(value);
  if (found >= 0)
    return found;
  warn(name, "0 or 1", value, byDefault ? "1" : "0");
  return byDefault;
}

int64_t mlir::flashattn::getNumber(const char *name, int64_t least, int64_t most,
                                   int64_t byDefault) {
  const char *value = getVariable(name);
  if (!value)
    return byDefault;
  char *end;
  errno = 0;
  long long found = std::strtoll(value, &end, 10);
  // strtoll also accepts leading white space.
  bool isNumber = *end == 0 && errno == 0 && std::strchr("-0123456789", *value);
  if (isNumber && found >= least && found <= most)
    return found;
  char expected[96], used[32];
  if (most == INT64_MAX)
    std::snprintf(expected, sizeof(expected), "a number of at least %lld", (long long)least);
  else
    std::snprintf(expected, sizeof(expected), "a number from %lld to %lld", (long long)least,
                  (long long)most);
  std::snprintf(used, sizeof(used), "%lld", (long long)byDefault);
  warn(name, expected, value, used);
  return byDefault;
}

PathVariable mlir::flashattn::getPathOrSwitch(const char *name) {
  const char *value = getVariable(name);
  if (!value)
    return {};
  int found = readSwitch(value);
  if (found < 0)
    return {/*isOff=*/false, value};
  return {/*isOff=*/found == 0, nullptr};
}
