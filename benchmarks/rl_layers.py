"""Which layers the inner step of a trained policy needs: each is left alone once.

    python benchmarks/rl_layers.py zoo/runs/paper-cheetah-maml++

At test time, without further training; the best policy adapts to the same unseen tasks, one
episode at a time, and differences are taken task by task. Memory is that of the paper's
accounting.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.base.progress import progress
from pmeta.method.inner import InnerLoop
from pmeta.rl.evaluate import TaskReturn, summarise, task_returns
from pmeta.rl.policy import policy_gradient
from pmeta.rl.restore import CHUNK, restore
from pmeta.rl.train import TEST, run_tasks
from pmeta.training.evaluate import ci95


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run folder of a training of policies")
    parser.add_argument("--tasks", type=int, default=400, help="unseen tasks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    config, env, net, meta = restore(args.run)
    loop = InnerLoop(net, config.method_row(), policy_gradient, batch=1)

    def adapted(mask: torch.Tensor, label: str) -> list[TaskReturn]:
        fewer, found = dataclasses.replace(meta, mask=mask), []
        for start in progress(range(0, args.tasks, CHUNK), label):
            numbers = range(start, min(start + CHUNK, args.tasks))
            data = run_tasks(config, env, loop, fewer, (TEST, 0), numbers, 0)
            found += task_returns(loop, fewer, data)
        return found

    updated = meta.updates()
    names = [layer.name for layer in net.layers]
    own: list[TaskReturn] = []
    print("| left alone | return after one step | difference | memory |\n|---|---|---|---|")
    for i, name in enumerate([None, *names]):
        mask = updated.clone()
        if name is not None:
            mask[:, i - 1] = False
        if name is not None and (torch.equal(mask, updated) or not mask.any()):
            continue  # it is left alone anyhow, or nothing would be updated
        found = adapted(mask, name or "nothing")
        own = own or found
        apart = torch.tensor([a.after - b.after for a, b in zip(found, own, strict=True)])
        change = "" if name is None else f"{apart.mean():+.1f} ± {ci95(apart.double()):.1f}"
        s = summarise(found)
        print(
            f"| {name or 'nothing'} | {s.after:.1f} ± {s.after_ci95:.1f} | {change} | "
            f"{s.memory_mb:.2f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
