"""A network of the user's own: FILE.py:FUNCTION, which is run only where a command names it."""

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from pmeta.compiler.read_model import unreadable
from pmeta.network.layers import Network, evaluating

ARGUMENTS = ("classes", "image")
"""What the function may ask for: the number of classes, and (channels, height, width)."""
EXPECTED = "the network is FILE.py:FUNCTION or package.module:FUNCTION, as in my_model.py:make_net"


def make_model(spec: str, classes: int, image: tuple[int, ...], seed: int) -> nn.Module:
    """The network that the function makes, with weights drawn by `seed`.

    The function is called with those of the arguments `classes` and `image` that it has."""
    function = _function(spec)
    asked = {name for name in inspect.signature(function).parameters if name in ARGUMENTS}
    given = {"classes": classes, "image": image}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = function(**{name: given[name] for name in asked})
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"{spec} must return an nn.Module, got {type(model).__name__}: return the network."
        )
    return model


def _function(spec: str) -> Callable[..., Any]:
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise ValueError(f"{EXPECTED}, got {spec!r}.")
    function = getattr(_module(where, spec), name, None)
    if not callable(function):
        raise ValueError(f"{where} has no function {name}: {EXPECTED}, got {spec!r}.")
    needed = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    strange = [name for name in needed if name not in ARGUMENTS]
    if strange:
        raise ValueError(
            f"{spec} may ask for {' and '.join(ARGUMENTS)}, but it needs {', '.join(strange)}: "
            "give these a default."
        )
    return function


def _module(where: str, spec: str) -> ModuleType:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ValueError(f"{EXPECTED}, got {spec!r} ({error}).") from None
    path = Path(where)
    if not path.is_file():
        raise ValueError(f"{EXPECTED}; there is no file {where}.")
    name = f"pmeta_own_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


def check_outputs(net: Network, spec: str, n_way: int) -> None:
    """Raise ValueError unless the network gives a number for each class."""
    y = net.ops[-1].y
    if len(y) != 1 or y[0] < n_way:
        raise ValueError(
            f"a network for {n_way}-way tasks gives {n_way} numbers for a sample, {spec} gives "
            f"{'x'.join(map(str, y))}: let its function take `classes`, or choose another --n-way."
        )


def check_device(model: nn.Module, example: torch.Tensor, otherwise: str) -> None:
    """Raise ValueError with all that the device cannot run; `otherwise` is another way out."""
    with evaluating(model):
        refusals = _summed_up(unreadable(model, example))
    if refusals:
        lines = "".join(f"\n- {line}" for line in refusals)
        raise ValueError(
            f"the device cannot run this model:{lines}\nReplace these, or {otherwise}."
        )


def _summed_up(reasons: list[str]) -> list[str]:
    """Reasons one by one, but the operations that the device does not know in one."""
    calls: dict[str, list[str]] = {}
    others, known = [], ""
    for reason in reasons:
        match = re.match(r"the device runs (.*), but the model calls (\w+) \((\w+)\)", reason)
        if match:
            known = match[1]
            calls.setdefault(match[2], []).append(match[3])
        else:
            others.append(reason)
    if not calls:
        return others
    listed = ", ".join(f"{name} ({', '.join(at)})" for name, at in calls.items())
    return [f"it calls {listed}; the device runs {known}.", *others]
