// Calls a function that flash-opt has lowered, without anything of MLIR.

#include <stdio.h>

float sum(void);

int main(void) {
  printf("%g\n", sum());
  return 0;
}
