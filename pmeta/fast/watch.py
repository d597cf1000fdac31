"""What Python code reads besides its arguments, watched: a record holds while it is all the same.

A model or a loss may read attributes, closures and globals, which become part of a record. The key
of a `Watch` is another number whenever one of them is another, and None where the code reads what
cannot be watched (a clock, Python's random numbers, an iterator): it is computed, never replayed.
Tensors are part of a record as they are, so that a record sees what is written to one.
"""

import dis
import functools
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = frozenset(
    (
        *(type(None), bool, int, float, complex, str, bytes, range, type(...), torch.dtype),
        *(torch.device, torch.Size, torch.memory_format, torch.layout),
    )
)
CONTAINERS = (tuple, list, dict, set, frozenset)
PURE = frozenset(
    (
        *("torch", "math", "cmath", "operator", "functools", "typing", "collections"),
        *("builtins", "enum", "abc", "dataclasses", "types", "__future__"),
    )
)
"""Modules whose functions give the same for the same; torch's random numbers are operations."""
OURS = ("pmeta.fast.", "pmeta.network.", "pmeta.method.")
"""Code of this package that reads nothing but its arguments and attributes."""
READERS = frozenset(("open", "input", "id", "globals", "locals", "vars", "eval", "exec"))
"""Builtins that may read anything."""
MOST = 10_000
"""Places; a model or a loss that reads more is computed."""
MOST_STATES = 64
"""What is in another state again and again is computed from then on."""
LEFT_OUT = ("_parameters", "_state_dict", "_load_state_dict", "_non_persistent")
"""Attributes of a module that a forward pass does not read; its weights come from outside."""
Place = tuple[Mapping[Any, Any], Any]
"""A dictionary and a name in it."""


class UnwatchableError(Exception):
    """The code reads something that has no name to look it up by."""


