"""PyTorch's default: there is nothing to write."""
