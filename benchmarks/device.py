"""The engine beside PyTorch on the same work: 4Conv, 5-way 1-shot, one core, one sample at a time.

    python benchmarks/device.py [CASE ...]

prints, for MAML, for p-Meta with a typical mask (conv3, conv4 and fc live), for p-Meta in 256 KB
with group norms (norm3, conv4, norm4 and fc live, the first block streamed) and for the network of
miniimagenet-4conv (norms folded, conv4, norm5 and fc live, streamed), the time of one adaptation
step and the peak memory of each, measured in one run, and writes them to benchmarks/device.json;
with names, only those. Times are
those of the processor, which other programs do not lengthen much; they are medians of alternating
measurements, so that all meet the same machine. PyTorch runs with its own operations, and with our
kernels for meta-training, which are faster. Memory is what the operating system counts above the
loaded model.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import device
from pmeta.base import native
from pmeta.compiler.export import Exported, export
from pmeta.device.binding import DeviceModel
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, initialise
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in

SHAPE = (3, 84, 84)
STEPS, N = 5, 5
CASES: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "MAML": ("maml", None),
    "p-Meta": ("pmeta", ("conv3", "conv4", "fc")),
    "256 KB": ("pmeta", ("norm3", "conv4", "norm4", "fc")),
    "shipped": ("pmeta", ("conv4", "norm5", "fc")),
}
BUDGETS = {"256 KB": 256 * 1024 - 3 * 84 * 84 - 2400, "shipped": 230_000}
"""Bytes of arena: beside it there are one sample and the stack."""
REPEATS = 7


def setup(case: str) -> tuple[Network, Meta, Exported, np.ndarray]:
    """Network, step sizes, file and raw samples of a case, the same in every process."""
    name, live = CASES[case]
    generator = torch.Generator().manual_seed(0)
    folded = FourConv(image=SHAPE, norm="none", embedding="signed")
    model = folded if case == "shipped" else FourConv(image=SHAPE)
    net = take_in(initialise(model, generator), torch.zeros(1, *SHAPE))
    meta = init_meta(net, METHODS[name], STEPS, 0.01, generator).map(torch.Tensor.detach)
    if live:
        p = meta.parameters()
        meta = meta.with_parameters(
            {**p, "alpha": p["alpha"] * torch.tensor([layer.name in live for layer in net.layers])}
        )
        meta = Meta(meta.w, meta.alpha, meta.attention, meta.updates())
    raw = torch.randint(0, 256, (N, *SHAPE), generator=generator, dtype=torch.uint8).numpy()
    budget = BUDGETS.get(case)
    exported = export(net, meta, METHODS[name], SHAPE, input_type="uint8", memory_budget=budget)
    return net, meta, exported, raw


def times(case: str) -> dict[str, float]:
    """Milliseconds of one step of the engine and of PyTorch.

    PyTorch takes one sample at a time, the same with our kernels, and all samples in one pass."""
    net, meta, exported, raw = setup(case)
    x, y = torch.from_numpy(raw).float() / 255, torch.arange(N)
    model, method = DeviceModel(exported.data), METHODS[CASES[case][0]]
    runs = {
        "engine": lambda: model.adapt(raw, y.numpy()),
        "torch": lambda: InnerLoop(net, method, batch=1, vectorised=False, pool_first=False).adapt(
            meta, (x, y)
        ),
        "kernels": lambda: InnerLoop(net, method, batch=1, vectorised=False).adapt(meta, (x, y)),
        "all": lambda: InnerLoop(net, method, batch=1).adapt(meta, (x, y)),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(REPEATS + 1):
        for name, run in runs.items():
            start = process_time()
            run()
            if repeat:  # the first is to warm up
                found[name].append(1000 * (process_time() - start) / STEPS)
    return {name: statistics.median(values) for name, values in found.items()}


def torch_peak(case: str) -> int:
    """Bytes that PyTorch's adaptation adds to a process of its own at its peak."""
    net, meta, _, raw = setup(case)
    x, y = torch.from_numpy(raw).float() / 255, torch.arange(N)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    InnerLoop(net, METHODS[CASES[case][0]], batch=1, vectorised=False, pool_first=False).adapt(
        meta, (x, y)
    )
    return _status("VmHWM") - before


def _status(field: str) -> int:
    return next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(field)
    )


def engine_peak(case: str) -> int:
    """Bytes that the engine's adaptation adds to a C process with the model mapped read-only."""
    _, _, exported, raw = setup(case)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model").write_bytes(exported.data)
        (folder / "samples").write_bytes(raw.tobytes())
        (folder / "labels").write_bytes(bytes(range(N)))
        source = Path(__file__).parent.parent / "tests" / "device" / "c" / "memory.c"
        files = [str(source), *map(str, native.sources(device.ENGINE))]
        flags = ["-std=c99", "-O2", f"-I{device.ENGINE}"]
        subprocess.run(
            [native.compiler(), *flags, "-o", str(folder / "memory"), *files, "-lm"], check=True
        )
        command = [str(folder / part) for part in ("memory", "model", "samples", "labels")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        grown, _, file, *_ = map(int, done.stdout.split())
        return grown - file  # as PyTorch: above the loaded model


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) == 3 and sys.argv[1] == "torch-peak":
        print(torch_peak(sys.argv[2]))
        return
    file = Path(__file__).with_suffix(".json")
    named = [case for case in CASES if case in sys.argv[1:]]
    results = json.loads(file.read_text()) if named else {}
    for case in named or CASES:
        ms = times(case)
        peak = engine_peak(case)
        child = [sys.executable, __file__, "torch-peak", case]
        env = {**os.environ, "PYTHONPATH": "."}
        done = subprocess.run(child, check=True, capture_output=True, text=True, env=env)
        theirs = int(done.stdout)
        arena = setup(case)[2].arena_bytes
        results[case] = {
            "ms_per_step": ms["engine"],
            "torch_ms_per_step": ms["torch"],
            "kernels_ms_per_step": ms["kernels"],
            "vectorised_ms_per_step": ms["all"],
            "time_ratio": ms["engine"] / ms["torch"],
            "time_ratio_kernels": ms["engine"] / ms["kernels"],
            "arena_bytes": arena,
            "os_bytes": peak,
            "torch_os_bytes": theirs,
            "memory_ratio": peak / theirs,
        }
        print(case, json.dumps(results[case], indent=2), flush=True)
    machine = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": 1,
    }
    file.write_text(json.dumps({**machine, **results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
