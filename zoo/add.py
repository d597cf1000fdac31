"""For makers of a release: `python zoo/add.py RUN ...` takes the best models into the zoo."""

import dataclasses
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from pmeta import zoo
from pmeta.base.files import make_folder, write_atomically
from pmeta.cli.export import ExportConfig, export_run
from pmeta.compiler.export import Exported
from pmeta.kinds import pictures
from pmeta.kinds.pictures.best import load, open_for, restore
from pmeta.kinds.pictures.config import NAMED, ImageConfig
from pmeta.kinds.pictures.train import choose_device
from pmeta.method.step_sizes import updated_layers
from pmeta.training import workers
from pmeta.training.calibration import calibrate
from pmeta.training.restored import Asked, evaluate
from pmeta.training.results import Summary
from pmeta.training.run_folder import Checkpoint, Run, write_json
from pmeta.zoo.card_text import text

WIDE = 20
"""Outputs of the second file of a model with a head from prototypes."""
MANY = 10
"""Classes that such a model is measured with, too."""
WHERE = ("data", "out", "workers", "device", "tensorboard", "recompute")
"""Settings of a training that do not change what it gives."""


@dataclass(frozen=True)
class AddConfig:
    """Take the best models of runs into pmeta/zoo, measured on the validation classes, and write
    their cards to docs/zoo."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run folders of pmeta train."""
    data: str = ""
    """Where the data of the runs are now; by default where they were."""
    name: str = ""
    """What the model is called; by default miniimagenet-BACKBONE-Nway-Kshot.

    For one run at a time.
    """
    tasks: int = 1000
    """Validation tasks to measure each on; with many classes a quarter of them."""
    n_query: int = 15
    """Their queries of each class."""
    engine: tuple[str, ...] = ()
    """Files of benchmarks/shots.py, whose cells become a table of the card."""
    workers: int = 1
    """Processes."""
    folder: str = str(zoo.FOLDER)
    """Where the models go."""
    cards: str = str(zoo.FOLDER.parent.parent / "docs" / "zoo")
    """Where the cards go."""

    def __post_init__(self) -> None:
        if self.name and len(self.runs) != 1:
            raise ValueError(
                f"--name is that of one model, got {len(self.runs)} runs: add them one by one."
            )


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(AddConfig, args=argv, prog="python zoo/add.py", description=AddConfig.__doc__)
    for run in config.runs:
        card = add(config, run)
        e = card["evaluation"]
        print(f"{card['name']}: {e['accuracy']:.2f} ± {e['ci95']:.2f} %")


def add(config: AddConfig, run: str) -> dict[str, Any]:
    """Measure and export the best model of a run, whose training may go on meanwhile; its card."""
    load(run)  # if there is one
    with tempfile.TemporaryDirectory() as still:
        for name in ("config.json", "last.safetensors", "best.safetensors"):
            if (Path(run) / name).exists():
                shutil.copy(Path(run) / name, still)
        return add_still(config, still)


def add_still(config: AddConfig, run: str) -> dict[str, Any]:
    """The same where nothing changes. The card is written last: by it a model is known."""
    trained, best = load(run)
    method = "" if trained.method == "pmeta" else f"-{trained.method}"
    name = (
        config.name
        or f"miniimagenet-{trained.backbone}-{trained.n_way}way-{trained.n_shot}shot{method}"
    )
    data = describe_data(trained, config.data, tuple(best.info["input"]))
    measured = {trained.n_way: measure(config, run)}
    any_number = trained.head == "prototype"
    if any_number:
        many = min(MANY, data["classes"]["val"])
        measured[many] = measure(config, run, many)
    asked = calibration_of(config, run, trained)
    calibration = workers.run(calibrate, (pictures.restore, asked), config.workers)
    write_json(Path(run) / "calibration.json", calibration)  # pmeta export reads it there
    exported = {trained.n_way: export_run(run)}
    if any_number:
        exported[WIDE] = export_run(run, ExportConfig(run, classes=WIDE))
    files = {n: f"{name}.pmeta" if n == trained.n_way else f"{name}-{n}.pmeta" for n in exported}
    card = describe(
        name, run, trained, best, measured, {files[n]: (n, e) for n, e in exported.items()}
    )
    card["data"] = data
    card["evaluation"]["n_query"] = config.n_query
    if config.engine:
        found = [json.loads(Path(file).read_text()) for file in config.engine]
        keys = ("arena_bytes", "outputs", "seed")
        card["engine"] = {key: found[0][key] for key in keys if key in found[0]}
        cells = [cell for file in found for cell in file["cells"]]
        card["engine"]["cells"] = sorted(cells, key=lambda c: (c["n_way"], c["n_shot"]))
    card["calibration"] = calibration
    folder, cards = Path(config.folder), Path(config.cards)
    make_folder(folder)
    make_folder(cards)
    for n, e in exported.items():
        write_atomically(folder / files[n], e.data)
    trained_weights = (Path(run) / "best.safetensors").read_bytes()
    write_atomically(folder / f"{name}.safetensors", trained_weights)
    write_atomically(cards / f"{name}.md", text(card).encode())
    write_json(folder / f"{name}.json", card)
    return card


