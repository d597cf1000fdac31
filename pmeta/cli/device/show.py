"""The same in words and tables."""

import csv
import io
import shlex
import sys
from typing import Any

from rich.table import Table

from pmeta.base.console import Console
from pmeta.base.terminal import printable

MISSED = 20
"""Pictures that were missed are listed up to this many."""
NAMED_COLUMNS = 6
"""With more classes the columns of the confusion matrix have numbers."""


def console() -> Console:
    """Names of classes may have brackets, which rich would take for its markup."""
    width = None if sys.stdout.isatty() else 100
    return Console(width=width, highlight=False, markup=False)


def show_predictions(found: dict[str, Any], everything: bool = False) -> None:
    """Accuracy, matrix and misses of the queries that can be judged; a line for each other one."""
    predictions = found["predictions"]
    if "accuracy" in found:
        right = found["judged"] - len(found["missed"])
        print(f"accuracy {100 * found['accuracy']:.1f} % ({right} of {found['judged']})")
        console().print(confusion(found["classes"], found["confusion"]))
        _show_missed(found)
    for name, p in predictions.items():
        if everything or "true" not in p:
            print(line(name, p))
    unsure = sum(p["unsure"] for p in predictions.values())
    if unsure:
        print(f"unsure of {unsure} of {len(predictions)}")


def line(name: str, p: dict[str, Any]) -> str:
    """A query, its class, how sure, the runner-up."""
    parts = [printable(name), printable(p["class"]), f"{100 * p['probability']:.0f} %"]
    if p["runner_up"]:
        then = f"{printable(p['runner_up'])} {100 * p['runner_up_probability']:.0f} %"
        parts.append(f"or {then}")
    return "\t".join([*parts, *(["unsure"] if p["unsure"] else [])])


def _show_missed(found: dict[str, Any]) -> None:
    if not found["missed"]:
        return
    print(f"missed {len(found['missed'])}:")
    for name in found["missed"][:MISSED]:
        print(f"  {line(name, found['predictions'][name])}")
    if len(found["missed"]) > MISSED:
        print(f"  and {len(found['missed']) - MISSED} more (--json lists all)")


def confusion(classes: list[str], counts: list[list[int]]) -> Table:
    """A row for each true class with queries, a column for each that was said."""
    numbered = len(classes) > NAMED_COLUMNS
    heads = [str(i + 1) for i in range(len(classes))] if numbered else classes
    table = Table("true class", *heads, "right", title="taken for", title_justify="center")
    for column in table.columns[1:]:
        column.justify = "right"
    for i, (name, row) in enumerate(zip(classes, counts, strict=True)):
        if sum(row):
            cells = [str(n) if n else "·" for n in row]
            shown = f"{i + 1} {name}" if numbered else name
            table.add_row(shown, *cells, f"{row[i]} of {sum(row)}")
    return table


def show_costs(found: dict[str, Any]) -> None:
    """Bytes, times and channels of an adaptation."""
    table = Table(
        "",
        "bytes",
        title=f"{found['support']} samples, {found['steps']} steps",
        title_justify="left",
    )
    table.columns[1].justify = "right"
    for label, key in (
        ("arena, planned", "arena_bytes"),
        ("arena, reached", "high_water_bytes"),
        ("of it weights under adaptation", "state_bytes"),
        ("one sample", "sample_bytes"),
    ):
        table.add_row(label, f"{found[key]:,}")
    to = console()
    to.print(table)
    per_step = ", ".join(f"{ms:.1f}" for ms in found["milliseconds_per_step"])
    to.print(
        f"loss {found['losses'][0]:.3f} before, {found['losses'][-1]:.3f} at the last step; "
        f"{per_step} ms a step"
    )
    shares = [
        f"{name} {len(u['updated'])}/{u['of']}" for name, u in found["updated_channels"].items()
    ]
    to.print("channels updated: " + ", ".join(shares))


def show_learned(found: dict[str, Any], model: str, saved: str, support: str, go_on: bool) -> None:
    """What was learned, what was written, and what to type next."""
    names = ", ".join(printable(name) for name in found["classes"])
    counts = found["support_of_class"].values()
    least, most = min(counts), max(counts)
    per_class = str(most) if least == most else f"{least} to {most}"
    too = ", mirrored too" if found["mirrored"] else ""
    print(f"learned {names} from {found['support']} samples ({per_class} of each class){too}")
    if saved:
        print(f"wrote {printable(saved)}: the adapted model with the names of its classes")
        print(f"next: pmeta predict {printable(shlex.quote(saved))} PHOTO_OR_FOLDER")
    else:
        again = f"pmeta adapt {shlex.quote(model)} --support {shlex.quote(support)}"
        again += " --continue" if go_on else ""
        again += " --mirror" if found["mirrored"] else ""
        print(f"nothing is kept; to keep it: {printable(again)} --save mine.pmeta")


def as_csv(predictions: dict[str, dict[str, Any]]) -> str:
    """A row for each query."""
    out = io.StringIO()
    keys = ("class", "probability", "runner_up", "runner_up_probability", "unsure")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("file", *keys))
    writer.writerows((name, *(p[key] for key in keys)) for name, p in predictions.items())
    return out.getvalue()
