"""The command `pmeta reproduce`: the paper's tables and figure 5."""

import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from pmeta.reproduce.cells import TITLES
from pmeta.reproduce.config import ReproduceConfig, choose

WHAT = "\n".join(f"  {name:<9}{title}" for name, title in TITLES.items())
DESCRIPTION = f"""The paper's tables and figure 5, ours beside the paper's.

{WHAT}
  all      everything

It is a queue of runs in OUT/runs that may be stopped at any time: the same command goes on,
and what is done is not done again. After every run the tables are written to OUT/tableN.md,
.csv and .json, the figure to OUT/figure5.svg, .png and .json.

  pmeta reproduce table4 --data mini=DIR --scale short --out results
  pmeta reproduce all --scale smoke --out /tmp/smoke
"""


def main(argv: list[str]) -> None:
    """Run the command."""
    _once_each(argv)
    config = tyro.cli(ReproduceConfig, args=argv, prog="pmeta reproduce", description=DESCRIPTION)
    try:
        reproduce(config)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here.", file=sys.stderr)
        raise


def _once_each(argv: Sequence[str]) -> None:
    """The second of two --only would silently replace the first."""
    for flag in ("--data", "--only", "--set", "--seeds"):
        if sum(word == flag or word.startswith(f"{flag}=") for word in argv) > 1:
            raise ValueError(f"{flag} is given once, with all of its values behind it: {flag} A B.")


def reproduce(config: ReproduceConfig) -> None:
    """Plan, tell, work off the queue, and write the tables after every step."""
    asked, cells, figure = choose(config.what, config.only)
    from pmeta.reproduce import session  # late: --help and mistakes need no torch

    session.run(config, asked, cells, figure, Path(config.out))
