# Unit tests: every GoogleTest executable of the build whose name ends in UnitTests.

import lit.formats

config.name = "FlashAttn-Unit"
config.suffixes = []
config.test_source_root = config.flashattn_tools_dir
config.test_exec_root = config.flashattn_tools_dir
config.test_format = lit.formats.GoogleTest(".", "UnitTests")
