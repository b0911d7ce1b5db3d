"""Read and summarise a trace of training steps, without torch."""
