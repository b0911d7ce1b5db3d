"""What is painted: each widget turns frozen data into rows, and repaints what changed."""
