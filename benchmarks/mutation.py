"""Mutation testing of the engine's checks: how many small mistakes the tests of the engine notice.

    python benchmarks/mutation.py [--sample N] [--seed S] [--only open.c:120]

One place of the files that open and run a model (FILES) is changed at a time: a comparison, a sum,
a constant, a condition that is left out, a return. The engine is compiled with it, and killed by
the first of: the compiler; a test in tests/device that fails, crashes or hangs; the runs of the
fuzzer that are part of the tests, under AddressSanitizer and UBSan. All of them are tests that
`make test` runs; of those that only open files, the files are noted once and opened again without
pytest.
A mutant that nothing can notice is listed in equivalent_mutants.json, with the reason, and does
not count. Prints the mutants that live and the score.

Python, torch and the exported models of the tests are loaded once; each mutant gets a copy of that
process (fork).
"""

import argparse
import functools
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import zip_longest
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import device
from pmeta.base import native
from pmeta.device import binding, calls
from tests.helpers import device_files, device_models

HERE = Path(__file__).parent.parent
PROGRAMS = HERE / "tests" / "device" / "c"
FILES = ("open.c", "operands.c", "work.c", "run.c", "execute.c")
SOURCES = (".c", ".h", ".py")
ALIVE = "nothing"
"""What killed a mutant that lives."""
EQUIVALENT = Path(__file__).parent / "equivalent_mutants.json"
PLAIN = ("-std=c99", "-O1", "-fPIC", "-w")
MUTANT = ("-std=c99", "-O0", "-fPIC", "-w")
SANITIZED = (
    *("-std=c99", "-O1", "-g", "-w"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
FAST = (
    *("test_calls.py", "limits", "test_engine_files.py", "test_running.py", "test_prototypes.py"),
    *("test_binding.py", "test_slots.py"),
)
NOT_OPENING = ("test_calls.py", "limits/test_adaptation.py", *FAST[2:])
"""The same without those that only open files."""
SLOW = ("test_memory_passes.py", "test_constants.py", "test_stream.py", "test_golden.py")
LEFT_OUT = (  # they compile an engine of their own, or have no part of these files in them
    *("ctrl_c", "release_build", "struct_of_python", "version_is"),
    *("power_fails", "wrong_save", "cut_anywhere"),
    *("100_tasks", "deep_network", "spoiled_drawings", "rule_for_steps", "a_little_wrong"),
)
SECONDS = {"open": 3, "fast": 20, "slow": 120, "fuzz": 60}
"""Of processor that files, tests and fuzzer may take with a mutant; unchanged they take a fifth."""
RULES = (  # what is found, and what takes its place
    (r" <= ", " < "), (r" >= ", " > "), (r"(?<![-<]) > ", " >= "), (r" < ", " <= "),
    (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
    (r"(?<=[\w)\]]) \+ ", " - "), (r"(?<=[\w)\]]) - ", " + "), (r"(?<=[\w)]) \* (?=[\w(])", " + "),
    (r" / ", " * "), (r" % ", " / "), (r"(?<=[ (])1(?=[ ;)])", "2"), (r"return 0;", "return 1;"),
    (r"(?<=if \()!", ""), (r"\(rounds - 1\)", "(rounds - 1) / 2"), (r"state_bytes", "arena_bytes"),
    (r"(?<= if \()", "1 ? 0 : "),
)  # fmt: skip


class Mutant(NamedTuple):
    file: str
    line: int
    old: str
    new: str
    text: str
    """The whole file."""

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}: {self.new}"


def mutants() -> Iterator[Mutant]:
    """All of them, in the order of the files; comments and messages are left alone."""
    for name in FILES:
        lines = (device.ENGINE / name).read_text().split("\n")
        for number, line in enumerate(lines):
            code = re.sub(r"/\*.*|\".*?\"", lambda m: " " * len(m[0]), line)
            is_label = "case PMETA_" in line and "return" not in line
            if line.startswith((" *", "#", "/*")) or is_label:
                continue
            for rule, new in RULES:
                for found in re.finditer(rule, code):
                    changed = line[: found.start()] + new + line[found.end() :]
                    text = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
                    yield Mutant(name, number + 1, line.strip(), changed.strip(), text)


class Tests:
    """A plugin of pytest that collects tests once and runs them as often as it is asked to."""

    def __init__(self, then: Callable[["Tests"], None]):
        self.then = then
        self.items: list[pytest.Item] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = session.items
        self.then(self)
        return True

    def failure(self, files: tuple[str, ...]) -> str:
        """The first test of some files of tests/device that fails; empty: none."""
        chosen = [item for f in files for item in self.items if f in item.nodeid]
        for item, following in zip_longest(chosen, chosen[1:]):
            item._initrequest()  # type: ignore[union-attr]
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                return item.nodeid.removeprefix("tests/device/")
        return ""


def collected(then: Callable[[Tests], None]) -> None:
    """Collect the tests of FAST and SLOW, then go on with them."""
    unwanted = " or ".join(LEFT_OUT)
    options = ["-qs", "-p", "no:cacheprovider", "-k", f"not ({unwanted})"]
    tests = Tests(then)
    pytest.main([*options, *(f"tests/device/{name}" for name in (*FAST, *SLOW))], plugins=[tests])
    if not tests.items:
        raise SystemExit("no tests were collected")


def in_a_copy(f: Callable[[], str]) -> str:
    """What f says in a copy of this process, whose output is thrown away; or how the copy ended."""
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inside)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        try:
            os.write(outside, f().encode()[:4000])
        finally:
            os._exit(0)
    os.close(outside)
    with os.fdopen(inside, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        stopped = os.WTERMSIG(status) == signal.SIGXCPU
        return "no end" if stopped else f"signal {os.WTERMSIG(status)}"
    return said


def allow(seconds: int) -> None:
    """This process ends when it has taken so many seconds of processor more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


class Bench:
    """The unchanged engine in object files, and the tests loaded."""

    def __init__(self, folder: Path, tests: Tests):
        self.folder, self.tests = folder, tests
        self.plain = self._objects(PLAIN, folder / "plain")
        self._load_tests()

    def _objects(self, flags: tuple[str, ...], folder: Path) -> dict[str, Path]:
        folder.mkdir()
        made = {
            source.name: folder / f"{source.stem}.o" for source in native.sources(device.ENGINE)
        }
        for name, target in made.items():
            self._compile(flags, device.ENGINE / name, target)
        return made

    def _compile(self, flags: tuple[str, ...], source: Path, target: Path) -> None:
        include = (f"-I{device.ENGINE}", f"-I{PROGRAMS}")
        command = [native.compiler(), *flags, *include, "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True, capture_output=True)

    def _link(self, flags: tuple[str, ...], objects: dict[str, Path], target: Path) -> Path:
        parts = map(str, objects.values())
        subprocess.run([native.compiler(), *flags, "-o", str(target), *parts, "-lm"], check=True)
        return target

    def _load_tests(self) -> None:
        """Run all tests once, unchanged: they must hold, and leave their models in memory."""
        self._use(self._link((*PLAIN, "-shared"), self.plain, self.folder / "unchanged.so"))
        from tests.device.test_engine import HOSTILE, HOSTILE_FILES, hostile

        self.fuzzed = []
        for kind, batch in HOSTILE:
            path = self.folder / f"{kind}-{batch}"
            path.write_bytes(hostile(kind, batch))
            self.fuzzed.append([str(path), *map(str, HOSTILE_FILES)])
        if failed := self.tests.failure(FAST):
            raise SystemExit(f"the unchanged engine fails {failed}")

    def _answers_differ(self) -> str:
        """The questions of tests/device/limits once more, without pytest."""
        for number, ((f, data), answer) in enumerate(ASKED.items()):
            try:
                if f(data) != answer:
                    return f"limits::file {number}"
            except AssertionError:
                return f"limits::file {number}"
        return ""

    def _use(self, built: Path) -> None:
        lib = calls.library(built)
        binding.library = lambda: lib  # type: ignore[assignment]

    def _built(self, m: Mutant) -> Path | None:
        """The engine with a mutant in it, or None: the compiler refuses it."""
        changed, new = self.folder / m.file, self.folder / "mutant.o"
        changed.write_text(m.text)
        try:
            self._compile(MUTANT, changed, new)
        except subprocess.CalledProcessError:
            return None
        objects = {**self.plain, m.file: new}
        return self._link((*PLAIN, "-shared"), objects, self.folder / "mutant.so")

    def killed_soon(self, m: Mutant) -> str:
        """Which of the fast tests notices a mutant; empty: none."""
        if (built := self._built(m)) is None:
            return "compiler"

        def fast() -> str:
            self._use(built)
            allow(SECONDS["open"])
            if differs := self._answers_differ():
                return differs
            allow(SECONDS["fast"])
            return self.tests.failure(NOT_OPENING)

        return in_a_copy(fast)

    def killed_late(self, m: Mutant) -> str:
        """Which of the others does: the fuzzer and the slow tests."""
        built = self._built(m)
        assert built

        def slow() -> str:
            self._use(built)
            allow(SECONDS["slow"])
            return self.tests.failure(SLOW)

        return self._fuzzed(m) or in_a_copy(slow)

    @functools.cached_property
    def _sanitized(self) -> dict[str, Path]:
        """The unchanged engine and the fuzzer."""
        objects = self._objects(SANITIZED, self.folder / "sanitized")
        objects["fuzz.c"] = self.folder / "fuzz.o"
        self._compile(SANITIZED, PROGRAMS / "fuzz.c", objects["fuzz.c"])
        return objects

    def _fuzzed(self, m: Mutant) -> str:
        new = self.folder / "sanitized.o"
        self._compile(SANITIZED, self.folder / m.file, new)
        fuzz = self._link(SANITIZED, {**self._sanitized, m.file: new}, self.folder / "fuzz")
        for arguments in self.fuzzed:
            command = ["prlimit", f"--cpu={SECONDS['fuzz']}", str(fuzz), *arguments]
            if subprocess.run(command, capture_output=True).returncode:
                return "fuzzer"
        return ""


def remembered(f: Callable[..., Any]) -> Callable[..., Any]:
    """f with a memory, for arguments that can be a key."""
    cached = functools.cache(f)

    @functools.wraps(f)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return cached(*args, **more)
        except TypeError:
            return f(*args, **more)

    return call


ASKED: dict[tuple[Callable[[bytes], float], bytes], float] = {}
"""What the tests of tests/device/limits ask; each of them holds the answer."""


def noted(f: Callable[[bytes], float]) -> Callable[[bytes], float]:
    """f, whose questions and answers are kept."""

    def call(data: bytes) -> float:
        ASKED[f, data] = f(data)
        return ASKED[f, data]

    return call


def run(chosen: list[Mutant]) -> dict[str, str]:
    """What killed each mutant, by its name; empty: nothing."""
    killed: dict[str, str] = {}

    def each(tests: Tests) -> None:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), tests)
            for i, m in enumerate(chosen, start=1):
                killed[m.name] = by = bench.killed_soon(m) or bench.killed_late(m)
                print(f"{i} of {len(chosen)}, {m.name}: {by or ALIVE}", flush=True)

    device_models.case = remembered(device_models.case)
    device_files.opens = noted(device_files.opens)  # type: ignore[assignment]
    device_files.work = noted(device_files.work)  # type: ignore[assignment]
    collected(each)
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sample", type=int, default=0, help="so many, drawn at random (0: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="FILE:LINE")
    args = parser.parse_args()
    everything = list(mutants())
    chosen = [m for m in everything if args.only in ("", f"{m.file}:{m.line}", m.file)]
    if args.sample:
        chosen = random.Random(args.seed).sample(chosen, min(args.sample, len(chosen)))
    known = {(e["file"], e["old"], e["new"]) for e in json.loads(EQUIVALENT.read_text())}
    killed = run(chosen)
    alive = [m for m in chosen if not killed[m.name]]
    equivalent = [m for m in alive if (m.file, m.old, m.new) in known]
    for m in alive:
        if m not in equivalent:
            print(f"lives: {m.file}:{m.line}\n  {m.old}\n  {m.new}")
    for by, n in Counter(stage(killed[m.name]) for m in chosen).most_common():
        print(f"{n:5} {by}")
    dead, counted = len(chosen) - len(alive), len(chosen) - len(equivalent)
    low, high = interval(dead, max(counted, 1))
    print(
        f"{len(chosen)} of {len(everything)} mutants, {len(equivalent)} equivalent; {dead} of "
        f"{counted} killed: {100 * dead / max(counted, 1):.1f} % (95 % interval of the share of "
        f"all, by Wilson: {100 * low:.1f} to {100 * high:.1f} %)"
    )


def interval(k: int, n: int) -> tuple[float, float]:
    """Wilson's, of a share of which k of n were drawn.

    >>> [round(x, 3) for x in interval(95, 100)]
    [0.888, 0.978]
    """
    z = 1.96
    middle, width = (
        (k + z * z / 2) / (n + z * z),
        z * sqrt(k * (n - k) / n + z * z / 4) / (n + z * z),
    )
    return middle - width, middle + width


def stage(by: str) -> str:
    """The kind of a killer, to be counted."""
    return by.partition("::")[0] or ALIVE


if __name__ == "__main__":
    main()
