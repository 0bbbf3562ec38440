# Configuration of a bundle, whose files are next to this one.

import os
import tempfile

root = os.path.dirname(os.path.abspath(__file__))
config.flashattn_src_root = root
config.flashattn_test_root = os.path.join(root, "test")
# The folder of the bundle may be read-only.
config.flashattn_exec_root = os.environ.get("FLASHATTN_CHECK_DIR") or tempfile.mkdtemp()
config.flashattn_tools_dir = os.path.join(root, "bin")
config.flashattn_lib_dir = os.path.join(root, "lib")
config.llvm_tools_dir = config.flashattn_tools_dir
config.fakecuda = os.path.join(root, "lib", "libFakeCUDA.so")
config.flashattn_sanitize = False

lit_config.load_config(config, os.path.join(config.flashattn_test_root, "lit.cfg.py"))
