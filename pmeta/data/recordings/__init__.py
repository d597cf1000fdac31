"""Recordings of sensors and the windows that are cut from them. Needs no torch."""
