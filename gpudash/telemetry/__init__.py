"""What the devices and the host say about themselves, sampled on threads of its own."""
