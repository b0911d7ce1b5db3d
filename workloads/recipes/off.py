"""PyTorch does so by itself: there is nothing to write."""
