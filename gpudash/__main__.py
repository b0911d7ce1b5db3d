"""`python -m gpudash`."""

import sys

from gpudash.cli.start import main

sys.exit(main())
