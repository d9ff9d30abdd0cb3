"""``python -m tilewright_conformance``."""

import sys

from tilewright_conformance.suite.cli import main

if __name__ == "__main__":
    sys.exit(main())
