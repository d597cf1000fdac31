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
from pmeta.device import Adaptation, DeviceModel, EngineError, load
from pmeta.device.samples import Samples, counts, read_samples

LOPSIDED = 2
"""Warn where a class has more than so many times the samples of another."""


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
        return {"from": shown, "support": dict(counts(self.support))}


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
    except EngineError as error:
        raise ValueError(f"{name}: {error}") from None


def open_model(path: str, classes: int = 1) -> DeviceModel:
    """The classifier in a file, or a model of the zoo with outputs for so many classes."""
    _, model = open_any(path, classes, [*zoo.names(), *zoo.recognisers()])
    if model.rows != 1:
        raise ValueError(
            f"pmeta adapt takes a classifier, {path} is a policy: adapt it in Python, with "
            f"adapt_with."
        )
    return model


def learn(name: str, folder: str, go_on: bool, mirror: bool = False) -> Learned:
    """Adapt the model `name` to the support set in `folder`; `go_on`: one that has learned;
    `mirror`: to mirrored pictures too."""
    model = open_model(name)
    support = read_samples(folder, model)
    if "windows" in model.facts:
        support = labelled(folder, support)
    if len(support.classes) > model.outputs and name in zoo.names():
        model = open_model(name, len(support.classes))
    check_adapted(name, model, support, go_on)
    check_support(name, folder, support, model)
    if go_on:
        support = in_order(support, model.classes)
    tell_passed_over(support)
    warn_of_counts(model, support)
    if go_on and model.prototypes:
        tell(
            f"warning: {name} makes its head anew from this support set alone, and forgets "
            f"pictures that are not in it: give those of before too"
        )
    before = model.weights()
    given = support.x, support.labels, support.classes
    adaptation = model.adapt(*given, go_on, mirror, lambda passes: progress(passes, "learning"))
    return Learned(model, support, adaptation, before, mirror)


def labelled(path: str, support: Samples) -> Samples:
    """The windows of one activity, of which there must be some."""
    keep = support.labels >= 0
    if not keep.any():
        raise ValueError(
            f"a support set has windows of known activities, {path} has none: add the column label."
        )
    names = [name for name, own in zip(support.names, keep, strict=True) if own]
    return support._replace(x=support.x[keep], names=names, labels=support.labels[keep])


def check_adapted(name: str, model: DeviceModel, support: Samples, go_on: bool) -> None:
    """A model that has learned goes on only on purpose, and only with its own classes."""
    known = ", ".join(model.classes)
    learned = model.facts.get("learned")
    source = learned.get("from") if isinstance(learned, dict) else "the model that it came from"
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
    """Two classes or more, each with samples, and no more than the model has outputs."""
    if not support.classes:
        arrays = path.endswith((".npy", ".npz"))
        what = (
            f"the array has one axis less, {support.x.shape}"
            if arrays
            else "pictures but no folders in it"
        )
        raise ValueError(
            f"a support set has samples by class, (classes, samples, *shape) or a folder each; "
            f"{path}: {what}."
        )
    loose = [n for n, label in zip(support.names, support.labels, strict=True) if label < 0]
    if loose:
        raise ValueError(
            f"pictures lie all in folders by class or all without, {path} has {loose[0]} beside "
            f"{support.classes[0]}/: move the one or the other."
        )
    if len(support.classes) > model.outputs:
        raise ValueError(
            f"the model tells {model.outputs} classes apart, {path} has {len(support.classes)}: "
            f"leave some out, or {way_to_more(name, model, len(support.classes))}."
        )
    if len(support.classes) < 2:
        raise ValueError(
            f"classes are told apart, so there are two or more, {path} has only "
            f"{support.classes[0]}: add one."
        )
    without = [name for name, count in counts(support) if not count]
    if without and "windows" not in model.facts:  # a person may lack an activity
        raise ValueError(
            f"each class is learned from a sample at least, {path} has none of "
            f"{', '.join(without)}: add some."
        )


def way_to_more(name: str, model: DeviceModel, classes: int) -> str:
    """How to tell more classes apart: a head from prototypes is made for any number."""
    run = "RUN"
    if name in zoo.names():
        run = name if model.prototypes else "miniimagenet-4conv"
    return (
        "write a model with a head from prototypes for more with pmeta export "
        f"{run} --classes {classes}"
    )


def in_order(samples: Samples, classes: tuple[str, ...]) -> Samples:
    """The same with labels that count in `classes`; -1 for a class that is not among them.

    Classes of an array have only numbers."""
    known = {name: i for i, name in enumerate(classes)}
    if all(name.isdigit() and name not in known for name in samples.classes):
        known = {str(i): i for i in range(len(classes))}
    numbers = [known.get(samples.classes[i], -1) if i >= 0 else -1 for i in samples.labels]
    return samples._replace(labels=np.array(numbers), classes=list(classes))


def tell_passed_over(samples: Samples) -> None:
    """Name the files that are neither pictures nor arrays."""
    for name in samples.passed_over:
        tell(f"passed over {name}: no picture and no array")


def warn_of_counts(model: DeviceModel, support: Samples) -> None:
    """A lopsided support set, and classes with fewer samples than the model was trained for."""
    of = {name: count for name, count in counts(support) if count}
    least, most = min(of, key=of.__getitem__), max(of, key=of.__getitem__)
    if of[most] > LOPSIDED * of[least]:
        tell(
            f"warning: {most} has {of[most]} samples and {least} {of[least]}, so the model will "
            f"prefer {most}: give about as many of each"
        )
    shots = model.facts.get("n_shot")
    few = [name for name, count in of.items() if isinstance(shots, int) and count < shots]
    if few:
        tell(
            f"warning: the model was trained to learn from {shots} samples of each class, "
            f"{', '.join(f'{name} has {of[name]}' for name in few)}: add some, or take a model "
            f"for fewer (pmeta zoo)"
        )


def tell(line: str) -> None:
    """A line for people, beside what the command prints."""
    print(printable(line), file=sys.stderr)
