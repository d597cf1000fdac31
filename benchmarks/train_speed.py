"""How fast second-order meta-training is: ours beside the libraries people use for MAML.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install torch higher torchopt
    python benchmarks/train_speed.py --peers /tmp/peers/bin/python

A task is 4Conv on 84x84 images, 5 ways, 15 queries a class, 5 inner steps; the other libraries run
4Conv as it is usually written, ours the same network from `pmeta.network`. Ours runs as `pmeta
train` does, one process with one thread for each core; the others run as they come, one process
with a thread for each core. All are measured in turn several times, and every figure is the best of
its tasks. The time of a task on the processor (CPU s) depends less on what else the machine does
than tasks/s. Memory is the sum of the processes' peaks, in brackets that of one; then the same
above what importing torch takes.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
PEERS = ("torch", "higher", "torchopt", "learn2learn")
OURS = ("maml", "maml++", "pmeta")
WAYS, QUERIES, STEPS, ALPHA = 5, 15, 5, 0.01


def main() -> None:
    args = _arguments()
    if args.one:
        return print(json.dumps(measure(args)))
    print("| task | library | cores | tasks/s | CPU s a task | peak MB | above torch |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for shots in args.shots:
        for row in table(args, shots):
            print(row, flush=True)


def table(args: argparse.Namespace, shots: int) -> Iterator[str]:
    """The rows of one kind of task: all of them are measured in turn, `--rounds` times, and the
    best is kept."""
    kinds = [
        (cores, name)
        for cores in args.cores
        for name in [*OURS, "maml --not-replayed", "maml --recompute", *PEERS]
    ]
    best: dict[tuple[int, str], tuple[float, float]] = {}
    memory: dict[tuple[int, str], list[list[float]]] = {}
    for _ in range(args.rounds):
        for cores, name in kinds:
            ours = name.split()[0] in OURS
            python = sys.executable if ours or name == "torch" else args.peers
            if not python:
                continue
            processes, threads = (cores, 1) if ours else (1, cores)
            found = run(python, name, shots, args, processes, threads)
            if isinstance(found, str):
                print(f"{name} does not run here: {found}", file=sys.stderr)
                continue
            rate, cpu = sum(1 / f["wall"] for f in found), min(f["cpu"] for f in found)
            old = best.get((cores, name), (0.0, cpu))
            best[cores, name] = max(rate, old[0]), min(cpu, old[1])
            memory.setdefault((cores, name), []).append(
                [g(f[k] for f in found) for k in ("peak", "above") for g in (sum, max)]
            )
    for (cores, name), (rate, cpu) in best.items():
        total, one, above, one_above = (
            max(column) for column in zip(*memory[cores, name], strict=True)
        )
        yield (
            f"| {WAYS}-way {shots}-shot | {name} | {cores} | {rate:.2f} | {cpu:.2f} | {total:.0f} "
            f"({one:.0f}) | {above:.0f} ({one_above:.0f}) |"
        )


def run(
    python: str,
    name: str,
    shots: int,
    args: argparse.Namespace,
    processes: int,
    threads: int,
) -> list[dict] | str:
    """Start the processes of one row at the same time; what each of them measured, or why it
    failed."""
    command = [python, __file__, "--one", *name.split()]
    command += ["--shots", str(shots), "--threads", str(threads)]
    command += ["--tasks", str(args.tasks), "--size", str(args.size)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    started = [
        subprocess.Popen(command, env=env, stdout=-1, stderr=-1, text=True)
        for _ in range(processes)
    ]
    outputs = [p.communicate() for p in started]
    if any(p.returncode for p in started):
        return next(err for _, err in outputs if err).strip().splitlines()[-1]
    return [json.loads(out) for out, _ in outputs]


def measure(args: argparse.Namespace) -> dict[str, float]:
    """The least seconds of a task on the clock and on the processor, and this process's peak memory
    in MB, also above torch."""
    import resource

    import torch

    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(0)
    samples, n = args.shots[0] + QUERIES, WAYS * args.shots[0]
    x = torch.rand(WAYS * samples, 3, args.size, args.size, generator=generator)
    y = torch.arange(WAYS).repeat(samples)
    work = ours(args) if args.one in OURS else peer(args)
    if args.one in OURS:
        for _ in range(2):  # one is recorded, one is checked
            work(x[:n], y[:n], x[n:], y[n:])
    walls, cpus = [], []
    for _ in range(args.tasks):
        wall, cpu = time.perf_counter(), time.process_time()
        work(x[:n], y[:n], x[n:], y[n:])
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "wall": min(walls),
        "cpu": min(cpus),
        "peak": peak * 1024 / 1e6,
        "above": (peak - imported) * 1024 / 1e6,
    }


def four_conv(size: int):
    """Four blocks of conv, norm, ReLU and max-pool, in this order, then fc."""
    from torch import nn

    def block(c_in: int) -> list[nn.Module]:
        return [
            nn.Conv2d(c_in, 32, 3, padding=1, bias=False),
            nn.GroupNorm(8, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    blocks = [m for c_in in (3, 32, 32, 32) for m in block(c_in)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(32 * (size // 16) ** 2, WAYS))


def ours(args: argparse.Namespace) -> Callable:
    import torch

    from pmeta.fast import replay
    from pmeta.method.inner import InnerLoop
    from pmeta.method.learned import init_meta
    from pmeta.method.meta_gradient import TaskGradients
    from pmeta.method.methods import METHODS
    from pmeta.network.backbones import FourConv
    from pmeta.network.take_in import take_in
    from pmeta.training.workers import keep_freed_memory

    keep_freed_memory()
    image = (3, args.size, args.size)
    net = take_in(FourConv(WAYS, image), torch.zeros(1, *image))
    meta = init_meta(net, METHODS[args.one], STEPS, ALPHA, torch.Generator().manual_seed(0))
    loop = InnerLoop(net, METHODS[args.one], second_order=True, recompute=args.recompute)
    gradients = TaskGradients(loop)
    replay.AFTER = sys.maxsize if args.not_replayed else 1
    return lambda *task: gradients(meta, task)


def peer(args: argparse.Namespace) -> Callable:
    """One task of MAML as the library's own examples have it."""
    work = {
        "torch": with_torch,
        "higher": with_higher,
        "torchopt": with_torchopt,
        "learn2learn": with_learn2learn,
    }
    return work[args.one](four_conv(args.size))


