"""The speeds of a replay: seconds of the recording per second.

The command line knows them without loading what reads a recording.
"""

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
