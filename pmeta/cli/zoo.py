"""The command `pmeta zoo`: the models that ship with the package, without torch."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import tyro
from rich.table import Table

from pmeta import zoo
from pmeta.base.console import Console


@dataclass(frozen=True)
class ZooConfig:
    """List the models that come with the package, for pmeta adapt, pmeta export and pmeta evaluate
    to take by name."""

    model: tyro.conf.Positional[str] = ""
    """Print the card of this model: data, schedule, accuracy, memory, licence."""
    json: bool = False
    """Print the whole cards as one JSON list, or one card as one object."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(ZooConfig, args=argv, prog="pmeta zoo", description=ZooConfig.__doc__)
    if config.model:
        show_card(config)
        return
    cards = [zoo.card(name) for name in zoo.names()]
    if config.json:
        print(json.dumps(cards))
    else:
        show(cards, sys.stdout.isatty())


def show_card(config: ZooConfig) -> None:
    """All that is known of one model."""
    if config.model in zoo.recognisers():
        print(zoo.find(config.model).with_suffix(".md").read_text(encoding="utf-8").rstrip())
        return
    zoo.check(config.model)
    if config.model not in zoo.names():
        raise ValueError(
            f"the models are {', '.join([*zoo.names(), *zoo.recognisers()]) or 'none'}, got "
            f"{config.model!r}."
        )
    from pmeta.zoo.card_text import text

    card = zoo.card(config.model)
    print(json.dumps(card) if config.json else text(card).rstrip())


def show(cards: list[dict[str, Any]], terminal: bool) -> None:
    """A line for each file of each model, and how each was trained."""
    console = Console(width=None if terminal else 120, highlight=False, markup=False)
    if not cards:
        console.print(
            "no models come with this copy of the package: train one with pmeta train, then pmeta "
            "export"
        )
        return
    table = Table(
        "model", "accuracy", "classes", "file", "memory to adapt", "paper's accounting", "exact"
    )
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for card in cards:
        for i, file in enumerate(card["files"]):
            said = [] if i else [card["name"], accuracy(card)]
            theory = (
                [] if i else [f"{card['memory'][key]:.2f} MB" for key in ("paper_mb", "exact_mb")]
            )
            sizes = [f"up to {file['outputs']}", _kb(file["bytes"]), _kb(file["arena_bytes"])]
            table.add_row(*(said or ["", ""]), *sizes, *(theory or ["", ""]))
    console.print(table)
    for card in cards:
        console.print(f"{card['name']}: {schedule(card)}", soft_wrap=True)
    use = (
        "to use one: pmeta adapt MODEL --support FOLDER --query FOLDER, with a folder of pictures "
        "for each class"
    )
    console.print(use, soft_wrap=True)
    for name in zoo.recognisers():
        size = _kb(zoo.find(name).stat().st_size)
        console.print(
            f"{name}: reads recordings of sensors, {size}; to use it: pmeta adapt {name} --support "
            f"few.csv --query more.csv (pmeta zoo {name} says more)",
            soft_wrap=True,
        )


def accuracy(card: dict[str, Any]) -> str:
    """In percent, with CI95."""
    return f"{card['evaluation']['accuracy']:.1f} ± {card['evaluation']['ci95']:.1f} %"


def schedule(card: dict[str, Any]) -> str:
    """How a model was trained, and whether to the end, in one line."""
    s, e = card["schedule"], card["evaluation"]
    end = "" if s["trained"] >= s["planned"] else " (training not finished)"
    return (
        f"{card['method']}, {s['trained']:,} of {s['planned']:,} planned {card['task']} tasks of "
        f"{card['data']['name']}{end}, model of task {s['chosen_at']:,}; accuracy on "
        f"{e['tasks']:,} tasks of its validation classes"
    )


def _kb(size: int) -> str:
    return f"{size / 1000:,.0f} kB"
