"""`python -m hamburger_edge`: the command line, where the script is not on the PATH."""

import sys

from hamburger_edge.cli.main import main

sys.exit(main())
