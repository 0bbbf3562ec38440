/* A program in C against the installed library. */

#include <flashattn-c/FlashAttn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const char *text = "func.func @f(%x: memref<4xf32>) {\n  return\n}\n";
  FlashAttnCompileOptions options;
  FlashAttnKernel kernel = NULL;
  flashattnCompileOptionsInit(&options);
  options.device = FLASHATTN_DEVICE_CPU;
  if (flashattnCompile(text, strlen(text), &options, &kernel) != FLASHATTN_OK) {
    fprintf(stderr, "%s\n", flashattnGetLastError());
    return 1;
  }
  printf("library %s compiles\n", flashattnGetVersion());
  return flashattnKernelFree(kernel);
}
