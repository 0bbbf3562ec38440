// Default options of the sanitizers for use with LLVM's libraries, which are built without them.
// ASAN_OPTIONS and UBSAN_OPTIONS override each option.

// LLVM keeps its registries until the process ends, which would be reported as leaks. Its
// allocators poison unused memory only in code compiled with the sanitizer. A slab that the
// project's code allocates and the library's code fills would therefore appear poisoned; the same
// holds for a std::vector that both sides grow. An allocation of an absurd size must fail as it
// does without the sanitizer.
extern "C" const char *__asan_default_options() {
  return "detect_leaks=0:allow_user_poisoning=0:detect_container_overflow=0:"
         "allocator_may_return_null=1";
}

extern "C" const char *__ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }
