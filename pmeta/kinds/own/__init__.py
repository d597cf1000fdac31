"""A live model of `Learner.fit`, whose code no run folder holds."""

from pmeta.kinds.own.config import NAMED, OwnConfig

__all__ = ["NAMED", "Config"]
Config = OwnConfig
