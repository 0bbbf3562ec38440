// What the sanitizers must know about LLVM's libraries, which are built without them. Each option
// can still be set in ASAN_OPTIONS or UBSAN_OPTIONS.

// LLVM keeps what it registers until the process ends, which would count as leaked. Its allocators
// poison what they hold in reserve only where they are compiled with the sanitizer, so a slab that
// the project's code opens and the library's code fills would read as poisoned; a std::vector that
// both sides grow is the same case. An allocation of absurd size must fail as it does without the
// sanitizer.
extern "C" const char *__asan_default_options() {
  return "detect_leaks=0:allow_user_poisoning=0:detect_container_overflow=0:"
         "allocator_may_return_null=1";
}

extern "C" const char *__ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }
