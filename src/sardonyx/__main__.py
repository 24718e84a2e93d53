"""`python -m sardonyx`: the command line."""

import sys

from sardonyx.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
