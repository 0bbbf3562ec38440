"""python -m flashattn.bench: the same as `python -m flashattn bench`."""

import sys

from ._command import main

if __name__ == "__main__":
    sys.exit(main())
