"""Measures a training, independent of its loop and its workload."""
