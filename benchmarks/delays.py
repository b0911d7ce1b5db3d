"""What the benchmark writes and the slow rank reads: in which part of a step, and how long."""

import struct

PARTS = ("none", "input", "copy", "forward", "backward", "optimizer", "host")
DELAY = struct.Struct("qd")
"""Index of the part, milliseconds."""
