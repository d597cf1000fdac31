"""Opening a model and teaching it the classes of a support set."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pmeta import zoo
from pmeta.base.progress import progress
from pmeta.base.terminal import printable
from pmeta.device import Adaptation, DeviceModel, load
from pmeta.device.samples import Samples, in_order
from pmeta.device.support import checked_support, counted, no_classifier, read_support


@dataclass(frozen=True)
class Learned:
    """A model that was adapted, and to what."""

    model: DeviceModel
    support: Samples
    adaptation: Adaptation
    before: dict[str, np.ndarray]
    """The weights that it began with."""
    mirrored: bool = False
    """Whether it saw each picture mirrored too."""

    def facts(self, name: str) -> dict[str, Any]:
        """What a file says of the adaptation."""
        shown = name if name in (*zoo.names(), *zoo.recognisers()) else Path(name).name
        return {"from": shown, "support": dict(counted(self.support.labels, self.support.classes))}


def open_any(name: str, classes: int, known: Sequence[str]) -> tuple[Path, DeviceModel]:
    """A file, or one of the models of the zoo in `known` with outputs for so many classes; where it
    lies, and the classifier or policy in it."""
    zoo.check(name)
    try:
        path = zoo.find(name, classes) if name in known else Path(name)
        return path, load(path)
    except OSError as error:
        shipped = f", or one of {', '.join(known)}" if zoo.names() else ""
        raise ValueError(
            f"cannot read {name} ({error.strerror}): a model is a file that pmeta export or "
            f"pmeta adapt --save wrote{shipped}."
        ) from None


def open_model(path: str, classes: int = 1) -> DeviceModel:
    """The classifier in a file, or a model of the zoo with outputs for so many classes."""
    _, model = open_any(path, classes, [*zoo.names(), *zoo.recognisers()])
    if not model.classifies:
        what, method = no_classifier(model)
        raise ValueError(
            f"pmeta adapt takes a classifier, {path} is {what}: adapt it in Python, with {method}."
        )
    return model


def learn(name: str, folder: str, go_on: bool, mirror: bool = False) -> Learned:
    """Adapt the model `name` to the support set in `folder`; `go_on`: one that has learned;
    `mirror`: to mirrored pictures too."""
    model = open_model(name)
    support = read_support(folder, model)
    if len(support.classes) > model.outputs and name in zoo.names():
        model = open_model(name, len(support.classes))
    check_adapted(name, model, support, go_on)
    check_support(name, folder, support, model)
    if go_on:
        support = in_order(support, model.classes)
    tell_passed_over(support)
    for advice in model.support_advice(support.labels, support.classes, go_on, name):
        tell(f"warning: {advice}")
    before = model.weights()
    given = support.x, support.labels, support.classes
    adaptation = model.adapt(*given, go_on, mirror, lambda passes: progress(passes, "learning"))
    return Learned(model, support, adaptation, before, mirror)


def check_adapted(name: str, model: DeviceModel, support: Samples, go_on: bool) -> None:
    """A model that has learned goes on only on purpose, and only with its own classes."""
    known = ", ".join(model.classes)
    source = model.facts.get("learned", {}).get("from", "the model that it came from")
    if not model.adapted:
        if go_on:
            raise ValueError(
                f"--continue is for a model that has learned something, {name} has not: leave it "
                f"out."
            )
        return
    if not go_on:
        raise ValueError(
            f"{name} has learned {known} already, and learning from there may lose accuracy: give "
            f"--continue to go on with these classes, or begin again with pmeta adapt {source}."
        )
    if {*support.classes} != {*model.classes}:
        raise ValueError(
            f"{name} goes on with the classes that it has, {known}, the support set has "
            f"{', '.join(support.classes) or 'none'}: begin again with pmeta adapt {source} and "
            f"pictures of all classes."
        )


def check_support(name: str, path: str, support: Samples, model: DeviceModel) -> None:
    """The rules of a support set, in words that name its folder and a run that helps."""
    run = run_for_more(name, model)
    checked_support(model, support.labels, support.classes, path, run)


def run_for_more(name: str, model: DeviceModel) -> str:
    """A run whose head is made for any number of classes."""
    if name in zoo.names():
        return name if model.prototypes else "miniimagenet-4conv"
    return "RUN"


def tell_passed_over(samples: Samples) -> None:
    """Name the files that are neither pictures nor arrays."""
    for name in samples.passed_over:
        tell(f"passed over {name}: no picture and no array")


def tell(line: str) -> None:
    """A line for people, beside what the command prints."""
    print(printable(line), file=sys.stderr)
