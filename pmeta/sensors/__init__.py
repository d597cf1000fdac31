"""Sensors: recordings, windows, tasks by person, and the personalising of an activity
recogniser."""
