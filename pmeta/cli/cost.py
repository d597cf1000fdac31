"""`pmeta cost`: memory and computation of adapting one of the paper's backbones (App. A)."""

import argparse
import json
import re
from collections.abc import Iterator, Sequence

from pmeta.base.arguments import Parser
from pmeta.cost.macs import layer_macs
from pmeta.cost.memory import stored_words
from pmeta.cost.ops import WORD
from pmeta.cost.setup import IMAGES, NAMES, Setup, figures
from pmeta.method.methods import METHODS
from pmeta.paper import note, printed

DESCRIPTION = (
    "`pmeta cost`: memory and computation of adapting one of the paper's backbones, before "
    "anything is trained (App. A)."
)
TITLES = {
    "4conv": "4Conv on 84x84 images",
    "resnet12": "ResNet12 on 84x84 images",
    "mlp-cheetah": "MLP policy on Half-Cheetah",
    "mlp-navigation": "MLP policy on 2D navigation",
}
ROWS = {
    "memory_mb": "peak memory of adaptation, MB",
    "exact_memory_mb": "  with what the paper leaves out",
    "inference_mb": "peak memory of inference, MB",
    "gmac": "one adaptation step, GMACs",
    "inference_gmac": "inference on the same samples, GMACs",
    "static_mb": "weights of the model, MB",
    "attention_mb": "weights of the attention, MB",
    "sample_mb": "samples, MB",
}


def _batch(text: str) -> int | str:
    if text != "all" and not re.fullmatch(r"-?\d+", text):
        raise argparse.ArgumentTypeError(f"takes a whole number of samples, or all, got {text!r}")
    return text if text == "all" else int(text)


def parse(argv: Sequence[str]) -> tuple[Setup, str, bool]:
    """The set-up, its method, and whether JSON is wanted.

    (argparse: tyro alone would take half of the start-up time.)"""
    parser = Parser(prog="pmeta cost", description=DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add("--backbone", required=True, metavar="NAME", help=", ".join(NAMES))
    add("--method", required=True, metavar="NAME", help=", ".join(METHODS))
    shots = "images of each class (5); for the MLPs episodes of 200 steps (20)"
    add("--shots", type=int, metavar="N", help=shots)
    add("--ways", type=int, metavar="N", help="classes of a task (5)")
    batch = "samples that go through the network at a time, or all (1)"
    add("--batch", type=_batch, default=1, metavar="N", help=batch)
    update = "layers or blocks to update instead of the method's own: conv4,fc"
    add("--update", nargs="+", metavar="LAYER", help=update)
    add("--clip-ratio-fw", type=float, metavar="RHO", help="rho of pmeta's forward attention (0.3)")
    add("--json", action="store_true", help="print one JSON object")
    options = vars(parser.parse_args(argv))
    as_json, method = options.pop("json"), options.pop("method")
    if options["update"] is not None:
        options["update"] = " ".join(options["update"])
    return setup_of(method, rho=options.pop("clip_ratio_fw"), **options), method, as_json


def setup_of(method: str, rho: float | None = None, **options: object) -> Setup:
    """The set-up of a method, whose clip ratio may be another one."""
    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}, got {method!r}.")
    row = METHODS[method]
    if row.scores == "attention":
        rho = row.clip_ratio_fw if rho is None else rho
    elif rho is not None:
        raise ValueError(
            f"--clip-ratio-fw belongs to the attention of pmeta, got it with {method}: "
            "leave it out."
        )
    return Setup(part=row.update, rho=rho, **options)  # type: ignore[arg-type]


def main(argv: Sequence[str]) -> None:
    """Run `pmeta cost` with these arguments."""
    setup, method, as_json = parse(argv)
    ours, paper = figures(setup), paper_figures(setup, method)
    if as_json:
        asked: dict[str, object] = {
            "backbone": setup.backbone,
            "method": method,
            "update": setup.layers,
        }
        asked |= {"samples": setup.samples, "batch": setup.at_a_time}
        known = {"note": note(paper)} if note(paper) else {}
        print(json.dumps(asked | ours | {"paper": paper} | known))
    else:
        show(setup, method, ours, paper)


