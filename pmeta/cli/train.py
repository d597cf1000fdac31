"""The command `pmeta train NAME`: meta-train, or go on where a run was stopped."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import tyro

from pmeta import kinds
from pmeta.cli.options import short_help
from pmeta.kinds.pictures.config import ImageConfig

OWN = ImageConfig(data="")
"""The settings of a network of one's own, where no option changes them."""

USAGE = """usage: pmeta train NAME --out RUN [--data DIR] [--method METHOD] [--tasks N] [options]
       pmeta train FILE.py:FUNCTION --data DIR --out RUN [options]

Meta-train a network, or continue the run in the folder RUN. The names are the paper's settings,
each of which an option may change, one on the embedded set glyphs, one that pre-trains (then: pmeta
train NAME --init RUN), and one on recordings of sensors:
  {names}
FILE.py:FUNCTION makes a network of your own.

pmeta train NAME --help shows the options that people change, --help-all every option."""


def main(argv: list[str]) -> None:
    """Run the command."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE.format(names="\n  ".join(kinds.named())))
        raise SystemExit(0 if argv else 2)
    config = parse(argv)
    config.check_start()
    from pmeta.training import workers

    count = config.workers or config.most_workers(workers.default_workers())
    best = workers.run(kinds.train, (config,), count)
    if best:
        calibrate(config, count)
    if workers.is_first():
        from pmeta.report import figures  # late: matplotlib takes its time

        figures.run_pictures(Path(config.out))
        report(config, best)


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
    asked = Asked(config.out, split="val", seed=config.seed + 1, model=getattr(config, "model", ""))
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
    named: dict[str, Any] = kinds.named()
    if argv[0] not in named and ":" not in argv[0]:
        raise ValueError(
            f"the configurations are {', '.join(named)}, and FILE.py:FUNCTION for a network of "
            f"your own, got {argv[0]!r}."
        )
    default = named.get(argv[0]) or dataclasses.replace(OWN, model=argv[0])
    prog = f"pmeta train {argv[0]}"
    if {"-h", "--help"} & set(argv[1:]):
        usage = f"usage: {prog} --out RUN [options]"
        print(short_help(default, kinds.kind(default.kind).COMMON, usage))
        raise SystemExit(0)
    args = ["--help" if arg == "--help-all" else arg for arg in argv[1:]]
    return tyro.cli(
        type(default), default=default, args=args, prog=prog, description=type(default).__doc__
    )


def report(config: Any, best: dict[str, Any]) -> None:
    """Say how good the best model is, and what comes next."""
    module, out = kinds.kind(config.kind), shlex.quote(config.out)
    model = getattr(config, "model", "")
    own = f" --model {shlex.quote(model)}" if model else ""
    print(f"best: {module.FIGURES.reached.format(**best)}")
    print(f"kept in {config.out}/best.safetensors; next: {module.NEXT.format(run=out)}{own}")
