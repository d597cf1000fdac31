"""The kinds of problem that p-Meta is trained on. A kind is a module with these names:

- `Config`, a frozen dataclass of settings whose `kind` is the name below, and `NAMED`, the named
  configurations of `pmeta train`;
- `TAKES`, for each command that reads a run the options that have a meaning for this kind, and
  `OTHERWISE`, for the other commands what to do instead;
- `FIGURES`, what its validations measure; `COMMON`, the options that people change; `NEXT`, the
  command after a training;
- `training(group, run, config)`, what the trainer drives;
- `restore(run, asked)`, its best model and unseen tasks, for all commands that read a run.
"""

from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a command looks at settings before it imports torch
    from pmeta.training.settings import RunSettings
    from pmeta.training.workers import Group

KINDS = {
    "pictures": "pmeta.kinds.pictures",
    "recordings": "pmeta.kinds.recordings",
    "policies": "pmeta.kinds.policies",
    "own": "pmeta.kinds.own",
}
STAGES = {"pre-training": "pmeta.kinds.pictures.pretraining"}
"""What comes before a meta-training, in a run folder of its own; it cannot be adapted."""


def kind(name: str, of: str = "a run") -> Any:
    """The module of a kind, or of a stage; `of` says which run."""
    known = {**KINDS, **STAGES}
    if name not in known:
        raise ValueError(
            f"{of} is one of {', '.join(known)}, got the kind {name!r}: use the release that "
            "trained it."
        )
    return import_module(known[name])


def named() -> dict[str, "RunSettings"]:
    """The configurations by the names that `pmeta train` takes."""
    found: dict[str, RunSettings] = {}
    for name in (*KINDS, *STAGES):
        found |= kind(name).NAMED
    return found


def reading(command: str, asked: Any, run: str) -> Any:
    """The module of the kind of a run, for a command that reads it with the options `asked`.

    Raises ValueError where the command or an option has no meaning for this kind."""
    from pmeta.training.run_folder import open_run

    name = open_run(run).config()["kind"]
    module = kind(name, f"the run {run}")
    if command not in module.TAKES:
        raise ValueError(module.OTHERWISE[command].format(run=run))
    everybody = {key for other in KINDS for key in kind(other).TAKES.get(command, ())}
    for field in fields(asked):
        value = getattr(asked, field.name)
        strange = field.name in everybody and field.name not in module.TAKES[command]
        if strange and value != field.default:
            option = field.name.replace("_", "-")
            raise ValueError(
                f"--{option} has no meaning for a run on {name}, which {run} is: leave it out."
            )
    return module


def train(group: "Group", config: "RunSettings") -> dict[str, Any]:
    """Train, or go on with, the run in `config.out`; what is known of its best model."""
    from pmeta.training.trainer import train_in_folder

    return train_in_folder(group, config, partial(kind(config.kind).training, group))
