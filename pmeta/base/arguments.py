"""argparse whose mistakes are told like all others, for commands that must start quickly."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Raises ValueError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help).")
