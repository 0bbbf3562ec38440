"""Runs a command that may use the processor for so many seconds.

usage: limit_time.py SECONDS COMMAND [ARGUMENTS...]
"""

import os
import resource
import sys

seconds = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
os.execvp(sys.argv[2], sys.argv[2:])