def with_torch(model):
    import torch
    import torch.nn.functional as F

    def task(xs, ys, xq, yq):
        w = dict(model.named_parameters())
        for _ in range(STEPS):
            loss = F.cross_entropy(torch.func.functional_call(model, w, (xs,)), ys)
            g = torch.autograd.grad(loss, list(w.values()), create_graph=True)
            w = {n: t - ALPHA * d for (n, t), d in zip(w.items(), g, strict=True)}
        F.cross_entropy(torch.func.functional_call(model, w, (xq,)), yq).backward()

    return task


def with_higher(model):
    import higher
    import torch
    import torch.nn.functional as F

    sgd = torch.optim.SGD(model.parameters(), lr=ALPHA)

    def task(xs, ys, xq, yq):
        with higher.innerloop_ctx(model, sgd, copy_initial_weights=False) as (net, inner):
            for _ in range(STEPS):
                inner.step(F.cross_entropy(net(xs), ys))
            F.cross_entropy(net(xq), yq).backward()

    return task


def with_torchopt(model):
    import torch.nn.functional as F
    import torchopt

    inner = torchopt.MetaSGD(model, lr=ALPHA)

    def task(xs, ys, xq, yq):
        start = [torchopt.extract_state_dict(o, by="reference") for o in (model, inner)]
        for _ in range(STEPS):
            inner.step(F.cross_entropy(model(xs), ys))
        F.cross_entropy(model(xq), yq).backward()
        for o, state in zip((model, inner), start, strict=True):
            torchopt.recover_state_dict(o, state)

    return task


def with_learn2learn(model):
    for unused in ("vision", "gym"):  # they need torchvision and gym, which MAML does not
        sys.modules[f"learn2learn.{unused}"] = ModuleType(unused)
    import learn2learn
    import torch.nn.functional as F

    maml = learn2learn.algorithms.MAML(model, lr=ALPHA)

    def task(xs, ys, xq, yq):
        net = maml.clone()
        for _ in range(STEPS):
            net.adapt(F.cross_entropy(net(xs), ys))
        F.cross_entropy(net(xq), yq).backward()

    return task


def _arguments() -> argparse.Namespace:
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("--peers", help="a Python with the other libraries; none: ours and torch")
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tasks", type=int, default=4, help="in each round; the best counts")
    parser.add_argument("--rounds", type=int, default=3, help="times that all are measured in turn")
    parser.add_argument("--size", type=int, default=84, help="pixels a side")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--not-replayed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recompute", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
