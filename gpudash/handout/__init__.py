"""What is taken elsewhere: text to copy, the receipt of a run, the card of a verdict. No I/O."""
