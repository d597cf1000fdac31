"""The whole of p-Meta on any model in a few lines."""

from pmeta.learner.learner import Learner

__all__ = ["Learner"]
