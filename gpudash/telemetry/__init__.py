"""Readings of the GPUs and of the host, taken on threads of their own."""
