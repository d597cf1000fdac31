"""The command `pmeta adapt MODEL`: learn from a few pictures and name others, without torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from pmeta.base.files import check_can_write
from pmeta.cli.device.learn import learn, tell_passed_over
from pmeta.cli.device.results import of_adaptation, of_predictions
from pmeta.cli.device.show import show_costs, show_learned, show_predictions
from pmeta.device.predictions import UNSURE_BELOW
from pmeta.device.samples import in_order, read_samples


@dataclass(frozen=True)
class AdaptConfig:
    """Adapt an exported model to a support set and predict the classes of queries."""

    model: tyro.conf.Positional[str]
    """Name of a model that `pmeta zoo` lists, or file that `pmeta export` wrote."""
    support: str
    """Folder with a folder of pictures (or .npy files) for each class; a .npy array (classes,
    samples, *shape of a sample); or an .npz with samples x and labels y."""
    query: str = ""
    """A picture, a folder of pictures, or of a folder for each class, which gives an accuracy too;
    or a .npy array (samples, *shape) or (classes, samples, *shape), or an .npz."""
    save: str = ""
    """Write the adapted model with the names of its classes to this file, for pmeta predict, Python
    or C; an old file there is replaced."""
    go_on: Annotated[bool, tyro.conf.arg(name="continue")] = False
    """Of a model that was adapted before: learn on, with the classes that it has. A head from
    prototypes is made anew, so give the pictures of before too."""
    mirror: bool = False
    """Learn each picture mirrored left-right too: for photos, a little better from about five of a
    class, in twice the time and the same memory. It hurts with letters, digits and whatever else
    has a left and a right."""
    unsure_below: float = UNSURE_BELOW
    """Call predictions of a lower probability unsure."""
    verbose: bool = False
    """Also print every prediction, bytes, times and the channels that were updated."""
    json: bool = False
    """Print one JSON object instead of a table."""


def check_threshold(below: float) -> None:
    """A probability."""
    if not 0 <= below <= 1:
        raise ValueError(f"--unsure-below is a probability from 0 to 1, got {below}.")


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(AdaptConfig, args=argv, prog="pmeta adapt", description=AdaptConfig.__doc__)
    check_threshold(config.unsure_below)
    if config.save:
        check_can_write(Path(config.save))
    learned = learn(config.model, config.support, config.go_on, config.mirror)
    found = of_adaptation(learned)
    if config.query:
        query = read_samples(config.query, learned.model)
        tell_passed_over(query)
        predicted = learned.model.predict(query.x)
        query = in_order(query, learned.model.classes)
        found |= of_predictions(predicted, query, config.unsure_below)
    if config.save:  # before anything is printed, which may fail
        learned.model.save(config.save, learned.facts(config.model))
    if config.json:
        print(json.dumps(found))
        return
    if config.query:
        show_predictions(found, config.verbose)
    if config.verbose:
        show_costs(found)
    show_learned(found, config.model, config.save, config.support, config.go_on)
