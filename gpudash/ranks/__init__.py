"""Several ranks: their rows, the slow one, and who is missing in a hang."""
