"""Find the best setting of many levers by races, and prove it against the start."""
