"""The types in which numbers may be stored, from the largest to the smallest."""

NUMBER_TYPES = ("float32", "float16", "int8")
LEAST = 16
"""Numbers of a row or channel from which on they take fewer bytes: a scale for fewer would not
pay."""
