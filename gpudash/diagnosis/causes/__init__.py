"""What may limit a training: a family of causes a module, a cause a row with its evidence."""
