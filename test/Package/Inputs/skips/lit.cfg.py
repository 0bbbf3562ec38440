# A suite of one file.
import sys

import lit.formats

config.name, config.suffixes = "skips", [".py"]
config.excludes = ["lit.cfg.py"]
config.test_exec_root = lit_config.params["exec"]
config.test_format = lit.formats.ShTest(execute_external=False)
config.substitutions.append(("%python", sys.executable))
