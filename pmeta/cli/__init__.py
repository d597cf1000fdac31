"""The command `pmeta`: finds the subcommand and imports it alone, so that each starts fast."""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from pmeta.base.errors import WorkerDiedError, for_user, how_to_install, own_version
from pmeta.base.terminal import printable

# name: (module below pmeta.cli, whose main takes the arguments and may return an exit code, help)
COMMANDS = {
    "quickstart": (
        "quickstart",
        "train and compare all methods on embedded data in three minutes",
    ),
    "train": ("train", "meta-train a network, or go on where a run was stopped"),
    "evaluate": ("evaluate", "adapt a trained model to unseen tasks: accuracy, memory, MACs"),
    "calibrate": ("calibrate", "fit how sure a trained model may be; pmeta train ends with it"),
    "export": ("export", "write a trained model as one file for the device"),
    "adapt": ("device.adapt", "adapt an exported model to a few samples, without torch"),
    "predict": ("device.predict", "classify pictures with an adapted model, without torch"),
    "firmware": ("device.firmware", "a folder that builds a model for a board"),
    "page": ("device.page", "one HTML page in which a model is taught with pictures"),
    "zoo": ("zoo", "the trained models that come with the package"),
    "data": ("data", "take in a published data set, or look at one"),
    "reproduce": ("reproduce", "the paper's tables and figure 5, ours beside the paper's"),
    "report": ("report", "one HTML page with pictures of runs and results"),
    "cost": ("cost", "memory and computation of adapting a backbone, before anything is trained"),
}
TRAINING = ("torch", "safetensors", "matplotlib", "jinja2")
"""Packages that a device does without."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit code: 0, 2 for a mistake of the user's, 130 after
    Ctrl-C, 1 for the rest."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # names of files may hold what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader (head, less) has left; Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if not for_user(error):
            raise
        print(f"pmeta: error: {printable(error, lines=True)}", file=sys.stderr)
        return 1 if isinstance(error, WorkerDiedError) else 2


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"pmeta {own_version() or '(not installed, run from its sources)'}")
        return 0
    if argv[0] not in COMMANDS:
        raise ValueError(
            f"the commands are {', '.join(COMMANDS)}, got {argv[0]!r}: see pmeta --help."
        )
    try:
        return import_module(f"pmeta.cli.{COMMANDS[argv[0]][0]}").main(argv[1:]) or 0
    except ModuleNotFoundError as error:
        if error.name not in TRAINING:
            raise
        raise ValueError(
            f"pmeta {argv[0]} needs {error.name}, which is not installed: "
            f"{how_to_install('train')}."
        ) from None


def usage() -> str:
    """The help of `pmeta` itself."""
    lines = [f"  {name:<12}{line}" for name, (_, line) in COMMANDS.items()]
    head = ["usage: pmeta COMMAND [options]", "", "p-Meta: few-shot adaptation on a small device."]
    end = "pmeta COMMAND --help shows the options of one; pmeta --version the version."
    return "\n".join([*head, "", "commands:", *lines, "", end])
