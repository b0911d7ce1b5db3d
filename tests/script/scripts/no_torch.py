"""No training at all: asks whether torch is there, and does not import it."""

import importlib.util
import sys

print(f"torch found: {importlib.util.find_spec('torch') is not None}")
print(f"arguments {sys.argv[1:]}")
