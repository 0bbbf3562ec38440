/* Calls a function of one argument and one result on the first device. */
#include "one.h"
#include <stdio.h>

int main(void) {
  void *q, *o;
  int32_t device = one_device(NULL);
  if (device != 0 || flashattnAOTAllocate(device, 512, &q) || flashattnAOTAllocate(device, 512, &o))
    return 1;
  const char *error = one(device, NULL, q, o);
  puts(error ? error : "no error");
  return error != NULL;
}