class Watch:
    """All that a model and a function may read."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]):
        self._roots: tuple[Any, ...] = (model, function)
        self._numbers: dict[Hashable, int] = {}
        self._held: dict[int, Any] = {}  # so that an id stays that of one thing
        self._walk: _Walk | None = None
        self._last: Hashable = None
        self._key: int | None = None

    def key(self) -> int | None:
        """The number of the state that all is in now, or None where that cannot be told."""
        if len(self._numbers) > MOST_STATES:
            return None
        now = self._walk and self._walk.read()
        if now is None or now != self._last:  # something new may read other things: look anew
            self._look()
        return self._key

    def _look(self) -> None:
        self._walk, self._key = _Walk(), None
        try:
            for root in self._roots:
                self._walk.visit(root)
        except UnwatchableError:
            self._walk = None
            return
        self._last = self._walk.read()
        self._key = self._numbers.setdefault(self._last, len(self._numbers))
        self._held |= {i: v for i, v in self._walk.seen.items() if not isinstance(v, CONTAINERS)}


class _Walk:
    """Where values are that code reads, found by going through all that it can name."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.cells: list[types.CellType] = []
        self.sizes: list[dict[str, Any]] = []
        self.seen: dict[int, Any] = {}

    def read(self) -> Hashable:
        """The values at all places; quick, since every task asks."""
        values = [d.get(name) for d, name in self.places]
        values += [_contents(cell) for cell in self.cells]
        values += map(len, self.sizes)  # an attribute that is new
        state = torch.get_default_dtype(), torch.is_autocast_enabled("cpu")
        return (*state, *map(type, values), *[v if type(v) in PLAIN else _told(v) for v in values])

    def visit(self, value: Any) -> None:
        """Note the places that are read through a value."""
        if type(value) in PLAIN or isinstance(value, Tensor) or id(value) in self.seen:
            return
        self.seen[id(value)] = value
        if len(self.places) > MOST:
            raise UnwatchableError("too many places")
        if isinstance(value, CONTAINERS):
            self.see({"": value}, "")
        elif isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif isinstance(value, type):
            self._visit_class(value)
        else:
            self._visit_object(value)

    def see(self, where: Mapping[Any, Any], name: Any) -> None:
        """Note one place, and what is read through its value."""
        self.places.append((where, name))
        value = where[name]
        if isinstance(value, CONTAINERS):
            for part in [*value, *value.values()] if isinstance(value, dict) else value:
                self.visit(part)
        else:
            self.visit(value)

    def _visit_object(self, value: Any) -> None:
        if isinstance(value, functools.partial):
            self.visit((value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.visit((value.__self__, value.__func__))
        elif isinstance(value, staticmethod | classmethod):
            self.visit(value.__func__)
        elif isinstance(value, property | functools.cached_property):
            inner = (getattr(value, name, None) for name in ("fget", "fset", "func"))
            self.visit(tuple(inner))
        elif isinstance(value, types.BuiltinFunctionType):  # or a method of a builtin object
            if not isinstance(value.__self__, types.ModuleType | None):
                self.visit(value.__self__)
            elif not _is_pure(value.__module__ or ""):
                raise UnwatchableError(value.__name__)
        elif hasattr(value, "__dict__"):
            self._visit_attributes(value)
        elif not isinstance(value, weakref.ref) and not (
            callable(value) and _is_pure(type(value).__module__)
        ):
            raise UnwatchableError(type(value).__name__)

    def _visit_attributes(self, value: Any) -> None:
        own = vars(value)
        for name in list(own):
            if not (isinstance(value, nn.Module) and name.startswith(LEFT_OUT)):
                self.see(own, name)
        self.sizes.append(own)
        self.visit(type(value))

    def _visit_class(self, cls: type) -> None:
        for base in cls.__mro__:
            if not _is_pure(base.__module__):
                for name, part in list(vars(base).items()):
                    if isinstance(part, types.MemberDescriptorType):
                        raise UnwatchableError(f"{cls.__name__} has __slots__")
                    if name == "__call__" or not (name.startswith(("__", "_abc"))):
                        self.see(vars(base), name)

    def _visit_function(self, f: types.FunctionType) -> None:
        self.visit((f.__defaults__, f.__kwdefaults__, f.__dict__))
        for cell in f.__closure__ or ():
            self.cells.append(cell)
            self.visit(_contents(cell))
        if _is_pure(f.__module__ or ""):
            return
        for code in _codes(f.__code__):
            read, attributes, imported = _names(code)
            if not all(map(_is_pure, imported)):
                raise UnwatchableError("an import")
            for name in read:
                if name in f.__globals__:
                    self._see_global(f.__globals__, name, attributes)
                elif name in READERS:
                    raise UnwatchableError(name)

    def _see_global(self, where: dict[str, Any], name: str, attributes: frozenset[str]) -> None:
        """A global; of a module of the user's, what the code may read in it."""
        module = where[name]
        if not isinstance(module, types.ModuleType):
            self.see(where, name)
            return
        self.places.append((where, name))
        if _is_pure(module.__name__):
            return
        is_foreign = "site-packages" in (getattr(module, "__file__", None) or "site-packages")
        if is_foreign or module.__name__.partition(".")[0] in sys.stdlib_module_names:
            raise UnwatchableError(module.__name__)
        for inner in attributes:
            if inner in vars(module) and id(module) not in self.seen:
                self.see(vars(module), inner)


def _is_pure(module: str) -> bool:
    return module.partition(".")[0] in PURE or module.startswith(OURS)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@functools.cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The globals, the attributes and the imports in a piece of code."""
    steps = [(step.opname, str(step.argval)) for step in dis.get_instructions(code)]

    def named(*kinds: str) -> frozenset[str]:
        return frozenset(name for kind, name in steps if kind in kinds)

    return (
        named("LOAD_GLOBAL", "LOAD_NAME"),
        named("LOAD_ATTR", "LOAD_METHOD"),
        named("IMPORT_NAME"),
    )


def _told(value: Any) -> Hashable:
    """What tells a value apart: that of containers is in what they hold."""
    if type(value) in PLAIN:
        return type(value), value
    if isinstance(value, dict):
        return tuple([(_told(k), _told(v)) for k, v in value.items()])
    if isinstance(value, list | tuple):
        return tuple(map(_told, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(_told, value))
    return id(value)
