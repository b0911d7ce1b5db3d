"""`python -m gpudash`."""

import sys

from gpudash.commands.main import main

sys.exit(main())