def paper_figures(setup: Setup, method: str) -> dict[str, float]:
    """What the paper prints for the same set-up.

    For p-Meta it has the layers that its training left, unknown to us."""
    found = _printed(setup, method)
    if setup.layers == setup.own_layers and not METHODS[method].sparse_alpha:
        return found
    return {name: x for name, x in found.items() if name not in ("memory_mb", "gmac")}


def _printed(setup: Setup, method: str) -> dict[str, float]:
    if setup.n_way != 5:
        return {}
    return printed(setup.backbone, setup.n_shot, method, setup.at_a_time, setup.samples)


def show(setup: Setup, method: str, ours: dict[str, float], paper: dict[str, float]) -> None:
    """Print layers, totals beside the paper's, and what to know about them."""
    from rich import box  # late: --json starts sooner
    from rich.table import Table

    from pmeta.base.console import Console

    console = Console(highlight=False)
    title = f"{TITLES[setup.backbone]}, {METHODS[method].title}"
    console.print(f"\n[bold]{title}[/]: {_support(setup)}\n")
    layers = Table(box=box.SIMPLE_HEAD)
    layers.add_column("layer", no_wrap=True)
    for head in ("stored kB", "exact kB", "forward MMAC", "backward MMAC"):
        layers.add_column(head, justify="right", no_wrap=True)
    for cells, style in _layers(setup):
        layers.add_row(*cells, style=style)
    console.print(layers)
    totals = Table("", box=box.SIMPLE_HEAD)
    for head in ("ours", "paper"):
        totals.add_column(head, justify="right")
    for name in (name for name in ROWS if name in ours):
        printed_there = _number(paper[name]) if name in paper else ""
        totals.add_row(ROWS[name], _number(ours[name]), printed_there)
    console.print(totals)
    for line in _notes(setup, method, paper):
        console.print(line, style="dim")


def _support(setup: Setup) -> str:
    task = f"{setup.samples} episodes of 200 steps"
    if setup.backbone in IMAGES:
        task = f"{setup.n_way}-way {setup.n_shot}-shot, {setup.samples} images"
    return f"{task}, {setup.at_a_time} at a time"


def _layers(setup: Setup) -> Iterator[tuple[list[str], str]]:
    """Cells and style of a row: what each layer stores and computes."""
    ops, args = setup.ops, (setup.layers, setup.ratios)
    paper = stored_words(ops, *args, "paper", setup.attention)
    exact = stored_words(ops, *args, "exact", setup.attention)
    counts = layer_macs(ops, *args, 1.0, setup.attention)
    for i, op in enumerate(ops):
        if op.name:
            mark, style = ("*", "bold") if op.name in setup.layers else (" ", "dim")
            mmacs = [_number(x * setup.samples / 1e6) if x else "" for x in counts[op.name]]
            yield [f"{mark} {op.name}", _kb(paper[i]), _kb(exact[i]), *mmacs], style
    bits = [sum(words[i] for i, op in enumerate(ops) if not op.name) for words in (paper, exact)]
    yield ["  ReLU, max-pool", *map(_kb, bits), "", ""], "dim"


def _notes(setup: Setup, method: str, paper: dict[str, float]) -> list[str]:
    rl = "" if setup.backbone in IMAGES else ", the episodes kept for the baseline fit"
    notes = [
        "* is updated. Stored: kept for the backward pass, for one sample. MACs: all samples, "
        "one step. MB = 10^6 bytes.",
        f"Exact adds dense group-norm inputs, kernel scratch, the backward walk{rl}.",
    ]
    if setup.attention:
        notes.append(
            f"At rho = {setup.rho:g} no more is stored, whatever the data: mu_fw <= 1 - rho."
        )
    if METHODS[method].sparse_alpha and setup.layers == setup.own_layers:
        notes.append(
            "Every layer counts as updated, the most that training can leave: name the layers "
            "left with --update."
        )
        trained = _printed(setup, method)
        if "memory_mb" in trained:
            notes.append(
                f"The paper prints {trained['memory_mb']} MB and {trained['gmac']} GMACs with the "
                "layers that its training left."
            )
    return notes + ([note(paper)] if note(paper) else [])


def _kb(words: float) -> str:
    return _number(words * WORD / 1000) if words else ""


def _number(x: float) -> str:
    """Two decimals, or more where they would say nothing."""
    return f"{x:,.2f}" if x >= 0.1 else f"{x:.2g}"
