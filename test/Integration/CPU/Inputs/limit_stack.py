"""Runs a command whose stack is at most so many KiB.

usage: limit_stack.py KIB COMMAND [ARGUMENTS...]
"""

import os
import resource
import sys

size = int(sys.argv[1]) * 1024
resource.setrlimit(resource.RLIMIT_STACK, (size, size))
os.execvp(sys.argv[2], sys.argv[2:])
