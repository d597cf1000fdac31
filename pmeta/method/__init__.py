"""The method of the paper (Sec. 3)."""
