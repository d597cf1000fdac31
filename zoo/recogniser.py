"""Put the best model of a run on recordings into the package: its file and its card.

    python zoo/recogniser.py RUN --name har-conv1d

The card says how well it does on the people of the run's validation, who did not train it.
"""

import argparse
import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import zoo
from pmeta.cli.export import export_run
from pmeta.compiler.export import Exported
from pmeta.kinds import recordings
from pmeta.kinds.recordings.best import Trained, load
from pmeta.kinds.recordings.evaluate import DeviceScore, PeopleSummary
from pmeta.method.methods import METHODS
from pmeta.training.budget import Sample, maml_bytes
from pmeta.training.restored import Asked, evaluate
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

DRAWS = 4
"""Tasks of each person with each device."""
ATTRIBUTION = (
    'It was trained on "Dataset of inertial measurements of smartphones and smartwatches for human '
    'activity recognition" (Matey-Sanz, Casteleyn and Granell, Data in Brief, 2023, doi '
    "10.1016/j.dib.2023.109809), licensed under CC BY 4.0.\n"
    "The recordings were cut into windows and scaled; none of them is in this file.\n"
    "The weights come under the licence of this project (MIT)."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    folder = zoo.FOLDER / "sensors"
    folder.mkdir(exist_ok=True)
    exported = export_run(options.run)
    calibration = Run(options.run).calibration()
    if calibration is None:
        raise SystemExit(f"run pmeta calibrate {options.run} first: what ships is calibrated.")
    scores = {n: scores_of(options.run, n) for n in (1, 2, 5, 10)}
    (folder / f"{options.name}.pmeta").write_bytes(exported.data)
    text = card(options.name, load(options.run), exported, scores, calibration["shots"])
    (folder / f"{options.name}.md").write_text(text)


def scores_of(run: str, n_shot: int) -> dict[str, DeviceScore]:
    """Of the people of its validation, device by device."""
    asked = Asked(run, split="val", tasks=DRAWS, n_shot=n_shot)
    _, summary = evaluate(Group(), recordings.restore, asked)
    assert isinstance(summary, PeopleSummary)
    return summary.devices


def card(
    name: str,
    t: Trained,
    exported: Exported,
    scores: dict[int, dict[str, DeviceScore]],
    calibration: list[dict[str, Any]],
) -> str:
    """The card as Markdown."""
    w, c = t.windowing, t.config
    arena, size = exported.arena_bytes, len(exported.data)
    reads = Sample((len(w.columns), w.length))
    everything = maml_bytes(t.net, t.meta, "arena", c.n_shot * len(w.labels), reads)
    rows = [
        f"| {device} | {n} | {s.people} | {s.before:.1f} ± {s.before_ci95:.1f} "
        f"| {s.after:.1f} ± {s.after_ci95:.1f} |"
        for n, found in scores.items()
        for device, s in found.items()
    ]
    sure = [
        f"| {s['n_shot']} | {s['temperature']:.2f} | {100 * s['ece_before']:.1f} "
        f"| {100 * s['ece']:.1f} |"
        for s in calibration
    ]
    steps = "; ".join(updated(t))
    changed = {
        f.name: getattr(c, f.name)
        for f in dataclasses.fields(c)
        if f.name in ("memory_budget", "devices", "rotate") and getattr(c, f.name)
    }
    flags = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in changed.items())
    return "\n".join(
        [
            f"# {name}", "",
            f"Recognises {', '.join(w.labels)} from {', '.join(w.columns)}, in windows of "
            f"{w.length} rows at {w.rate:g} a second, and adapts to one person with one device.",
            f"`pmeta adapt {name} --support few.csv --query more.csv` adapts it.", "",
            "## Accuracy", "",
            "Balanced accuracy in percent on the people of the validation, who did not train the "
            "model but chose its checkpoint; support and query are different recordings.", "",
            "| device | windows of each activity | people | before | after adaptation |",
            "|---|---|---|---|---|", *rows, "",
            "## Certainty", "",
            "The file has a temperature for each number of windows, fitted on half of the draws of "
            "the validation people; the error of calibration (ECE, percent) is that of the others.",
            "",
            "| windows of each activity | temperature | error without | error |",
            "|---|---|---|---|", *sure, "",
            "## Memory", "",
            f"The file has {size:,} bytes, the arena to adapt {arena:,} bytes; updating all layers "
            f"takes {everything:,}.",
            f"Layers that adaptation updates: {steps}.", "",
            "## Training", "",
            f"{METHODS[c.method].title}, {c.tasks:,} tasks, {c.inner_steps} inner steps.", "",
            "```",
            f"pmeta train har-conv1d --data DIR --method {c.method} {flags} --out RUN",
            f"python zoo/recogniser.py RUN --name {name}",
            "```", "",
            "## Licence and attribution", "", ATTRIBUTION, "",
        ]
    )  # fmt: skip


def updated(t: Trained) -> list[str]:
    """The layers that steps update, steps in a row with the same ones together."""
    lines, first = [], 1
    for row, run in itertools.groupby(t.meta.updates().tolist()):
        names = [layer.name for layer, on in zip(t.net.layers, row, strict=True) if on]
        last = first + len(list(run)) - 1
        which = f"step {first}" if last == first else f"steps {first} to {last}"
        lines.append(f"{which}: {', '.join(names) or 'none'}")
        first = last + 1
    return lines


if __name__ == "__main__":
    main()
