"""What is taken elsewhere: text to copy, a run's receipt, a verdict's card, the own line."""
