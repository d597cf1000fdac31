"""For tests of the commands that run on a device: a support set, a program without torch."""

import pytest

from pmeta import cli

NAMES = ["ant", "bee", "cat"]
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, *rest):
        heavy = "torch safetensors matplotlib scipy gymnasium mujoco tensorboard".split()
        if name.partition(".")[0] in heavy:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""A program that begins so can import nothing of the training."""


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert cli.main(["adapt", *map(str, argv)]) == 0
    return capsys.readouterr().out
