"""The training process: `link` is the parent's side, everything else runs in the child."""
