"""The loop as it is: every batch comes from the DataLoader."""
