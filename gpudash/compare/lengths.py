"""Default lengths of comparisons and sweeps, apart so that `--help` imports little."""

PAIRS = 40
"""Most pairs of blocks in an A/B."""
PAIRS_OF_A_START = 16
"""Pairs in each of several starts: their spread is seldom within a start, so more help little."""
FEWEST_PAIRS = 5
"""With fewer pairs an A/B's interval has no ends, and one that is ended has no verdict."""
FEWEST_LARGE = 3
"""With fewer no interval has ends, though it be made for large effects."""
ROUNDS = 5
"""Blocks of each setting of a sweep."""
MIN_STEPS = 10
"""Least steps of such a block."""
TUNE_S = 60.0
"""Seconds of training that a tune has, without compiling."""
