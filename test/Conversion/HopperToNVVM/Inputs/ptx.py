"""Prints the PTX of the only gpu.binary of the module on standard input."""
import re
import sys

text = re.search(r'"(//(?:[^"\\]|\\.)*)"', sys.stdin.read()).group(1)
print(re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), text).rstrip("\0"))
