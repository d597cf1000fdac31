"""Where the time of a training task goes, and how far each part is from what the machine can do.

    OMP_NUM_THREADS=1 python benchmarks/task_profile.py [--shots 5] [--method pmeta]

One task of 4Conv as `pmeta train` runs it, on one core: a task is recorded, and each operation of
the record is timed while it is replayed, the least of several times. The peaks are measured in the
same run: multiply-adds on vectors in registers, and bytes read and written by a copy of 64 MB,
which caches may exceed. `at the peaks` is what a part would take if it reached the peak that is
further away; products are counted as Winograd's algorithm has them, transforms not at all.
"""

import ctypes
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.base.native import compile_library
from pmeta.fast import conv_c, norm_pool_c, replay
from pmeta.fast.library import lanes
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.method.outer import Outer, Schedule
from pmeta.network.backbones import FourConv
from pmeta.network.take_in import take_in
from pmeta.training.workers import keep_freed_memory

WAYS, QUERIES, STEPS, ALPHA = 5, 15, 5, 0.01
IMAGE = (3, 84, 84)
PEAK = """
typedef float vec __attribute__((vector_size(4 * LANES)));
float peak(long n) {
    vec a[12], f = (vec){0} + .99f;
    for (int i = 0; i < 12; i++) a[i] = f * (float)i;
    for (long k = 0; k < n; k++)
        for (int i = 0; i < 12; i++) a[i] = a[i] * f + f;
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += a[i][0];
    return sum;
}
"""


@dataclass
class Part:
    """Operations of one kind."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    products: int = 0
    bytes: int = 0

    def row(self, total: float, products: float, bytes_: float) -> str:
        least = 1e3 * max(self.products / products, self.bytes / bytes_)
        rates = [f"{n / self.seconds / 1e9:.1f}" if n else "" for n in (self.products, self.bytes)]
        cells = [self.name, self.calls or "", f"{1e3 * self.seconds:.1f}"]
        cells += [f"{self.seconds / total:.0%}", *rates, f"{least:.1f}" if least else ""]
        return f"| {' | '.join(map(str, cells))} |"


def seconds(work: Callable[[], Any], times: int) -> float:
    """The least of the processor's seconds."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def peaks() -> tuple[float, float]:
    """Multiply-adds a second, and bytes a second."""
    with tempfile.TemporaryDirectory() as folder:
        source, n = Path(folder) / "peak.c", 10**7
        source.write_text(PEAK)
        flags = ("-O3", "-funroll-loops", "-march=native", "-fPIC", f"-DLANES={lanes()}")
        library = ctypes.CDLL(str(compile_library(Path(folder) / "peak.so", [source], flags)))
        products = 12 * lanes() * n / seconds(lambda: library.peak(ctypes.c_long(n)), 5)
    a = torch.ones(2**24)
    b = torch.empty_like(a)
    return products, 2 * a.nbytes / seconds(lambda: b.copy_(a), 20)


def name_of(f: Any, args: tuple[Any, ...]) -> str:
    """The part that an operation belongs to."""
    module, name = getattr(f, "__module__", ""), getattr(f, "__name__", str(f))
    if module == conv_c.__name__:
        return f"{'first' if conv_c.is_thin(args[-1]) else 'other'} convs: {name.replace('_', ' ')}"
    if module == norm_pool_c.__name__:
        return f"norm and pool: {name}"
    return "fc" if name.split(".")[0] in ("mm", "addmm") else "elementwise, sums, copies"


def products_of(f: Any, args: tuple[Any, ...]) -> int:
    if getattr(f, "__module__", "") != conv_c.__name__:
        return 0
    (b, _, height, width), w = args[0].shape, args[-1]
    if conv_c.is_thin(w):
        return b * height * width * w.numel()
    return b * -(-height // 3) * -(-width // 3) * conv_c.PLACES * w.shape[0] * w.shape[1]


class Timed(fx.Interpreter):
    """A record whose operations are timed while it is replayed."""

    def __init__(self, module: fx.GraphModule):
        super().__init__(module)
        self.found: dict[fx.Node, Part] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        start = time.process_time()
        result = n.target(*args, **kwargs)  # type: ignore[operator]
        spent = time.process_time() - start
        if n not in self.found:
            name, products = name_of(n.target, args), products_of(n.target, args)
            self.found[n] = Part(name, 1, spent, products, bytes_of(args, result))
        self.found[n].seconds = min(self.found[n].seconds, spent)
        return result


def bytes_of(args: Any, result: Any) -> int:
    """Of what is read and written; nothing where the result is a view."""
    read, written = ([t for t in tree_leaves(v) if isinstance(t, Tensor)] for v in (args, result))
    memories = {t.untyped_storage().data_ptr() for t in read}
    if any(t.untyped_storage().data_ptr() in memories for t in written):
        return 0
    return sum(t.nbytes for t in (*read, *written))


def main(shots: int = 1, method: str = "maml", tasks: int = 10) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    keep_freed_memory()
    replay.AFTER = 1
    net, generator = take_in(FourConv(WAYS, IMAGE), torch.zeros(1, *IMAGE)), torch.Generator()
    meta = init_meta(net, METHODS[method], STEPS, ALPHA, generator.manual_seed(0))
    outer = Outer(InnerLoop(net, METHODS[method], second_order=True), meta, Schedule(100))
    n = WAYS * shots
    x = torch.rand(n + WAYS * QUERIES, *IMAGE, generator=generator)
    y = torch.arange(WAYS).repeat(shots + QUERIES)
    task = x[:n], y[:n], x[n:], y[n:]
    found = outer.gradient([task], [0], 0)
    for _ in range(2):  # one is recorded, one is compared
        outer.gradient([task], [0], 0)
    whole = seconds(lambda: outer.gradient([task], [0], 0), tasks)
    adam = seconds(lambda: outer.update(found), tasks)
    (record,) = outer.gradients.replays.records.values()
    assert record is not None, "the task could not be replayed"
    timed = Timed(record.module)
    record.module = timed.run  # type: ignore[assignment]
    for _ in range(tasks):
        outer.gradient([task], [0], 0)
    parts: dict[str, Part] = {}
    for one in timed.found.values():
        part = parts.setdefault(one.name, Part(one.name))
        for field in ("calls", "seconds", "products", "bytes"):
            setattr(part, field, getattr(part, field) + getattr(one, field))
    rest = Part("Python and what lies between", 0, whole - sum(p.seconds for p in parts.values()))
    products, bytes_ = peaks()
    print(f"{method}, {shots} shots, {lanes()} lanes: {1e3 * whole:.0f} ms a task; ", end="")
    print(f"peaks: {products / 1e9:.1f} G multiply-adds/s, {bytes_ / 1e9:.1f} GB/s")
    print("| part | calls | ms | share | G multiply-adds/s | GB/s | ms at the peaks |")
    print("|---|---|---|---|---|---|---|")
    rows = sorted(parts.values(), key=lambda p: -p.seconds)
    for part in [*rows, rest, Part("optimiser, once a batch of tasks", 0, adam)]:
        print(part.row(whole, products, bytes_))


if __name__ == "__main__":
    tyro.cli(main)
