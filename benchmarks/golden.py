"""The golden comparison on pictures of one's own: the engine against PyTorch, 4Conv in full size, 5-way 1-shot.

    python benchmarks/golden.py FOLDER [--tasks 100] [--run RUN]

FOLDER holds train/<class>/, val/<class>/ and test/<class>/, or classes alone. Prints for all six methods, of the worst step and
layer in the median of five tasks: how far a step of the engine, and one of PyTorch in float32, ends from that of PyTorch in
float64 from the same weights, relative to the largest weight; and the engine's relative to the length of the step. Then
the first two again in the worst task (one pixel beyond a kink decides it), and on how many queries of all tasks predictions
agree. Weights are drawn at random, as in the tests; those of RUN are compared besides. Ends with exit code 1 where the median
breaks the rule in tests/device_golden.py, or predictions agree on 99.5 % of the queries or fewer.
"""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent))

from device_golden import StepErrors, check_steps, reference, step_errors
from device_models import Case, trained

from pmeta.backbones import FourConv, initialise
from pmeta.evaluate_command import load, restore
from pmeta.export import export
from pmeta.images import SCALE, SHIFT, ImageSet, open_split, sample_task
from pmeta.layers import Network
from pmeta.meta import Meta
from pmeta.methods import METHODS, Method
from pmeta.take_in import take_in

SIZE = 84
COMPARED = 5  # tasks whose weights are compared
QUERIES = 5  # of each class
AGREEING = ("maml", "pmeta")  # methods whose predictions are compared on all tasks


def case(net: Network, meta: Meta, method: Method) -> Case:
    """A model without samples yet."""
    shape, c = net.ops[0].x, net.ops[0].x[0]
    exported = export(net, meta, method, shape, input_type="uint8", scale=[SCALE] * c, shift=[SHIFT] * c)
    return Case(net, meta, method, exported, 1, torch.zeros(0), np.zeros(0, np.uint8), torch.arange(5))


def drawn(name: str, shape: tuple[int, int, int]) -> Case:
    """4Conv with weights, step sizes and attention drawn at random; p-Meta updates what it typically does."""
    generator = torch.Generator().manual_seed(0)
    net = take_in(initialise(FourConv(image=shape), generator), torch.zeros(1, *shape))
    live = ("conv3", "conv4", "fc") if name.startswith("pmeta") else None
    return case(net, trained(net, METHODS[name], generator, alpha_0=0.01, steps=5, live=live), METHODS[name])


def of_run(path: str) -> Case:
    config, best = load(path)
    net, meta = restore(config, best.tensors, tuple(best.info["input"]), torch.device("cpu"))
    return case(net, meta, config.method_row())


def on_task(c: Case, images: ImageSet, i: int) -> tuple[Case, torch.Tensor]:
    """The support set of task i as both sides read it, and its queries."""
    task = sample_task(images, 1, i, 5, 1, QUERIES)
    return c._replace(x=task.support_x, raw=raw(task.support_x)), task.query_x


def raw(x: torch.Tensor) -> np.ndarray:
    return ((x - SHIFT) / SCALE).round().byte().numpy()


def compare_weights(name: str, c: Case, images: ImageSet) -> bool:
    model, found = c.device(), []
    for i in range(COMPARED):
        c, _ = on_task(c, images, i)
        found.append(step_errors(c, model))
    middle, worst = StepErrors(*np.median(found, axis=0)), np.max(found, axis=0)
    print(f"{name:12} " + "".join(f"{value:>16.1e}" for value in (*middle, *worst[:2])), flush=True)
    try:
        check_steps(middle)
    except AssertionError as error:
        print(error)
        return False
    return True


def compare_predictions(name: str, c: Case, images: ImageSet, tasks: int) -> bool:
    model, agree, total = c.device(), 0, 0
    for i in range(tasks):
        c, query = on_task(c, images, i)
        model.adapt(c.raw, c.y.numpy())
        w = {key: torch.from_numpy(value) for key, value in reference(c).items()}
        with torch.no_grad():
            want = torch.func.functional_call(c.net.model, w, (query,)).argmax(1).numpy()
        agree, total = agree + int((model.predict(raw(query)) == want).sum()), total + len(want)
    print(f"{name:12} {agree} of {total} predictions agree over {tasks} tasks: {100 * agree / total:.2f} %", flush=True)
    return agree > 0.995 * total


def main(folder: Annotated[str, tyro.conf.Positional], tasks: int = 100, run: str = "") -> int:
    """Compare the engine with PyTorch on pictures of a folder of classes."""
    torch.set_num_threads(1)
    images = open_split(folder, "val", size=SIZE)
    cases = {name: drawn(name, images.shape) for name in METHODS} | ({run: of_run(run)} if run else {})
    heads = ("engine", "PyTorch", "of the length", "worst: engine", "PyTorch")
    print(" " * 13 + "".join(f"{head:>16}" for head in heads))
    good = [compare_weights(name, c, images) for name, c in cases.items()]
    compared = {name: c for name, c in cases.items() if name in (*AGREEING, run)}
    good += [compare_predictions(name, c, images, tasks) for name, c in compared.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
