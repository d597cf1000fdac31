"""The command `pmeta zoo build NAME`: the files of a model whose weights are in another package."""

from dataclasses import dataclass

import tyro

from pmeta import zoo
from pmeta.base.files import make_folder, write_atomically
from pmeta.cli.export import export_run


@dataclass(frozen=True)
class BuildConfig:
    """Make the files of a model of which only what was learned here comes with the package."""

    model: tyro.conf.Positional[str]
    """Which; `pmeta zoo` lists it."""
    quiet: bool = False
    """Print nothing."""


def main(argv: list[str]) -> None:
    """Run the command."""
    description = BuildConfig.__doc__
    build(tyro.cli(BuildConfig, args=argv, prog="pmeta zoo build", description=description))


def build(config: BuildConfig) -> None:
    """Compile the network of the other package with what was learned here."""
    if config.model not in zoo.built():
        raise ValueError(
            f"the models that are built are {', '.join(zoo.built()) or 'none'}, got "
            f"{config.model!r}; all others come as they are."
        )
    card = zoo.card(config.model)
    make_folder(zoo.home(config.model))
    for file in card["files"]:
        path = zoo.home(config.model) / file["file"]
        trained = file["outputs"] == card["config"]["n_way"]
        made = export_run(config.model, classes=None if trained else file["outputs"])
        write_atomically(path, made.data)
        if not config.quiet:
            print(
                f"{path}: {len(made.data):,} bytes, up to {file['outputs']} classes in "
                f"{made.arena_bytes:,} bytes"
            )
    if not config.quiet:
        print(f"next: pmeta adapt {config.model} --support FOLDER")
