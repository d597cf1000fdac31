"""The best model of a run of `Learner.fit`, without the code of the model: for an export."""

import torch

from pmeta.kinds.own.config import OwnConfig
from pmeta.kinds.own.graph import Graph, normalisation, read
from pmeta.method.learned import Meta, init_meta
from pmeta.network.layers import Network, Weights
from pmeta.training.budget import Sample
from pmeta.training.restored import Asked, Restored, Unseen
from pmeta.training.results import summarise
from pmeta.training.run_folder import Run, restored
from pmeta.training.workers import Group

IN_PYTHON = "in Python: learner.load({run!r}), then learner.export('mine.pmeta')."


def restore_run(group: Group, asked: Asked) -> Restored:
    """The best model of a run; the tasks are in Python."""
    run = Run(asked.run)
    config, best = run.settings(OwnConfig), run.best()
    graph, net, meta = _rebuilt(asked.run, config, best.tensors)
    return Restored(
        config,
        net,
        restored(meta, best.tensors).without_steps_below(asked.least_step),
        Sample(graph.sample, "uint8" if graph.pixels else "float32"),
        best.info,
        lambda group: Unseen(0, list),
        summarise,
        (config.memory_budget, "arena"),
        facts={"loss": graph.loss},
        **normalisation(graph.pixels, graph.sample[0]),
    )


def _rebuilt(run: str, config: OwnConfig, best: Weights) -> tuple[Graph, Network, Meta]:
    """graph.json of a run, its network, and a start for the tensors of the best model."""
    path, python = Run(run).path / "graph.json", IN_PYTHON.format(run=run)
    head = "prototype" if any(name.startswith("head/") for name in best) else "learned"
    steps = config.inner_steps, config.alpha_0
    try:
        graph = read(path)
        net = graph.network({n[2:]: tuple(t.shape) for n, t in best.items() if n[:2] == "w/"})
        meta = init_meta(net, config.method_row(), *steps, torch.Generator(), head)
        return graph, net, meta
    except FileNotFoundError:
        raise ValueError(
            f"the model of {run} lives in Python, and there is no graph.json of what the device "
            f"runs of it: export it {python}"
        ) from None
    except Exception as error:  # torch names no class for what it cannot follow
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"{path} is not as we write it ({why}): call learner.fit again, which writes it anew, "
            f"or export it {python}"
        ) from None
