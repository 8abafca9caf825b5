"""python -m bridgerl."""

import sys

from bridgerl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
