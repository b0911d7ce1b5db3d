"""What a session's messages and rows are written to."""
