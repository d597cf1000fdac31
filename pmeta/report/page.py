"""The page: what was given, in sections from the whole to the single run."""

from base64 import b64encode
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pmeta.method.methods import ALL
from pmeta.report.read import Given
from pmeta.report.reliability import caption, of_training, reliability
from pmeta.report.run import RunRecord
from pmeta.report.setup import KINDS, Card, card, finding, setup_section
from pmeta.report.steps import evolution, largest_of, moments, shares, strength, update_ratios
from pmeta.report.tables import difference_picture, differences, entries, notes, score_picture
from pmeta.report.words import bytes_text, counted, labels, number, step_size_text, with_ci95

OPEN = 3
"""So many runs are shown in full; of more, each opens when asked."""
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
"""All that is put into the page is escaped, so that a run's name cannot become markup."""
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}


def page(given: Given, title: str) -> str:
    """One HTML page that needs nothing else."""
    groups = by_setup(given.runs)
    said = [(group[0].setup, finding(group)) for group in groups]
    runs = [pair for group in groups for pair in zip(group, labels(group), strict=True)]
    return TEMPLATES.get_template("page.html").render(
        title=title,
        kinds=KINDS,
        found=found(given),
        findings=[(setup, text) for setup, text in said if text],
        setups=[setup_section(group[0].setup, group) for group in groups],
        tables=[table_section(t) for t in given.tables],
        figures=[(name, data_url(path)) for name, path in given.figures],
        runs=[run_section(run, name) for run, name in runs],
        opened=len(runs) <= OPEN,
    )


def found(given: Given) -> str:
    """What was read, as "2 runs, 1 table"."""
    parts = ((given.runs, "run"), (given.tables, "table"), (given.figures, "figure"))
    return ", ".join(counted(len(items), name) for items, name in parts if items)


def by_setup(runs: list[RunRecord]) -> list[list[RunRecord]]:
    """Runs that can be compared with each other, in the order of the methods."""
    groups: dict[Any, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: ([*ALL, ""].index(run.method), str(run.path))):
        groups.setdefault((run.setup, run.measure), []).append(run)
    return list(groups.values())


def data_url(path: Path) -> str:
    """A figure of `pmeta reproduce`, inside the page; as an image it can do nothing but be seen."""
    return f"data:image/svg+xml;base64,{b64encode(path.read_bytes()).decode()}"


def table_section(given: dict[str, Any]) -> dict[str, Any]:
    """A table of the paper with ours, as numbers and as pictures."""
    name = str(given.get("name", "")).replace("table", "Table ")
    drawn = [(column, score_picture(given, column)) for column in given["columns"]]
    hollow = "Filled: ours with CI95. Hollow: the paper's."
    cards = [card(f"{name}: {column}", hollow, picture) for column, picture in drawn if picture]
    compared = differences(given)
    if compared:
        paired = "Paired over the same tasks, with CI95: where the bar crosses 0, "
        paired += "the two cannot be told apart. Hollow: the paper's."
        title = f"{name}: what each row gains over {compared[0]['versus']}"
        cards.append(card(title, paired, difference_picture(compared)))
    return {
        "title": f"{name}. {given.get('title', '')}",
        "columns": given["columns"],
        "rows": entries(given),
        "notes": notes(given),
        "cards": cards,
    }


def run_section(run: RunRecord, label: str) -> dict[str, Any]:
    """What is known of a run, behind a line that says what it is."""
    score, total = run.score, run.figures.total
    state = "finished" if run.finished else f"{run.done:,} of {run.so_far(total)}"
    if score:
        state += f", {with_ci95(score, run.measure.unit)}"
        state += f" in {bytes_text(score.costs.memory_mb)}" if score.costs else ""
    return {
        "label": label,
        "line": f"{run.setup}: {state}",
        "path": str(run.path),
        "title": run.title,
        "failed": run.failed,
        "validated": bool(run.chosen),
        "steps": run_steps(run) if run.alpha else None,
        "evaluations": [_evaluation(run, e) for e in run.evaluations],
        "settings": _settings(run),
        "versions": ", ".join(f"{name} {v}" for name, v in run.settings["versions"].items()),
    }


def run_steps(run: RunRecord) -> dict[str, Any]:
    """The step sizes of a run's model, what its slider goes through, and the cards beside it."""
    chosen = run.chosen
    assert chosen
    not_yet = "last validation; the layers are not chosen yet"
    which = not_yet if run.best is None else "best model"
    largest = largest_of([m["alpha"] for m in run.metrics])
    history = [
        [run.at(m), [[float(f"{a:.3g}") for a in row] for row in m["alpha"]]] for m in run.metrics
    ]
    return {
        "title": f"Step sizes α after {run.so_far(run.at(chosen))}",
        "caption": f"Of each layer and step, {which}. A point stands for 0: not updated, nothing "
        "stored.",
        "rows": [
            (name, [(step_size_text(a), strength(a, largest)) for a in column])
            for name, *column in zip(run.layers, *run.alpha, strict=True)
        ],
        "so_far": run.so_far(run.at(chosen)),
        "at": [run.at(m) for m in run.metrics].index(run.at(chosen)),
        "history": {"history": history, "largest": largest, "unit": run.figures.counted.unit},
        "cards": _beside(run),
    }


def _beside(run: RunRecord) -> list[Card]:
    """How the step sizes evolved, and which shares of the weights they update."""
    ratios, measured = update_ratios(run)
    if any("update_ratios" in e for e in run.evaluations):
        how = "Mean over evaluated tasks."
    elif measured:
        how = "Whole layers: there are no scores."
    else:
        how = "The most that the clipped scores can leave."
    cards = [card("Share of the weights that each step updates", how, shares(ratios, run.layers))]
    if len(run.metrics) > 1:
        words = f"From the first to the last validation, after so many {run.figures.counted.unit}; "
        words += "rows are layers, columns are steps, as above."
        picture = evolution(moments(run), run.layers)
        cards.insert(0, card("How the step sizes evolved", words, picture))
    if run.calibration:
        part = of_training(run.calibration, run.settings.get("n_shot"))
        words = caption(run.calibration, part)
        cards.append(card("How sure it is, and how often right", words, reliability(part)))
    return cards


def _evaluation(run: RunRecord, e: dict[str, Any]) -> list[str]:
    """A row of the table of evaluations that are kept with the run."""
    data = e.get("data") or "the run's own"
    names = [data, e.get("split", "unseen tasks"), str(e.get("batch", 1) or "all")]
    score = with_ci95(run.score_of(e), run.measure.unit)
    return [*names, f"{e['tasks']:,}", score, bytes_text(e["memory_mb"]), number(e["gmac"])]


def _settings(run: RunRecord) -> list[tuple[str, str, bool]]:
    """Every setting of config.json, and whether it is the default."""
    shown = {name: value for name, value in run.settings.items() if name != "versions"}
    return [
        (name, "–" if value == "" else str(value), name not in run.figures.given)
        for name, value in shown.items()
    ]
