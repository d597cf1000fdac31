"""What a user brings to a training: a network of their own, a memory budget."""
