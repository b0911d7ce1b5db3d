"""`python -m gpudash`."""

import sys

from gpudash.cli.main import main

sys.exit(main())
