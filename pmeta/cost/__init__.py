"""Memory and computation of an adaptation (App. A), in plain Python."""
