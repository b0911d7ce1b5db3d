"""The training process: our own loop, measured by the instrument."""
