"""The rules of a support set: what is refused, and what will make predictions worse.

`pmeta adapt` and `DeviceModel.adapt` say the same words."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pmeta.device.description import Description
from pmeta.device.inputs import checked_labels
from pmeta.device.samples import Samples, read_samples

LOPSIDED = 2
"""A class should have at most so many times the samples of another."""


def no_classifier(model: Description) -> tuple[str, str]:
    """What a model is that learns no labels, and the method that adapts it."""
    if model.loss == "mse":
        return "a regression", "adapt_values"
    return "a policy" if model.rows > 1 else "one with a loss of its own", "adapt_with"


def read_support(path: str | Path, model: Description) -> Samples:
    """A support set as `pmeta adapt --support` reads it: samples by class, and of recordings the
    windows of one activity."""
    samples = read_samples(path, model)
    keep = samples.labels >= 0
    if model.reads == "recordings":
        if not keep.any():
            raise ValueError(
                f"a support set has windows of known activities, {path} has none: add the column "
                f"label."
            )
        names = [name for name, own in zip(samples.names, keep, strict=True) if own]
        return samples._replace(x=samples.x[keep], names=names, labels=samples.labels[keep])
    if not samples.classes:
        arrays = str(path).endswith((".npy", ".npz"))
        what = (
            f"the array has one axis less, {samples.x.shape}"
            if arrays
            else "pictures but no folders in it"
        )
        raise ValueError(
            f"a support set has samples by class, (classes, samples, *shape) or a folder each; "
            f"{path}: {what}."
        )
    if not keep.all():
        raise ValueError(
            f"pictures lie all in folders by class or all without, {path} has "
            f"{samples.names[int(keep.argmin())]} beside {samples.classes[0]}/: move the one or "
            f"the other."
        )
    return samples


def checked_support(
    model: Description,
    y: Sequence[int] | np.ndarray,
    classes: Sequence[str] = (),
    where: str = "the support set",
    run: str = "RUN",
) -> tuple[np.ndarray, list[str]]:
    """The labels of a support set, and the names of its classes or else their numbers.

    There are two classes or more, each with a sample, and no more than the model has outputs.
    `where` is the support set in words, `run` the run folder from which the model was written."""
    if not model.classifies:
        what, method = no_classifier(model)
        raise ValueError(f"labels are for a classifier, this model is {what}: use {method}.")
    if len(classes) > model.outputs:
        raise ValueError(
            f"the model tells {model.outputs} classes apart, {where} has {len(classes)}: leave "
            f"some out, or {way_to_more(run, len(classes))}."
        )
    y = checked_labels(y, model.outputs)
    if not len(y):
        raise ValueError(f"a support set has samples of each class, {where} has none: add some.")
    numbers = [str(i) for i in range(int(y.max()) + 1)]
    known = model.classes if model.fixed_classes else classes or numbers
    names = list(classes or known)
    if len(names) != len(known) or len({*names}) != len(names) or len(numbers) > len(names):
        n = max(len(numbers), len(known) if model.fixed_classes else 0)
        raise ValueError(
            f"each class has a name of its own, {n} for the labels 0 to {n - 1}, got "
            f"{', '.join(names)}."
        )
    if len(names) == 1:
        raise ValueError(
            f"classes are told apart, so there are two or more, {where} has only {names[0]}: add "
            f"one."
        )
    without = [name for name, count in counted(y, names) if not count]
    if without and (model.prototypes or not model.fixed_classes):  # a person may lack an activity
        raise ValueError(
            f"each class is learned from a sample at least, {where} has none of "
            f"{', '.join(without)}: add some."
        )
    return y, names


def support_advice(
    model: Description,
    y: np.ndarray,
    names: Sequence[str],
    again: bool = False,
    called: str = "the model",
) -> list[str]:
    """What will make predictions worse, a sentence each: a lopsided support set, fewer samples of a
    class than the model was trained for, and what a model forgets that learns `again`."""
    of = {name: count for name, count in counted(y, names) if count}
    least, most = min(of, key=of.__getitem__), max(of, key=of.__getitem__)
    advice = []
    if of[most] > LOPSIDED * of[least]:
        advice.append(
            f"{most} has {of[most]} samples and {least} {of[least]}, so the model will prefer "
            f"{most}: give about as many of each"
        )
    shots = model.facts.get("n_shot", 0)
    few = [name for name, count in of.items() if count < shots]
    if few:
        advice.append(
            f"the model was trained to learn from {shots} samples of each class, "
            f"{', '.join(f'{name} has {of[name]}' for name in few)}: add some, or take a model "
            f"for fewer (pmeta zoo)"
        )
    if again and model.prototypes:
        advice.append(
            f"{called} makes its head anew from this support set alone, and forgets pictures that "
            f"are not in it: give those of before too"
        )
    return advice


def counted(y: np.ndarray, names: Sequence[str]) -> list[tuple[str, int]]:
    """How many samples each class has."""
    return list(zip(names, np.bincount(y, minlength=len(names)).tolist(), strict=True))


def way_to_more(run: str, classes: int) -> str:
    """How to tell more classes apart: a head from prototypes is made for any number."""
    return (
        "write a model with a head from prototypes for more with pmeta export "
        f"{run} --classes {classes}"
    )
