"""What `%load_ext gpudash` puts into the kernel of a notebook: only the standard library."""
