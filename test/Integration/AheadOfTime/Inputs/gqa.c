/* Runs causal attention with grouped heads where it can, and compares rows with a plain computation. */
#include "attention.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { H = 32, G = 8, N = 512, D = 128 };
static uint16_t q[H * N * D], k[G * N * D], v[G * N * D], o[H * N * D];
static float lse[H * N];
typedef union { float value; uint32_t bits; } Word;

static void check(const char *error) {
  if (error)
    exit((fprintf(stderr, "error: %s\n", error), 1));
}
static double widen(uint16_t bf16) { return (Word){.bits = (uint32_t)bf16 << 16}.value; }
static void *upload(int32_t device, uint16_t *x, size_t count, uint32_t seed) {
  void *memory;
  for (size_t i = 0; i < count; ++i) { /* from -2 to 2 */
    seed = seed * 1664525 + 1013904223;
    x[i] = (Word){.value = (int32_t)seed * 0x1p-30f}.bits >> 16;
  }
  check(flashattnAOTAllocate(device, 2 * count, &memory));
  check(flashattnAOTCopyToDevice(device, memory, x, 2 * count));
  return memory;
}
/* How far row i of head h is from what it should be. */
static double compare(int h, int i) {
  const uint16_t *keys = k + h / (H / G) * N * D, *values = v + h / (H / G) * N * D;
  double sum = 0, error = 0, exact[D] = {0};
  for (int j = 0; j <= i; ++j) {
    double score = 0, weight;
    for (int d = 0; d < D; ++d)
      score += widen(q[(h * N + i) * D + d]) * widen(keys[j * D + d]);
    sum += weight = exp(score / sqrt(D));
    for (int d = 0; d < D; ++d)
      exact[d] += weight * widen(values[j * D + d]);
  }
  for (int d = 0; d < D; ++d)
    error = fmax(error, fabs(widen(o[(h * N + i) * D + d]) - exact[d] / sum));
  return fmax(error, fabs(lse[h * N + i] - log(sum)));
}
int main(void) {
  double error = 0;
  void *out, *sums;
  int32_t device = attention_device(NULL);
  void *dq = upload(device, q, H * N * D, 1), *dk = upload(device, k, G * N * D, 2);
  void *dv = upload(device, v, G * N * D, 3);
  check(flashattnAOTAllocate(device, sizeof(o), &out));
  check(flashattnAOTAllocate(device, sizeof(lse), &sums));
  check(attention(device, NULL, dq, dk, dv, out, sums));
  check(flashattnAOTCopyToHost(device, o, out, sizeof(o)));
  check(flashattnAOTCopyToHost(device, lse, sums, sizeof(lse)));
  for (int row = 0; row < H * N; row += 511)
    error = fmax(error, compare(row / N, row % N));
  printf("%s: error %g: %s\n", device < 0 ? "CPU" : "GPU", error, error < 0.02 ? "PASS" : "FAIL");
  return error < 0.02 ? 0 : 1;
}
