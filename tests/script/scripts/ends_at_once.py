"""Imports torch and ends, with an exit code of its own."""

import sys

import torch

print(f"torch {torch.__version__.split('.')[0]}")
sys.exit(5)
