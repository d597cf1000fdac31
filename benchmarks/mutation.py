"""Mutation testing of the engine's checks: how many small mistakes the tests of the engine notice.

    python benchmarks/mutation.py [--sample N] [--seed S] [--only open.c:120]

One place of open.c, operands.c or run.c is changed at a time: a comparison, a sum, a constant, a
condition that is left out, a return. The engine is compiled with it under AddressSanitizer and
UBSan, and killed by the first of: the compiler; short runs of the fuzzer; the gradients
against finite differences; the hand-made files of tests/device/test_engine_files.py. Prints the
mutants that live, to be looked at, and the score.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import device
from pmeta.base import native

HERE = Path(__file__).parent.parent
PROGRAMS = HERE / "tests" / "device" / "c"
FILES = ("open.c", "operands.c", "run.c")
FLAGS = ["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MODELS = (("signal", 2), ("depthwise-12", 1), ("squeeze", 1))
RULES = (  # what is found, and what takes its place
    (r" <= ", " < "), (r" >= ", " > "), (r"(?<![-<]) > ", " >= "), (r" < ", " <= "),
    (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
    (r"(?<=[\w)\]]) \+ ", " - "), (r"(?<=[\w)\]]) - ", " + "), (r"(?<=[\w)]) \* (?=[\w(])", " + "),
    (r" / ", " * "), (r" % ", " / "), (r"(?<=[ (])1(?=[ ;)])", "2"), (r"return 0;", "return 1;"),
    (r"(?<=if \()!", ""), (r"\(rounds - 1\)", "(rounds - 1) / 2"), (r"state_bytes", "arena_bytes"),
)  # fmt: skip


class Mutant(NamedTuple):
    file: str
    line: int
    old: str
    new: str
    text: str
    """The whole file."""


def mutants() -> Iterator[Mutant]:
    """All of them, in the order of the files; comments and messages are left alone."""
    for name in FILES:
        text = (device.ENGINE / name).read_text()
        for number, line in enumerate(text.split("\n")):
            code = re.sub(r"/\*.*|\".*?\"", lambda m: " " * len(m[0]), line)
            is_label = "case PMETA_" in line and "return" not in line
            if line.startswith((" *", "#", "/*")) or is_label:
                continue
            for rule, new in RULES:
                for found in re.finditer(rule, code):
                    changed = line[: found.start()] + new + line[found.end() :]
                    lines = text.split("\n")
                    lines[number] = changed
                    yield Mutant(name, number + 1, line.strip(), changed.strip(), "\n".join(lines))


class Bench:
    """The engine compiled once, and what the unchanged one says."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.models = [folder / f"{kind}-{batch}" for kind, batch in MODELS]
        self._write_models()
        self.objects = {}
        for source in native.sources(device.ENGINE):
            self.objects[source.name] = self._compiled(source, folder / f"{source.stem}.o")
        for name in ("fuzz", "gradients"):
            self.objects[f"{name}.c"] = self._compiled(PROGRAMS / f"{name}.c", folder / f"{name}.o")

    def _write_models(self) -> None:
        from tests.helpers.device_models import case

        for (kind, batch), path in zip(MODELS, self.models, strict=True):
            raw = kind == "depthwise-12"
            path.write_bytes(case(kind, "pmeta", seed=22, raw=raw, batch=batch).exported.data)

    def _compiled(self, source: Path, target: Path) -> Path:
        include = [f"-I{device.ENGINE}", f"-I{PROGRAMS}", "-fPIC", "-w"]
        command = [native.compiler(), *FLAGS, *include, "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True, capture_output=True)
        return target

    def killed_by(self, m: Mutant) -> str:
        """Which of the tests notices a mutant; empty: none."""
        changed = self.folder / m.file
        changed.write_text(m.text)
        try:
            new = self._compiled(changed, self.folder / "mutant.o")
        except subprocess.CalledProcessError:
            return "compiler"
        engine = {p.name for p in native.sources(device.ENGINE)}
        objects = [str(new if n == m.file else self.objects[n]) for n in sorted(engine)]
        fuzz = self._linked("fuzz", objects)
        for i, path in enumerate(self.models):
            if self._fails([str(fuzz), str(path), "1500", "60", str(1 + i)]):
                return "fuzzer"
        if self._fails([str(self._linked("gradients", objects))]):
            return "gradients"
        return "files" if self._files_fail(m) else ""

    def _linked(self, program: str, objects: list[str]) -> Path:
        target = self.folder / program
        parts = [str(self.objects[f"{program}.c"]), *objects]
        subprocess.run([native.compiler(), *FLAGS, "-o", str(target), *parts, "-lm"], check=True)
        return target

    def _fails(self, command: list[str]) -> bool:
        try:
            return subprocess.run(command, capture_output=True, timeout=120).returncode != 0
        except subprocess.TimeoutExpired:
            return True

    def _files_fail(self, m: Mutant) -> bool:
        """The tests in Python, with an engine that is compiled anew."""
        sources = [p for p in native.sources(device.ENGINE) if p.name != m.file]
        library = self.folder / "mutant.so"
        flags = ("-std=c99", "-O1", "-fPIC", f"-I{device.ENGINE}", "-w")
        native.compile_library(library, [*sources, self.folder / m.file], flags)
        code = (
            "import sys, pytest\nfrom pathlib import Path\n"
            "from pmeta.device import binding, calls\n"
            "lib = calls.library(Path(sys.argv[1]))\nbinding.library = lambda: lib\n"
            "sys.exit(pytest.main(['-qx', '-p', 'no:cacheprovider', *sys.argv[2:]]))\n"
        )
        tests = [f"tests/device/{name}.py" for name in ("test_engine_files", "test_running")]
        env = {**os.environ, "PYTHONPATH": str(HERE)}
        command = [sys.executable, "-c", code, str(library), *tests]
        done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, timeout=600)
        return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sample", type=int, default=0, help="so many, drawn at random (0: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="FILE:LINE")
    args = parser.parse_args()
    chosen = [m for m in mutants() if args.only in ("", f"{m.file}:{m.line}")]
    if args.sample:
        chosen = random.Random(args.seed).sample(chosen, min(args.sample, len(chosen)))
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for i, mutant in enumerate(chosen, start=1):
            by = bench.killed_by(mutant)
            killed += bool(by)
            if not by:
                print(f"lives: {mutant.file}:{mutant.line}\n  {mutant.old}\n  {mutant.new}")
            print(f"{killed} of {i} killed ({by})", flush=True)
    print(f"score {100 * killed / max(len(chosen), 1):.1f} % of {len(chosen)}")


if __name__ == "__main__":
    main()
