"""The golden comparison on your own pictures: the engine against PyTorch, 4Conv in full size.

    python benchmarks/golden.py FOLDER [--tasks 100] [--runs RUN ...]

FOLDER holds train/<class>/, val/<class>/ and test/<class>/, or classes alone. Tasks are 5-way
1-shot. The models are those of the runs; without any, 4Conv of all six methods with weights drawn
at random. For each model it prints

- of one step, of the worst step and layer in the median of five tasks: how far a step of the
  engine, and one of PyTorch in float32, ends from that of PyTorch in float64 from the same
  weights, relative to the largest weight; and the engine's relative to the length of the step.
  Then the first two again in the worst task (one pixel beyond a kink decides it);
- after all steps, over all tasks: how far the engine's weights are from PyTorch's (norm of the
  difference over norm of the weights of the worst tensor) in the median and in the worst task, in
  how many tasks within 1e-4, the same of PyTorch in float32 against float64, and on how many
  queries the predictions agree.

Ends with exit code 1 where the median step breaks the rule in tests/helpers/device_golden.py,
where after all steps the engine is within 1e-4 of PyTorch in fewer tasks than PyTorch's float32
is of its float64 less five in a hundred, or where predictions agree on 99.5 % of the queries or
fewer.
"""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.compiler.export import export
from pmeta.data.tasks import SCALE, SHIFT, ImageSet, open_split, sample_task
from pmeta.kinds.pictures.best import load, restore
from pmeta.method.learned import Meta
from pmeta.method.methods import METHODS, Method
from pmeta.network.backbones import FourConv, initialise
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from tests.helpers.device_golden import (
    TOLERANCE,
    StepErrors,
    Weights,
    check_steps,
    reference,
    step_errors,
)
from tests.helpers.device_models import Case, trained

SIZE = 84
COMPARED = 5  # tasks whose weights are compared
QUERIES = 5  # of each class


def case(net: Network, meta: Meta, method: Method) -> Case:
    """A model without samples yet."""
    shape, c = net.ops[0].x, net.ops[0].x[0]
    exported = export(
        net, meta, method, shape, input_type="uint8", scale=[SCALE] * c, shift=[SHIFT] * c
    )
    return Case(
        net, meta, method, exported, 1, torch.zeros(0), np.zeros(0, np.uint8), torch.arange(5)
    )


def drawn(name: str, shape: tuple[int, int, int]) -> Case:
    """4Conv with everything drawn at random; p-Meta updates the layers that it typically does."""
    generator = torch.Generator().manual_seed(0)
    net = take_in(initialise(FourConv(image=shape), generator), torch.zeros(1, *shape))
    live = ("conv3", "conv4", "fc") if name.startswith("pmeta") else None
    return case(
        net, trained(net, METHODS[name], generator, alpha_0=0.01, steps=5, live=live), METHODS[name]
    )


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
    print(f"{name:16} " + "".join(f"{value:>16.1e}" for value in (*middle, *worst[:2])), flush=True)
    try:
        check_steps(middle)
    except AssertionError as error:
        print(error)
        return False
    return True


def compare_adapted(name: str, c: Case, images: ImageSet, tasks: int) -> bool:
    model, agree, total = c.device(), 0, 0
    apart: list[tuple[float, float]] = []
    for i in range(tasks):
        c, query = on_task(c, images, i)
        model.adapt(c.raw, c.y.numpy())
        single, got = reference(c), model.weights()
        apart.append((distance(got, single), distance(single, reference(c, torch.float64))))
        with torch.no_grad():
            w = {key: torch.from_numpy(value) for key, value in single.items()}
            want = torch.func.functional_call(c.net.model, w, (query,)).argmax(1).numpy()
        agree += int((model.predict(raw(query)).labels == want).sum())
        total += len(want)
    (middle, single_middle), (worst, single_worst) = np.median(apart, axis=0), np.max(apart, axis=0)
    near, single_near = (np.array(apart) <= TOLERANCE).sum(0)
    print(
        f"{name:16} {middle:>12.1e} {worst:>10.1e} {near:>5} of {tasks} "
        f"{single_middle:>12.1e} {single_worst:>10.1e} {single_near:>5} of {tasks} "
        f"{agree:>8} of {total}",
        flush=True,
    )
    return bool(near >= single_near - 0.05 * tasks) and agree > 0.995 * total


def distance(got: Weights, want: Weights) -> float:
    """Norm of the difference over norm of the weights, of the worst tensor."""
    return max(
        float(np.linalg.norm(w - want[name]) / np.linalg.norm(want[name]))
        for name, w in got.items()
    )


def main(
    folder: Annotated[str, tyro.conf.Positional],
    tasks: int = 100,
    runs: tuple[str, ...] = (),
) -> int:
    """Compare the engine with PyTorch on pictures of a folder of classes."""
    torch.set_num_threads(1)
    images = open_split(folder, "val", size=SIZE)
    cases = [(Path(run).name, of_run(run), images) for run in runs]
    cases = cases or [(name, drawn(name, images.shape), images) for name in METHODS]
    heads = ("engine", "PyTorch", "of the length", "worst: engine", "PyTorch")
    print("one step         " + "".join(f"{head:>16}" for head in heads))
    good = [compare_weights(*each) for each in cases]
    sides = (f"{name:>12} {'worst':>10} {'1e-4':>12}" for name in ("engine", "PyTorch"))
    print(f"all steps        {' '.join(sides)} {'predictions':>20}")
    good += [compare_adapted(*each, tasks) for each in cases]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
