"""PyTorch's default on a GPU: there is nothing to write."""
