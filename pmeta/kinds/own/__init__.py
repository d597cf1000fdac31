"""A live model of `Learner.fit`, whose code no run folder holds."""

from pmeta.kinds.own.config import NAMED, OwnConfig

__all__ = ["NAMED", "OTHERWISE", "TAKES", "Config"]
Config = OwnConfig
TAKES: dict[str, tuple[str, ...]] = {}
OTHERWISE = {
    "evaluate": "the model of {run} lives in Python: learner.load({run!r}), then "
    "learner.evaluate(tasks).",
    "calibrate": "the model of {run} lives in Python, where learner.predict gives scores of "
    "learner.adapt(x, y): fit a temperature there.",
    "export": "the model of {run} lives in Python: learner.load({run!r}), then "
    "learner.export('mine.pmeta').",
}
