"""The few lines of Python: any model, any method, any iterator of tasks."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pmeta
from pmeta import device
from pmeta.data import tasks as images
from pmeta.learner import Learner
from pmeta.method.inner import InnerLoop
from pmeta.method.meta_gradient import AnyTask, MetaGradient, task_gradient
from pmeta.method.methods import METHODS, Method
from pmeta.method.outer import Outer
from tests.helpers import nets

SHAPE = (2, 9)


def learner(method: str) -> Learner:
    model = nets.initialise(nets.Signal(), nets.generator()).double()
    example = torch.zeros(1, *SHAPE, dtype=torch.float64)
    return Learner(model, example, method, inner_steps=2, alpha_0=0.1, for_device=False)


def tasks(n: int) -> list[AnyTask]:
    return [nets.task(SHAPE, seed=seed) for seed in range(n)]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_a_conv1d_model(method: str) -> None:
    found = learner(method)
    before = found.meta
    found.meta_train(tasks(4), meta_batch=2, progress=False)
    assert not torch.equal(found.meta.w["conv1.weight"], before.w["conv1.weight"])
    x, y, query_x, _ = tasks(1)[0]
    w = found.adapt(x, y)
    assert found.predict(w, query_x).shape == (4, 3)
    assert not torch.equal(w["head.weight"], found.meta.w["head.weight"]) or method == "boil"
    assert not any(t.requires_grad for t in found.meta.parameters().values())
    assert all(not t.requires_grad for t in w.values())


def test_meta_training_runs_in_one_thread_and_gives_the_others_back() -> None:
    found, before, seen = learner("maml"), torch.get_num_threads(), []

    def watched() -> Iterator[AnyTask]:
        for task in tasks(2):
            seen.append(torch.get_num_threads())
            yield task

    torch.set_num_threads(2)
    try:
        found.meta_train(watched(), n_tasks=2, meta_batch=1, progress=False)
        assert (seen, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(before)


def test_meta_training_learns() -> None:
    found = learner("maml++")
    (x, y, query_x, query_y) = tasks(1)[0]

    def loss() -> float:
        return float(
            nn.functional.cross_entropy(found.predict(found.adapt(x, y), query_x), query_y)
        )

    before = loss()
    found.meta_train([(x, y, query_x, query_y)] * 30, meta_batch=1, progress=False, lr=5e-2)
    assert loss() < 0.5 * before


def test_meta_training_is_of_second_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found, (task,) = learner("maml"), tasks(1)
    expected = task_gradient(
        InnerLoop(found.net, found.method, second_order=True), found.meta, task
    ).gradients
    seen: list[MetaGradient] = []
    monkeypatch.setattr(Outer, "update", lambda outer, g: seen.append(g))
    found.meta_train([task], progress=False)
    assert len(seen) == 1
    torch.testing.assert_close(seen[0].gradients, expected)


def test_adapting_one_sample_at_a_time_or_all_at_once() -> None:
    found = learner("maml")
    x, y, *_ = tasks(1)[0]
    one, whole = found.adapt(x, y), found.adapt(x, y, batch=None)
    assert all(torch.allclose(one[name], whole[name], rtol=1e-10) for name in one)


def test_dropout_is_off_when_it_adapts_and_predicts() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    found = Learner(model, torch.zeros(1, 9, dtype=torch.float64), "maml", inner_steps=2)
    x, y, query_x, _ = nets.task((9,))
    w = found.adapt(x, y)
    assert all(torch.equal(w[name], again) for name, again in found.adapt(x, y).items())
    assert torch.equal(found.predict(w, query_x), found.predict(w, query_x))
    assert model[1].training


def test_training_again_measures_step_sizes_by_the_first() -> None:
    found = learner("pmeta-lr")
    found.meta.alpha.fill_(0.1)
    found.meta.alpha[0, 0] = 50.0  # has grown
    found.meta_train(tasks(4), meta_batch=2, progress=False, lam=0.0, freeze_at=0.5)
    assert found.meta.mask.all()


def test_a_method_of_ones_own_and_a_loss_of_ones_own() -> None:
    own = Method("only the head, learned", update="head", learn_alpha=True)

    def squares(output: Tensor, y: Tensor) -> Tensor:
        return (output - nn.functional.one_hot(y, 3)).square().sum(1)

    found = Learner(
        nets.Signal().double(),
        torch.zeros(1, *SHAPE, dtype=torch.float64),
        own,
        2,
        0.1,
        loss=squares,
        for_device=False,
    )
    alpha = found.meta.alpha.clone()
    found.meta_train(iter(tasks(2)), n_tasks=2, meta_batch=1, progress=False)
    x, y, *_ = tasks(1)[0]
    w = found.adapt(x, y)
    assert [name for name in w if not torch.equal(w[name], found.meta.w[name])] == [
        "head.weight",
        "head.bias",
    ]
    assert (found.meta.alpha[:, -1] != alpha[:, -1]).all()
    assert not found.meta.alpha[:, :-1].any()


def test_sparse_methods_freeze_and_then_cost_less() -> None:
    found = learner("pmeta")
    dense = found.cost(samples=5)
    found.meta_train(tasks(4), meta_batch=1, progress=False, freeze_at=0.5, freeze_below=1e9)
    assert int(found.meta.mask.sum()) == 1  # all were below the threshold, so one is left
    frozen = found.cost(samples=5)
    assert frozen.memory_mb < dense.memory_mb
    assert frozen.exact_memory_mb < dense.exact_memory_mb
    assert found.cost(samples=5, batch=5).peak_words > found.cost(samples=5).peak_words


def test_the_same_seed_gives_the_same_learner() -> None:
    both = [learner("pmeta") for _ in range(2)]
    for one in both:
        one.meta_train(tasks(2), meta_batch=1, progress=False)
    first, second = (one.meta.parameters() for one in both)
    assert all(torch.equal(first[name], second[name]) for name in first)


def endless() -> Iterator[AnyTask]:
    while True:
        yield tasks(1)[0]


def test_how_many_tasks() -> None:
    found = learner("maml")
    with pytest.raises(
        ValueError, match=r"^the schedule needs to know how many tasks there will be: give n_tasks "
    ):
        found.meta_train(endless())
    found.meta_train(endless(), n_tasks=3, meta_batch=2, progress=False)
    message = r"^n_tasks promised 5 tasks and 2 came, which cut the schedule short: train again\.$"
    with pytest.raises(ValueError, match=message):
        found.meta_train(tasks(2), n_tasks=5, meta_batch=1, progress=False)
    for n, meta_batch in ((0, 4), (3, 0)):
        message = (
            rf"^meta-training takes at least 1 task, 1 at a time, got {n} and "
            rf"meta_batch={meta_batch}\.$"
        )
        with pytest.raises(ValueError, match=message):
            found.meta_train(tasks(n), meta_batch=meta_batch)


def test_losses_that_are_not_finite_end_the_training() -> None:
    found = learner("maml")
    x, y, query_x, query_y = tasks(1)[0]
    with pytest.raises(
        ValueError, match=r"^loss or gradient was not finite in 10 updates in a row"
    ):
        found.meta_train(
            [(x * float("nan"), y, query_x, query_y)] * 12, meta_batch=1, progress=False
        )


def test_names_of_the_package() -> None:
    assert pmeta.Learner is Learner
    assert set(pmeta.__all__) >= {
        "Learner",
        "Method",
        "METHODS",
        "open_split",
        "sample_task",
        "replace_batch_norm",
        "take_in",
    }
    assert not any(isinstance(getattr(pmeta, name), ModuleType) for name in pmeta.__all__), (
        "hidden by a module of the same name"
    )
    with pytest.raises(
        AttributeError, match=r"^module 'pmeta' has no attribute 'Lerner': it has Learner, "
    ):
        pmeta.Lerner  # noqa: B018


def picture_learner(seed: int = 0, method: str = "pmeta") -> Learner:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)
    )
    return Learner(model, torch.zeros(1, 3, 8, 8), method, inner_steps=2, alpha_0=0.1)


def test_what_was_learned_is_kept_and_taken_up(tmp_path: Path) -> None:
    x, y = torch.randn(3, 3, 8, 8, generator=nets.generator()), torch.arange(3)
    found = picture_learner()
    first = {name: w.clone() for name, w in found.net.model.state_dict().items()}
    found.meta_train([(x, y, x, y)] * 4, meta_batch=2, progress=False)
    assert all(torch.equal(w, first[name]) for name, w in found.net.model.state_dict().items())
    found.save(tmp_path / "kept.safetensors")
    again = picture_learner(seed=1)
    again.load(tmp_path / "kept.safetensors")
    for name, w in found.adapt(x, y).items():
        assert torch.equal(again.adapt(x, y)[name], w)
    assert torch.equal(again.meta.mask, found.meta.mask)
    with pytest.raises(
        ValueError, match=r"fits its network and method, where attention/.* got nothing"
    ):
        picture_learner(method="pmeta").load(_saved(picture_learner(method="maml"), tmp_path))
    (tmp_path / "x").write_text("no checkpoint")
    with pytest.raises(
        ValueError, match=r"x is no checkpoint of ours \(.*\): give one that save wrote\.$"
    ):
        again.load(tmp_path / "x")


def _saved(found: Learner, folder: Path) -> Path:
    found.save(folder / "other.safetensors")
    return folder / "other.safetensors"


def test_to_the_device(tmp_path: Path) -> None:
    """float32 samples as they are; pixels as `open_split` normalises them."""
    found = picture_learner()
    found.net.model.train()
    pixels = torch.randint(
        0, 256, (3, 8, 8, 3), generator=nets.generator(), dtype=torch.uint8
    ).numpy()
    x, y = images.normalise(pixels), torch.arange(3)
    found.meta_train([(x, y, x, y)] * 4, meta_batch=2, progress=False)
    expected = found.predict(found.adapt(x, y), x).numpy()
    for raw, samples in (
        (False, x.numpy()),
        (True, np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))),
    ):
        found.export(tmp_path / "model.pmeta", pixels=raw)
        model = device.load(tmp_path / "model.pmeta")
        model.adapt(samples, y.numpy())
        np.testing.assert_allclose(model.scores(samples), expected, rtol=1e-4, atol=1e-4)
    assert found.net.model.training
    with pytest.raises(ValueError, match="pixels are those of a picture"):
        learner("maml").export(tmp_path / "signal.pmeta", pixels=True)


def test_a_head_from_prototypes() -> None:
    block = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())
    model = nn.Sequential(*block, nn.Flatten(), nn.Linear(144, 4))
    learner = pmeta.Learner(model, torch.zeros(1, 1, 8, 8), inner_steps=1, head="prototype")
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 1, 8, 8, generator=generator), torch.arange(3).repeat(2)
    learner.meta_train([(x, y, x, y)] * 4, progress=False, ema=0.5)
    assert set(learner.meta.head) == {"log_scale"}
    assert "4.weight" not in learner.meta.w
    scores = learner.predict(learner.adapt(x, y), x)
    assert scores.shape == (6, 3)
    assert (scores.argmax(1) == y).all()


def spoiled(task: AnyTask, value: float = torch.nan) -> AnyTask:
    x, y, query_x, query_y = task
    return x.clone().fill_(value), y, query_x, query_y


def test_tasks_of_nan_end_in_an_error_and_change_nothing() -> None:
    found = learner("pmeta")
    before = found.meta
    with pytest.raises(ValueError, match=r"not finite in any task, so that nothing was learned"):
        found.meta_train([spoiled(task) for task in tasks(36)], progress=False)
    assert found.meta is before


def test_skipped_tasks_are_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    found = learner("pmeta-lr")
    first, *others = tasks(4)
    found.meta_train([spoiled(first), *others], meta_batch=2, progress=False)
    assert capsys.readouterr().err == (
        "1 of 4 tasks were skipped, since their loss or gradient was not finite: look for NaN in "
        "the tasks, or lower lr or alpha_0.\n"
    )
    found.meta_train(others, meta_batch=2, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["lr", "lam"])
def test_settings_of_nan_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"finite and not negative, got {name}=nan"):
        learner("pmeta").meta_train(tasks(2), 2, 1, False, **{name: float("nan")})


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_is_neither_adapted_to_nor_judged_by(value: float, tmp_path: Path) -> None:
    found, (task,) = learner("maml"), tasks(1)
    bad = spoiled(task, value)
    with pytest.raises(ValueError, match=r"are finite numbers, \d+ of \d+ in x are not: mend or"):
        found.adapt(*bad[:2])
    with pytest.raises(ValueError, match=r"in support_x of task 1 are not"):
        found.evaluate([task, bad])
    with pytest.raises(ValueError, match=r"in support_x of validation task 0 are not"):
        found.fit([task], [bad], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_that_overflow_are_not_returned() -> None:
    found, (task,) = learner("maml"), tasks(1)
    found.meta.alpha.fill_(1e308)
    with pytest.raises(ValueError, match=r"of the adapted weights are not: .* smaller alpha_0"):
        found.adapt(1e5 * task[0], task[1])
