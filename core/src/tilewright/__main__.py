"""``python -m tilewright``: the command line, where no script of that name is on the path."""

import sys

from tilewright.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