def calibration_of(config: AddConfig, run: str, trained: ImageConfig) -> Asked:
    """The tasks that fit and measure temperatures, of another seed than those of `measure`."""
    tasks = max(2, config.tasks // 5)
    seed = max(trained.seed, 1) + 1
    return Asked(
        run,
        config.data,
        split="val",
        tasks=tasks,
        n_query=config.n_query,
        seed=seed,
    )


def measure(config: AddConfig, run: str, many: int | None = None) -> Summary:
    """`pmeta evaluate RUN --split val --n-query N`, or the same with many classes."""
    tasks = config.tasks if many is None else max(2, config.tasks // 4)
    asked = Asked(
        run,
        config.data,
        split="val",
        tasks=tasks,
        n_way=many,
        n_query=config.n_query,
    )
    return workers.run(evaluate, (pictures.restore, asked), config.workers)[1]  # type: ignore[return-value]


def describe(
    name: str,
    run: str,
    trained: ImageConfig,
    best: Checkpoint,
    measured: dict[int, Summary],
    files: dict[str, tuple[int, Exported]],
) -> dict[str, Any]:
    """All that a card says."""
    net, meta = restore(trained, best.tensors, best.info["input"], choose_device("cpu", 0))
    shipped = measured[trained.n_way]
    evaluation: dict[str, Any] = {"split": "val", **score(shipped)}
    for classes in measured.keys() - {trained.n_way}:
        evaluation["many"] = {"classes": classes, **score(measured[classes])}
    last = Run(run).load("last")
    return {
        "name": name,
        "method": trained.method_row().title,
        "task": f"{trained.n_way}-way {trained.n_shot}-shot",
        "backbone": trained.backbone,
        "schedule": {
            "planned": trained.tasks,
            "trained": max(best.info["tasks"], last.info["tasks"] if last else 0),
            "chosen_at": best.info["tasks"],
            "meta_batch": trained.meta_batch,
            "n_query": trained.n_query,
            "memory_budget": trained.memory_budget,
            "seed": trained.seed,
        },
        "evaluation": evaluation,
        "updates": updated_layers(net, meta.updates()),
        "memory": {
            "paper_mb": shipped.memory_mb,
            "exact_mb": shipped.exact_memory_mb,
            "gmac": shipped.gmac,
        },
        "files": [describe_file(file, n, e) for file, (n, e) in files.items()],
        "command": training_command(trained),
        "config": {
            **dataclasses.asdict(trained),
            "data": "MiniImageNet",
            "out": "",
            "versions": Run(run).config()["versions"],
        },
    }


def score(summary: Summary) -> dict[str, float]:
    """Accuracy, and on how many tasks."""
    return {"tasks": summary.tasks, "accuracy": summary.accuracy, "ci95": summary.ci95}


def training_command(trained: ImageConfig) -> str:
    """What trains this model again; settings of the named configuration are left out."""
    c = dataclasses.asdict(trained)
    named = f"miniimagenet-{trained.backbone}-{trained.n_way}way-{trained.n_shot}shot"
    usual = dataclasses.asdict(NAMED[named]) | {"method": ""} if named in NAMED else {}
    other = {key: c[key] for key in c if key not in WHERE and c[key] != usual.get(key)}
    flags = [_flag(key.replace("_", "-"), value) for key, value in other.items()]
    return " ".join(["pmeta train", named, "--data DIR", *flags, "--out RUN"])


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"


def describe_data(trained: ImageConfig, data: str, image: tuple[int, int, int]) -> dict[str, Any]:
    """The pictures that a model learned from, and those that it was measured on."""
    counts = {
        split: len(open_for(trained, split, data, image).classes) for split in ("train", "val")
    }
    return {"name": "MiniImageNet", "classes": counts, "image": list(image)}


def describe_file(name: str, outputs: int, e: Exported) -> dict[str, Any]:
    """One model for the device, in bytes."""
    sizes = {
        key: getattr(e, key) for key in ("arena_bytes", "infer_bytes", "state_bytes", "input_bytes")
    }
    return {"file": name, "outputs": outputs, "bytes": len(e.data), **sizes}


if __name__ == "__main__":
    main(sys.argv[1:])
