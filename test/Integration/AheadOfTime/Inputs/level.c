/* A function that says of itself (flashattn/Runtime/AOTABI.h) that it needs a processor of the future. */

#include <stdint.h>
#include <stdio.h>

struct Variant {
  const char *chip;
  int64_t architecture, variant, ptxVersion, cpuLevel;
  void (*entry)(void **values);
};
struct Function {
  const char *name;
  int64_t numArguments;
  const void *arguments;
  int64_t numShared;
  const void *shared;
  int64_t numVariants;
  const struct Variant *variants;
};
const char *flashattnAOTCall(const struct Function *function, int32_t device, void *stream,
                             const int64_t *numbers);

int main(void) {
  struct Variant variant = {"cpu", 0, 0, 0, 9, NULL};
  struct Function function = {"f", 0, NULL, 0, NULL, 1, &variant};
  puts(flashattnAOTCall(&function, -1, NULL, NULL));
  return 0;
}
