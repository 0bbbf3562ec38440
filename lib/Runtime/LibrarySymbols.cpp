//===- LibrarySymbols.cpp - the C library's functions, by name ------------===//

#include "LibrarySymbols.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <math.h>

namespace {
// Functions of the compiler's support library, which is linked into every binary that needs it.
float powerOfF32(float base, int exponent) { return __builtin_powif(base, exponent); }
double powerOfF64(double base, int exponent) { return __builtin_powi(base, exponent); }
__int128 quotientOf(__int128 lhs, __int128 rhs) { return lhs / rhs; }
__int128 remainderOf(__int128 lhs, __int128 rhs) { return lhs % rhs; }
unsigned __int128 unsignedQuotientOf(unsigned __int128 lhs, unsigned __int128 rhs) {
  return lhs / rhs;
}
unsigned __int128 unsignedRemainderOf(unsigned __int128 lhs, unsigned __int128 rhs) {
  return lhs % rhs;
}
} // namespace

void mlir::flashattn::visitLibrarySymbols(
    llvm::function_ref<void(llvm::StringRef name, void *address)> visit) {
  auto add = [&](const char *name, auto *function) {
    visit(name, reinterpret_cast<void *>(function));
  };
  // The functions for f64 and for f32, which may be overloads here.
#define BOTH(name, F64, F32)                                                                       \
  add(#name, static_cast<F64>(name));                                                              \
  add(#name "f", static_cast<F32>(name##f));
#define UNARY(name) BOTH(name, double (*)(double), float (*)(float))
#define BINARY(name) BOTH(name, double (*)(double, double), float (*)(float, float))
  UNARY(acos)
  UNARY(acosh)
  UNARY(asin)
  UNARY(asinh)
  UNARY(atan)
  UNARY(atanh)
  UNARY(cbrt)
  UNARY(ceil)
  UNARY(cos)
  UNARY(cosh)
  UNARY(erf)
  UNARY(erfc)
  UNARY(exp)
  UNARY(exp2)
  UNARY(expm1)
  UNARY(fabs)
  UNARY(floor)
  UNARY(log)
  UNARY(log10)
  UNARY(log1p)
  UNARY(log2)
  UNARY(nearbyint)
  UNARY(rint)
  UNARY(round)
  UNARY(sin)
  UNARY(sinh)
  UNARY(sqrt)
  UNARY(tan)
  UNARY(tanh)
  UNARY(trunc)
  BINARY(atan2)
  BINARY(copysign)
  BINARY(fmax)
  BINARY(fmin)
  BINARY(fmod)
  BINARY(pow)
  BOTH(fma, double (*)(double, double, double), float (*)(float, float, float))
  BOTH(ldexp, double (*)(double, int), float (*)(float, int))
  // LLVM may replace some of the functions above by these.
#ifdef __GLIBC__
  UNARY(exp10)
  UNARY(roundeven)
  BOTH(sincos, void (*)(double, double *, double *), void (*)(float, float *, float *))
#endif
#undef BINARY
#undef UNARY
#undef BOTH
  add("__powisf2", powerOfF32);
  add("__powidf2", powerOfF64);
  add("__divti3", quotientOf);
  add("__modti3", remainderOf);
  add("__udivti3", unsignedQuotientOf);
  add("__umodti3", unsignedRemainderOf);
  add("memcmp", static_cast<int (*)(const void *, const void *, size_t)>(memcmp));
  add("memcpy", memcpy);
  add("memmove", memmove);
  add("memset", memset);
  // For `cf.assert`.
  add("abort", abort);
  add("puts", puts);
}
