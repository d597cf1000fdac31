"""A support set in Python: refused and advised against in the words of the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmeta import device, zoo
from pmeta.device import model_file
from tests.helpers.device_models import case


def model(**facts: Any) -> device.DeviceModel:
    """A model of 5 outputs that says this of itself."""
    data = case("mlp", "maml", seed=15).exported.data
    return device.DeviceModel(model_file.with_facts(data, {**model_file.facts(data), **facts}))


X = case("mlp", "maml", seed=15, n=8).raw


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([0, 0], (), "told apart, so there are two or more, the support set has only 0: add one."),
        ([0, 0], ["ant"], "the support set has only ant: add one."),
        ([0, 2], (), "learned from a sample at least, the support set has none of 1: add some."),
        ([0, 1], ["ant", "bee", "cat"], "the support set has none of cat: add some."),
        (range(6), list("abcdef"), "the model tells 5 classes apart, the support set has 6: leave"),
        (range(6), list("abcdef"), "with pmeta export RUN --classes 6."),
        ([0, 5], (), "a whole number from 0 to 4, for each sample, got 0 to 5."),
        ([0, -1], (), "a whole number from 0 to 4, for each sample, got -1 to 0."),
        ([0.0, 1.0], (), "a whole number from 0 to 4, for each sample, got float64 of shape"),
        ([], (), "a support set has samples of each class, the support set has none: add some."),
    ],
)
def test_what_is_refused(y: Any, classes: list[str], message: str) -> None:
    for ask in (
        lambda: model().adapt(X[: len(y)], list(y), classes),
        lambda: model().support_advice(list(y), classes),
    ):
        with pytest.raises(ValueError, match=r"\.$") as error:
            ask()
        assert message in str(error.value)


def test_what_is_advised_against() -> None:
    names = ["ant", "bee"]
    assert model().support_advice([0, 1, 0], names) == []
    assert model().support_advice([0, 0, 0, 1], names) == [
        "ant has 3 samples and bee 1, so the model will prefer ant: give about as many of each"
    ]
    assert model(n_shot=2).support_advice([0, 0, 1], names) == [
        "the model was trained to learn from 2 samples of each class, bee has 1: add some, or take "
        "a model for fewer (pmeta zoo)"
    ]
    again = device.load(zoo.find("miniimagenet-4conv", 2)).support_advice([0, 1], again=True)
    assert again == [
        "the model makes its head anew from this support set alone, and forgets pictures that are "
        "not in it: give those of before too"
    ]


def test_a_file_says_what_it_learns_from() -> None:
    for facts, what in (
        ({"loss": "mse"}, "this model is a regression: use adapt_values."),
        ({"loss": "own"}, "this model is one with a loss of its own: use adapt_with."),
    ):
        with pytest.raises(ValueError, match=what):
            model(**facts).adapt(X[:2], [0, 1])
    regression = model(loss="mse")
    regression.adapt_values(X[:2], np.zeros((2, 5), np.float32))
    assert not regression.classifies


def test_classes_that_are_fixed_keep_their_place() -> None:
    found = model(fixed_classes=True, classes=list("abcde"))
    found.adapt(X[:3], [1, 1, 3])
    assert found.classes == tuple("abcde")
    with pytest.raises(ValueError, match="a name of its own, 5 for the labels 0 to 4, got a, b"):
        found.adapt(X[:3], [0, 0, 1], ["a", "b"])


def test_files_of_before_are_completed() -> None:
    found = {name: device.load(path) for name, path in (
        ("pictures", zoo.find("miniimagenet-4conv", 2)),
        ("recordings", zoo.find("har-conv1d")),
    )}  # fmt: skip
    assert {m.reads: (m.loss, m.fixed_classes) for m in found.values()} == {
        "pictures": ("cross-entropy", False),
        "recordings": ("cross-entropy", True),
    }
    assert all(name == m.reads for name, m in found.items())


@pytest.mark.parametrize(
    "facts",
    [
        {"reads": "minds"}, {"loss": 4}, {"fixed_classes": "no"}, {"reads": "recordings"},
        {"reads": []},
    ],
)  # fmt: skip
def test_a_file_that_says_what_cannot_be(facts: dict[str, Any]) -> None:
    said = r"not as we write it \(.* at `\$\.(reads|loss|fixed_classes)|do not fit its header"
    with pytest.raises(device.EngineError, match=said):
        model(**facts)


def test_a_support_set_is_read_as_on_the_command_line(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", X)
    np.save(tmp_path / "classes.npy", X.reshape(4, 2, -1))
    with pytest.raises(ValueError, match=r"flat\.npy: the array has one axis less, \(8, 20\)\."):
        device.read_support(tmp_path / "flat.npy", model())
    few = device.read_support(tmp_path / "classes.npy", model())
    assert few.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    turned = device.in_order(few._replace(classes=list("abcd")), ("d", "c", "a"))
    assert turned.labels.tolist() == [2, 2, -1, -1, 1, 1, 0, 0]
