"""python -m pmeta"""

import sys

from pmeta.cli import main

if __name__ == "__main__":
    sys.exit(main())
