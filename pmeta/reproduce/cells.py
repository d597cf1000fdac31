"""Which training and which evaluation stands behind each figure that the paper prints."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pmeta import paper
from pmeta.method.methods import METHODS

TITLES = {
    "table1": "Memory and computation of sample applications",
    "table2": "Few-shot image classification",
    "table3": "Few-shot reinforcement learning",
    "table4": (
        "Ablation of meta attention: rho of the forward/backward attention (x: off), and alpha^Ch"
    ),
    "table5": "Pooling and normalisation (MAML, 5-way 1-shot)",
    "table6": "Samples at a time in adaptation",
    "table7": "Sparse x and sparse g(y): what the forward/backward scores multiply (x: off)",
    "figure5": (
        "Share of each layer's weights that is updated, and how alike the scores of two samples are"
    ),
}


@dataclass(frozen=True)
class Training:
    """One run: a named configuration of `pmeta train`, and what is changed in it."""

    name: str
    """Of the run folder."""
    base: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_rl(self) -> bool:
        return self.base.endswith("-paper")


@dataclass(frozen=True)
class Cell:
    """One figure of a table: of an evaluation of a training, or of the cost model."""

    table: str
    row: str
    column: str
    unit: str
    paper: float
    training: str = ""
    """By its name; empty where no training is needed."""
    data: str = "mini"
    """What the trained model is evaluated on."""
    batch: int | None = 1
    """Samples at a time in adaptation; None: all."""
    cost: tuple[str, int, str, str] | None = None
    """Of the cost model: backbone, shots or episodes, method, figure."""


# tag of the run folder: settings; the most telling come first
_ATTENTION: dict[str, dict[str, Any]] = {
    "pmeta": {"method": "pmeta"},
    "pmeta-lr": {"method": "pmeta-lr"},
    "fw0-bw0": {"method": "pmeta", "clip_ratio_fw": 0.0, "clip_ratio_bw": 0.0},
    "alpha-ch": {"method": "pmeta", "scores": "static"},
}
_MORE: dict[str, dict[str, Any]] = {
    **{method: {"method": method} for method in ("maml++", "maml", "anil", "boil")},
    "sparse-x": {"method": "pmeta", "clip_ratio_fw": 0.3, "clip_ratio_bw": None, "sparse_fw": "x"},
    "sparse-gy": {"method": "pmeta", "clip_ratio_fw": None, "clip_ratio_bw": 0.3, "sparse_bw": "y"},
    "fw0.3": {"method": "pmeta", "clip_ratio_fw": 0.3, "clip_ratio_bw": None},
    "bw0.3": {"method": "pmeta", "clip_ratio_fw": None, "clip_ratio_bw": 0.3},
    "fw0": {"method": "pmeta", "clip_ratio_fw": 0.0, "clip_ratio_bw": None},
    "bw0": {"method": "pmeta", "clip_ratio_fw": None, "clip_ratio_bw": 0.0},
    "fw0-bw0.3": {"method": "pmeta", "clip_ratio_fw": 0.0, "clip_ratio_bw": 0.3},
    "fw0.3-bw0.3": {"method": "pmeta", "clip_ratio_fw": 0.3, "clip_ratio_bw": 0.3},
    "fw0.5-bw0.5": {"method": "pmeta", "clip_ratio_fw": 0.5, "clip_ratio_bw": 0.5},
}
_POOL_NORM = {  # Table 5; max/group is MAML as everywhere else
    "maml-max-batch": {"method": "maml", "norm": "batch"},
    "maml-average-group": {"method": "maml", "pool": "average"},
    "maml-average-batch": {"method": "maml", "pool": "average", "norm": "batch"},
}
_BUDGETS: dict[str, dict[str, Any]] = {  # of p-Meta's policies: docs/paper/choices.md, 7.9
    "navigation": {"memory_budget": "170kB", "budget_accounting": "exact", "freeze_at": 0.1},
    "cheetah-velocity": {"memory_budget": "190kB", "budget_accounting": "exact", "freeze_at": 0.2},
}
_ROWS4 = {
    "x/x": "pmeta-lr",
    "0/x": "fw0",
    "x/0": "bw0",
    "0/0": "fw0-bw0",
    "0/0.3": "fw0-bw0.3",
    "0.3/0": "pmeta",
    "0.3/0.3": "fw0.3-bw0.3",
    "0.5/0.5": "fw0.5-bw0.5",
    "alpha^Ch": "alpha-ch",
}
_ROWS7 = {
    "x/x": "pmeta-lr",
    "g(w)/x": "fw0.3",
    "x_(l-1)/x": "sparse-x",
    "x/g(w)": "bw0.3",
    "x/g(y)": "sparse-gy",
}


def _trainings() -> Iterator[Training]:
    for tags in (_ATTENTION, _MORE):
        for shots in (1, 5):
            for tag, changes in tags.items():
                yield _on_images("4conv", shots, tag, changes)
    for tag, changes in _POOL_NORM.items():
        yield _on_images("4conv", 1, tag, changes)
    for env in ("navigation", "cheetah-velocity"):
        for method in reversed(METHODS):
            budget = _BUDGETS[env] if method in ("pmeta-lr", "pmeta") else {}
            yield Training(f"{env}-{method}", f"{env}-paper", {"method": method, **budget})
    for shots in (1, 5):
        for method in reversed(METHODS):
            yield _on_images("resnet12", shots, method, {"method": method})


def _on_images(backbone: str, shots: int, tag: str, changes: dict[str, Any]) -> Training:
    base = f"miniimagenet-{backbone}-5way-{shots}shot"
    return Training(f"{backbone}-{shots}shot-{tag}", base, changes)


TRAININGS = {training.name: training for training in _trainings()}
"""Every run that the tables need, each once, the most telling first."""


def _accuracies(
    table: str, row: str, shots: int, training: str, printed: tuple[float, ...]
) -> Iterator[Cell]:
    for data, accuracy in zip(paper.DATASETS, printed, strict=True):
        column = f"{shots}-shot {paper.DATASETS[data]}"
        yield Cell(table, row, column, "%", accuracy, training, data)


def _table1() -> Iterator[Cell]:
    names = {
        "4conv": "4Conv, 25 images",
        "resnet12": "ResNet12, 25 images",
        "mlp-cheetah": "MLP, 20 episodes of Half-Cheetah",
    }
    columns = {
        "static_mb": ("Model", "MB"),
        "sample_mb": ("Sample", "MB"),
        "inference_mb": ("Inference memory", "MB"),
        "memory_mb": ("Adaptation memory", "MB"),
        "inference_gmac": ("Inference GMAC", "GMAC"),
        "gmac": ("Adaptation GMAC", "GMAC"),
    }
    for (backbone, shots), printed in paper.EXAMPLES.items():
        for key, (column, unit) in columns.items():
            ours = (backbone, shots, "maml", key)
            row = names[backbone]
            yield Cell("table1", row, column, unit, printed[key], cost=ours, batch=None)


def _costs(accuracy: Cell, prefix: str, where: tuple[str, int, str]) -> Iterator[Cell]:
    """What stands beside an accuracy or a return: the cost of the same adaptation."""
    backbone, shots, method = where
    gmac, memory = paper.ADAPTATION[backbone, shots][method]
    yield replace(accuracy, column=f"{prefix} GMAC", unit="GMAC", paper=gmac, cost=(*where, "gmac"))
    yield replace(
        accuracy, column=f"{prefix} Memory", unit="MB", paper=memory, cost=(*where, "memory_mb")
    )


def _table2() -> Iterator[Cell]:
    for (backbone, shots), printed in paper.TABLE2.items():
        for method in METHODS:
            row = f"{paper.BACKBONES[backbone]} {METHODS[method].title}"
            training = f"{backbone}-{shots}shot-{method}"
            accuracies = list(_accuracies("table2", row, shots, training, printed[method]))
            yield from accuracies
            yield from _costs(accuracies[0], f"{shots}-shot", (backbone, shots, method))


def _table3() -> Iterator[Cell]:
    for env, printed in paper.TABLE3.items():
        for method in METHODS:
            row, column = METHODS[method].title, f"{paper.ENVIRONMENTS[env]} Return"
            training = f"{env}-{method}"
            gained = Cell("table3", row, column, "", printed[method], training, data=env)
            yield gained
            yield from _costs(gained, paper.ENVIRONMENTS[env], (paper.MLPS[env], 20, method))


def _two_shots(table: str, printed: dict[str, Any], tags: dict[str, str]) -> Iterator[Cell]:
    for row, both in printed.items():
        for shots, accuracies in zip((1, 5), both, strict=True):
            yield from _accuracies(table, row, shots, f"4conv-{shots}shot-{tags[row]}", accuracies)


def _table5() -> Iterator[Cell]:
    for row, accuracies in paper.TABLE5.items():
        tag = "maml" if row == "max/group" else f"maml-{row.replace('/', '-')}"
        yield from _accuracies("table5", row, 1, f"4conv-1shot-{tag}", accuracies)


def _table6() -> Iterator[Cell]:
    for (shots, batch), accuracies in paper.TABLE6.items():
        for data, accuracy in zip(paper.DATASETS, accuracies, strict=True):
            column, training = f"{shots}-shot batch {batch}", f"4conv-{shots}shot-pmeta"
            yield Cell("table6", paper.DATASETS[data], column, "%", accuracy, training, data, batch)


TABLES: dict[str, list[Cell]] = {
    "table1": list(_table1()),
    "table2": list(_table2()),
    "table3": list(_table3()),
    "table4": list(_two_shots("table4", paper.TABLE4, _ROWS4)),
    "table5": list(_table5()),
    "table6": list(_table6()),
    "table7": list(_two_shots("table7", paper.TABLE7, _ROWS7)),
}
FIGURE5 = ("4conv-1shot-pmeta", "4conv-5shot-pmeta")
"""The trainings that figure 5 shows."""
NAMES = (*TABLES, "figure5")
