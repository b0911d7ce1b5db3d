"""PyTorch does so by itself on a GPU: there is nothing to write."""
