"""The command `pmeta predict MODEL PHOTO_OR_FOLDER ...`: what an adapted model sees, without
torch."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from pmeta.cli.device.adapt import check_threshold
from pmeta.cli.device.learn import learn, open_model, tell_passed_over
from pmeta.cli.device.results import of_predictions
from pmeta.cli.device.show import as_csv, show_predictions
from pmeta.device.predictions import UNSURE_BELOW
from pmeta.device.samples import in_order, read_many


@dataclass(frozen=True)
class PredictConfig:
    """Classify pictures with a model that `pmeta adapt --save` wrote: the class, how sure, and the
    runner-up."""

    model: tyro.conf.Positional[str]
    """File that `pmeta adapt --save` wrote."""
    paths: tyro.conf.Positional[tuple[str, ...]]
    """Pictures and folders of pictures; .npy and .npz files of samples. Pictures in folders that
    have the names of classes give an accuracy too."""
    support: str = ""
    """Adapt the model first, to the support set in this folder; nothing is written."""
    go_on: Annotated[bool, tyro.conf.arg(name="continue")] = False
    """With --support, of a model that was adapted before: learn on, with the classes that it
    has."""
    mirror: bool = False
    """With --support: learn each picture mirrored left-right too, as pmeta adapt --mirror does."""
    unsure_below: float = UNSURE_BELOW
    """Call predictions of a lower probability unsure."""
    json: bool = False
    """Print one JSON object instead of lines."""
    csv: bool = False
    """Print comma-separated values instead of lines."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        PredictConfig, args=argv, prog="pmeta predict", description=PredictConfig.__doc__
    )
    check(config)
    if config.support:
        model = learn(config.model, config.support, config.go_on, config.mirror).model
    else:
        model = open_model(config.model)
        if not model.adapted:
            raise ValueError(
                f"{config.model} has learned no classes yet: run pmeta adapt {config.model} "
                f"--support FOLDER --save mine.pmeta first."
            )
    query = read_many(config.paths, model)
    tell_passed_over(query)
    found = of_predictions(
        model.predict(query.x), in_order(query, model.classes), config.unsure_below
    )
    found = {"classes": list(model.classes), "temperature": model.temperature, **found}
    if config.json:
        print(json.dumps(found))
    elif config.csv:
        sys.stdout.write(as_csv(found["predictions"]))
    else:
        show_predictions(found, everything=True)


def check(config: PredictConfig) -> None:
    """What fits together."""
    check_threshold(config.unsure_below)
    if config.json and config.csv:
        raise ValueError("--json and --csv are two ways to print the same: choose one.")
    if not config.paths:
        raise ValueError("pmeta predict names pictures, got none: give a picture or a folder.")
    if config.go_on and not config.support:
        raise ValueError("--continue learns from a support set, got none: give --support.")
    if config.mirror and not config.support:
        raise ValueError("--mirror is for a support set, got none: give --support.")
