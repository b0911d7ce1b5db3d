"""The plain training loop: there is nothing to write."""
