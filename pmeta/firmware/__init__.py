"""From a model to a board: a folder that builds as it is, for emulated and for real devices."""
