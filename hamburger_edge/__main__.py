"""`python -m hamburger_edge`: the command line, without the script on the PATH."""

import sys

from hamburger_edge.cli.main import main

sys.exit(main())
