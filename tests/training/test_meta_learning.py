"""What the trainer drives of most kinds: epochs, the checks of a checkpoint."""

from pathlib import Path

import pytest
import torch

from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.train import build, training_loop
from pmeta.method.outer import Outer, Schedule
from pmeta.training.meta_learning import OuterTraining

TINY = ImageConfig(image_size=None, channels=8, groups=4, tasks=10, meta_batch=2, epoch_tasks=5)


def training() -> OuterTraining:
    net, meta = build(TINY, (1, 28, 28), torch.device("cpu"))
    outer = Outer(training_loop(net, TINY), meta, Schedule(TINY.updates))
    return OuterTraining(TINY, outer, 5)


def test_epochs_are_whole_updates_to_the_nearest() -> None:
    found = training()
    assert (found.updates, found.each, found.total) == (5, 2, 10)
    assert found.every == 2  # 5 tasks are 2 updates of 2


def test_the_status_has_loss_and_memory() -> None:
    sums = {"loss": 0.0, "tasks": 0}
    assert training().status(sums)[0] == "loss nan"  # nothing yet
    loss, memory = training().status({"loss": 3.0, "tasks": 2})
    assert loss == "loss 1.500"
    assert memory.startswith("memory 0.")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": torch.zeros(3, 2)}, r"where alpha has the shape \(5, 9\), got \(3, 2\)"),
        ({"alpha": torch.full((5, 9), torch.nan)}, "numbers of a checkpoint are finite, alpha"),
        ({"alpha": torch.full((5, 9), -1.0)}, "step sizes of a checkpoint are not negative"),
        ({"done": torch.tensor(-7)}, "behind 0 to 5 updates, this one says -7"),
        ({"done": torch.tensor(6)}, "behind 0 to 5 updates, this one says 6"),
        ({"steps": torch.tensor(4)}, "says 0, and 4 steps of Adam"),
        ({"mask": torch.ones(2, 2)}, r"where mask has the shape \(5, 9\), got \(2, 2\)"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    changes: dict[str, torch.Tensor], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        training().check({**training().state(), **changes})
