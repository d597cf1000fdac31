"""Do two checkouts train to the same bits? One small run of each kind in both, and one that the old
checkout begins, is killed, and the new one ends.

python benchmarks/same_bits.py OLD NEW [KIND ...]

OLD and NEW are folders of two checkouts (git worktree add OLD COMMIT). Both run with this Python,
so that libraries are the same. Exit code 1 where anything differs."""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

SMALL = "--tasks 48 --epoch-tasks 8 --meta-batch 2 --val-tasks 6 --workers 1 --freeze-at 0.4"
GLYPHS = f"train glyphs-4conv-5way-1shot {SMALL} --channels 8 --groups 2"
KINDS = {
    "pictures": GLYPHS,
    "pictures, budget": f"{GLYPHS} --memory-budget 50%",
    "pictures, prototypes": f"{GLYPHS} --head prototype --ema 0.9 --train-ways 2,5",
    "own network": f"train {{work}}/net.py:make_net --data glyphs --image-size 28 {SMALL}",
    "pre-training": (
        "train miniimagenet-4conv-pretrain --data {work}/colours --channels 8 --image-size 24 "
        "--crop-size 16 --epochs 6 --batch 8 --val-tasks 20 --workers 1"
    ),
    "recordings": (
        "train har-conv1d --data {work}/people --tasks 24 --epoch-tasks 4 --pooled-epochs 2 "
        "--val-draws 1 --channels 8 --workers 1"
    ),
    "policies": (
        "train navigation-paper --epochs 12 --meta-batch 2 --episodes 3 --horizon 20 --val-every 2 "
        "--val-tasks 2 --workers 1"
    ),
    "fit": "{work}/fit.py",
}
"""Arguments of pmeta, or a script; `--out` follows."""
NET = """
from torch import nn

def make_net(classes, image):
    body = (nn.Conv2d(image[0], 8, 3, stride=2), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*body, nn.Linear(8 * 13 * 13, classes))
"""
FIT = """
import sys
import torch
from torch import nn
import pmeta

def task(i):
    y = torch.arange(3).repeat(2)
    x = torch.randn(6, 2, 8, generator=torch.Generator().manual_seed(i)) + y.view(-1, 1, 1)
    return x, y, x + 0.1, y

torch.manual_seed(0)
body = (nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
net = nn.Sequential(*body, nn.Linear(24, 3))
learner = pmeta.Learner(net, torch.zeros(1, 2, 8), inner_steps=2, alpha_0=0.1)
learner.fit(task, [task(i) for i in range(1000, 1003)], sys.argv[2], n_tasks=400, meta_batch=2,
            epoch_tasks=20, freeze_at=0.3)
"""


def main() -> None:
    """Run all kinds in both checkouts and print what is the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; none: all")
    asked = parser.parse_args()
    same = True
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_data(work)
        for kind in asked.kinds or KINDS:
            same &= compare(kind, asked.old.resolve(), asked.new.resolve(), work)
    sys.exit(not same)


def compare(kind: str, old: Path, new: Path, work: Path) -> bool:
    """One small run in both checkouts, and one that the old begins and the new ends."""
    out = {who: work / kind.replace(", ", "-") / who for who in ("old", "new", "begun")}
    run(kind, old, out["old"], work).wait()
    run(kind, new, out["new"], work).wait()
    begun = kill_at_checkpoint(run(kind, old, out["begun"], work), out["begun"])
    run(kind, new, out["begun"], work).wait()
    found = {who: outcome(path) for who, path in out.items()}
    verdicts, agree = [], True
    for who, what in (("new", "trained"), ("begun", "resumed" if begun else "resumed after all")):
        differ = [name for name in found["old"] if not same(found["old"][name], found[who][name])]
        agree &= not differ
        verdicts.append(f"{what}: " + (f"DIFFERS in {', '.join(differ)}" if differ else "same"))
    print(f"{kind:22}{'; '.join(verdicts)}", flush=True)
    return agree


def same(old: Any, new: Any) -> bool:
    """Whether all that the old one says is so in the new one, which may say more."""
    if isinstance(old, list):
        return len(old) == len(new) and all(map(same, old, new))
    return old.items() <= new.items() if isinstance(old, dict) else old == new


def run(kind: str, checkout: Path, out: Path, work: Path) -> subprocess.Popen[bytes]:
    """The training of a kind in a checkout, begun."""
    words = KINDS[kind].format(work=work).split()
    words = words if words[0].endswith(".py") else ["-m", "pmeta", *words]
    out.parent.mkdir(parents=True, exist_ok=True)
    with (out.parent / f"{out.name}.txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, *words, "--out", str(out)],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
            stdout=said,
            stderr=said,
        )


def kill_at_checkpoint(process: subprocess.Popen[bytes], out: Path) -> bool:
    """Kill a training behind its first checkpoint; False where it had ended before."""
    while process.poll() is None and not (out / "last.safetensors").exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    return process.wait() != 0


def outcome(out: Path) -> dict[str, Any]:
    """Hashes of both checkpoints, and of the metrics but for times."""
    found: dict[str, Any] = {}
    for name in ("last", "best"):
        path = out / f"{name}.safetensors"
        if not path.exists():
            said = (out.parent / f"{out.name}.txt").read_text()[-2000:]
            raise SystemExit(f"{path} is missing:\n{said}")
        digest = hashlib.sha256()
        for key, t in sorted(load_file(path).items()):
            digest.update(f"{key} {t.dtype} {t.shape}".encode() + t.tobytes())
        found[name] = digest.hexdigest()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    figures = [{k: v for k, v in m.items() if "seconds" not in k} for m in lines]
    return {**found, "metrics": figures}


def write_data(work: Path) -> None:
    """A network, a script, classes that differ in colour, people who shake a sensor."""
    (work / "net.py").write_text(NET)
    (work / "fit.py").write_text(FIT)
    rng = np.random.default_rng(0)
    for split, classes in (("train", 3), ("val", 5)):
        for c in range(classes):
            folder = work / "colours" / split / f"class{c}"
            folder.mkdir(parents=True)
            colour = rng.integers(40, 215, 3)
            for i in range(20):
                pixels = (colour + rng.normal(0, 25, (24, 24, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    for person in range(5):
        for n in range(3):
            path = work / "people" / f"p{person}" / f"{n}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(recording(rng))


def recording(rng: np.random.Generator) -> str:
    """1.5 s each of rest, slow and quick shakes, at 100 rows a second."""
    rows = ["x,y,z,time,label"]
    for n, (label, shakes) in enumerate((("rest", 0.0), ("slow", 3.0), ("quick", 9.0))):
        for t in np.arange(150) / 100:
            wave = np.sin(2 * np.pi * shakes * t)
            x, y, z = np.array([wave, 0.3 * wave, 1.0]) + rng.normal(0, 0.05, 3)
            rows.append(f"{x:.5f},{y:.5f},{z:.5f},{1.5 * n + t:.2f},{label}")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
