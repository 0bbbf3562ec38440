# Unit tests: every GoogleTest executable of the build whose name ends in UnitTests.

import lit.formats

config.name = "FlashAttn-Unit"
config.suffixes = []
config.test_source_root = config.flashattn_tools_dir
config.test_exec_root = config.flashattn_tools_dir
config.test_format = lit.formats.GoogleTest(".", "UnitTests")
if config.flashattn_sanitize:
    config.environment["ASAN_OPTIONS"] = "detect_leaks=0"
    config.environment["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
