"""What may limit a training: a row for each limit, and the facts that its clauses tell."""
