"""What the smallest step sizes of a trained run are worth, and the memory they cost.

    python benchmarks/small_steps.py zoo/runs/paper-1shot-maml++ --data DIR

A step size that is small but not zero makes adaptation store the input of its layer and of every
layer above. Here those below a limit become zero at test time, without further training, and the
run's best model adapts to the same tasks of the validation classes.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.compiler.export import export
from pmeta.data.tasks import sample_task
from pmeta.method.inner import InnerLoop
from pmeta.method.step_sizes import updated_layers
from pmeta.training.evaluate import ci95, evaluate_task, summarise
from pmeta.training.restore import load, open_for, restore
from pmeta.training.workers import keep_freed_memory

QUERIES, SEED = 15, 9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run folder of a training on pictures")
    parser.add_argument("--data", required=True, help="folder of its pictures, with val")
    parser.add_argument("--tasks", type=int, default=400, help="validation tasks")
    parser.add_argument("--limits", type=float, nargs="+", default=[0.0, 0.001, 0.01, 0.1])
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    config, best = load(args.run)
    shape = tuple(best.info["input"])
    net, meta = restore(config, best.tensors, shape, torch.device("cpu"))
    val = open_for(config, "val", args.data, shape)
    tasks = [
        sample_task(val, SEED, i, config.n_way, config.n_shot, QUERIES) for i in range(args.tasks)
    ]
    loop = InnerLoop(net, config.method_row(), batch=1)
    print("| steps of zero | accuracy | difference | paper's accounting | C engine | updated |")
    print("|---|---|---|---|---|---|", flush=True)
    own = torch.tensor([])
    for limit in args.limits:
        fewer = meta.without_steps_below(limit)
        found = [evaluate_task(loop, fewer, task) for task in tasks]
        accuracies = 100 * torch.tensor([r.accuracy for r in found], dtype=torch.float64)
        difference = accuracies - own if len(own) else None
        own = own if len(own) else accuracies
        change = "" if difference is None else f"{difference.mean():+.2f} ± {ci95(difference):.2f}"
        arena = export(net, fewer, loop.method, shape, input_type="uint8", batch=1).arena_bytes
        layers = {name for step in updated_layers(net, fewer.updates()) for name in step}
        print(
            f"| below {limit:g} | {accuracies.mean():.2f} ± {ci95(accuracies):.2f} % | {change} | "
            f"{summarise(found).memory_mb:.2f} MB | {arena / 1e6:.2f} MB | "
            f"{', '.join(layer.name for layer in net.layers if layer.name in layers)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
