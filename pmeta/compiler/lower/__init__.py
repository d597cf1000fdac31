"""Stages as the instructions of one step: forward, backward, and the program of both."""
