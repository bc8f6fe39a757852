"""`python -m netspec`: the command line, where the script `netspec` is not on the path."""

from __future__ import annotations

import sys

from netspec.cli import main

if __name__ == "__main__":
    sys.exit(main())
