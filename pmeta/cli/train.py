"""The command `pmeta train NAME`: meta-train, or go on where a run was stopped."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import tyro

from pmeta import kinds
from pmeta.sensors.config import SensorConfig
from pmeta.training.config import ImageConfig
from pmeta.training.pretraining.config import PretrainConfig

NAMED: dict[str, Any] = kinds.named()

OWN = ImageConfig(data="")
"""The settings of a network of one's own, where no option changes them."""

USAGE = """usage: pmeta train NAME --out RUN [--data DIR] [--method METHOD] [--tasks N] [options]
       pmeta train FILE.py:FUNCTION --data DIR --out RUN [options]

Meta-train a network, or continue the run in the folder RUN. The names are the paper's settings,
each of which an option may change, one on the embedded set glyphs, one that pre-trains (then: pmeta
train NAME --init RUN), and one on recordings of sensors:
  {names}
FILE.py:FUNCTION makes a network of your own.

pmeta train NAME --help lists every option with its value there."""


def main(argv: list[str]) -> None:
    """Run the command."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE.format(names="\n  ".join(NAMED)))
        raise SystemExit(0 if argv else 2)
    config = parse(argv)
    if not config.out:
        raise ValueError(
            "--out names the run folder, got none: say where to keep the run, as in --out "
            "runs/first."
        )
    if isinstance(config, ImageConfig | PretrainConfig) and not config.data:
        raise ValueError(
            "--data names the pictures, got none: give --data DIR, or --data glyphs for the "
            "embedded set."
        )
    if isinstance(config, SensorConfig) and not config.data:
        raise ValueError(
            "--data names the recordings, got none: give --data DIR, a folder of "
            "PERSON/[DEVICE/]RECORDING.csv."
        )
    from pmeta.training import workers

    count = config.workers or config.most_workers(workers.default_workers())
    best = workers.run(kinds.train, (config,), count)
    if best:
        calibrate(config, count)
    if workers.is_first():
        if isinstance(config, ImageConfig):
            from pmeta.report import figures  # late: matplotlib takes its time

            figures.run_pictures(Path(config.out))
        _report(config.out, best, getattr(config, "model", ""))


def calibrate(config: Any, count: int) -> None:
    """Fit temperatures on validation tasks of another seed, unless the best model has them or there
    are too few tasks for it."""
    from pmeta.cli.calibrate import keep
    from pmeta.training import calibration, workers
    from pmeta.training.restored import Asked

    alone = workers.under_torchrun()  # whose processes make up a group only once
    if alone and not workers.is_first():
        return
    module = kinds.kind(config.kind)
    asked = Asked(config.out, model=getattr(config, "model", ""))
    if "calibrate" not in module.TAKES or calibration.temperatures(config.out):
        return
    args = module.restore, asked
    group = workers.Group()
    if module.restore(group, asked).calibration_tasks < 2:
        return
    fit = calibration.calibrate
    keep(config.out, fit(group, *args) if alone else workers.run(fit, args, count))


def parse(argv: list[str]) -> Any:
    """The configuration NAME with the options given."""
    if argv[0] not in NAMED and ":" not in argv[0]:
        raise ValueError(
            f"the configurations are {', '.join(NAMED)}, and FILE.py:FUNCTION for a network of "
            f"your own, got {argv[0]!r}."
        )
    default = NAMED.get(argv[0]) or dataclasses.replace(OWN, model=argv[0])
    return tyro.cli(
        type(default),
        default=default,
        args=argv[1:],
        prog=f"pmeta train {argv[0]}",
        description=type(default).__doc__,
    )


def _report(out: str, best: dict[str, Any], model: str = "") -> None:
    if "val_1shot" in best:
        print(
            f"best: {best['val_1shot']:.2f} % (1-shot), {best['val_5shot']:.2f} % (5-shot) by "
            f"nearest centroid on validation after {best['epoch']} epochs"
        )
        print(f"kept in {out}/best.safetensors; next: pmeta train NAME --init {out}")
        return
    own = f" --model {shlex.quote(model)}" if model else ""
    unit, score = ("", best["val_after"]) if "val_after" in best else (" %", best["val_accuracy"])
    reached = (
        f"{score:.2f} ± {best['val_ci95']:.2f}{unit} on validation after {best['tasks']} tasks"
    )
    print(
        f"best: {reached}, {best['memory_mb']:.2f} MB to adapt (exact: "
        f"{best['exact_memory_mb']:.2f} MB)"
    )
    print(f"kept in {out}/best.safetensors; next: pmeta evaluate {out}{own}")
