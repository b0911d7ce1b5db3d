"""As DistributedDataParallel has it: there is nothing to write."""
