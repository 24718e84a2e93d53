"""`python -m sardonyx`: the command line."""

import sys

from sardonyx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
