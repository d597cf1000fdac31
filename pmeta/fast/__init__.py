"""The same numbers in less time."""
