"""What measures a training: it knows no loop and no workload."""
