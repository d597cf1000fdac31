"""The meta-gradient against one autograd pass, and sums of it over tasks."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.method.inner import InnerLoop, cross_entropy
from pmeta.method.learned import Meta, init_meta
from pmeta.method.meta_gradient import AnyTask, TaskGradients, task_gradient
from pmeta.method.methods import METHODS, Method
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from tests.helpers import nets

STATIC = Method("static", learn_alpha=True, scores="static")
SHAPE = (2, 6, 6)


@pytest.fixture(scope="module")
def residual() -> Network:
    return nets.network(nets.Residual(), SHAPE)


def at_once(loop: InnerLoop, meta: Meta, task: AnyTask) -> tuple[dict[str, Tensor], float]:
    """Adaptation and query loss differentiated in one pass."""
    start = meta.map(lambda t: t.detach().requires_grad_())
    w = loop.adapt(start, task[:2]).w
    loss = F.cross_entropy(torch.func.functional_call(loop.net.model, w, (task[2],)), task[3])
    g = torch.autograd.grad(loss, list(start.parameters().values()), allow_unused=True)
    named = zip(start.parameters().items(), g, strict=True)
    return {name: torch.zeros_like(t) if d is None else d for (name, t), d in named}, float(
        loss.detach()
    )


def close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float) -> bool:
    scale = max(float(t.abs().max()) for t in b.values())
    return a.keys() == b.keys() and all(
        float((a[n] - b[n]).abs().max()) <= tolerance * scale for n in b
    )


@pytest.mark.parametrize("second_order", [True, False])
@pytest.mark.parametrize("method", [*METHODS.values(), STATIC], ids=lambda m: m.title)
def test_task_gradient_is_that_of_one_pass_through_everything(
    residual: Network, method: Method, second_order: bool
) -> None:
    loop = InnerLoop(residual, method, second_order=second_order)
    meta, task = nets.meta_of(residual, method), nets.task(SHAPE)
    expected, loss = at_once(loop, meta, task)
    for chunk in (None, 1, 3):
        found = task_gradient(loop, meta, task, chunk)
        assert close(found.gradients, expected, 1e-10)
        assert found.loss == pytest.approx(loss, rel=1e-12)
        assert (found.tasks, found.skipped) == (1, 0)


def test_share_of_queries_classified_right(residual: Network) -> None:
    loop, meta, task = (
        InnerLoop(residual, METHODS["maml"]),
        nets.meta_of(residual, METHODS["maml"]),
        nets.task(SHAPE),
    )
    w = loop.adapt(meta, task[:2]).w
    right = (
        (torch.func.functional_call(residual.model, w, (task[2],)).argmax(1) == task[3])
        .double()
        .mean()
    )
    assert task_gradient(loop, meta, task, chunk=3).correct == pytest.approx(float(right))
    fit = InnerLoop(
        residual, METHODS["maml"], loss=lambda output, y: (output - y[:, None]).square().mean(1)
    )
    found = task_gradient(fit, meta, (task[0], task[1].double(), task[2], task[3].double()))
    assert found.tasks == 1
    assert math.isnan(found.correct)  # a regression has none


def test_queries_of_a_batch_norm_are_never_split() -> None:
    net = nets.network(nets.Separable(norm=nets.batch_norm), (2, 8, 8), batch_norm=True)
    loop = InnerLoop(net, METHODS["maml"], second_order=True)
    meta, task = nets.meta_of(net, METHODS["maml"]), nets.task((2, 8, 8))
    expected, _ = at_once(loop, meta, task)
    assert close(task_gradient(loop, meta, task, chunk=2).gradients, expected, 1e-10)


def test_sums_over_tasks_leave_out_what_is_not_finite(residual: Network) -> None:
    method = METHODS["pmeta"]
    loop, meta = InnerLoop(residual, method, second_order=True), nets.meta_of(residual, method)
    good = [nets.task(SHAPE, seed=seed) for seed in (3, 4)]
    in_support = (good[0][0] * math.nan, *good[0][1:])
    in_query = (*good[1][:2], torch.full_like(good[1][2], math.inf), good[1][3])
    parts = [task_gradient(loop, meta, task) for task in good]
    total = TaskGradients(loop).total(meta, [in_support, good[0], in_query, good[1]], range(4))
    assert close(
        total.gradients,
        {n: g + parts[1].gradients[n] for n, g in parts[0].gradients.items()},
        1e-15,
    )
    assert (total.tasks, total.skipped) == (2, 2)
    assert total.loss == pytest.approx(parts[0].loss + parts[1].loss)
    assert total.correct == pytest.approx(parts[0].correct + parts[1].correct)
    none = TaskGradients(loop).total(meta, [], [])
    assert (none.tasks, none.skipped, none.loss) == (0, 0, 0.0)
    assert not any(g.any() for g in none.gradients.values())


def test_a_gradient_whose_square_overflows_is_not_finite_either() -> None:
    net = take_in(nn.Sequential(nn.Linear(2, 2)), torch.zeros(1, 2))  # float32
    meta = init_meta(net, METHODS["maml"], 1, 1e-30, nets.generator())
    x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([1])
    huge = InnerLoop(net, METHODS["maml"], loss=lambda output, y: 1e22 * cross_entropy(output, y))
    assert (
        task_gradient(huge, meta, (x, y, x, y)).tasks,
        task_gradient(huge, meta, (x, y, x, y)).skipped,
    ) == (0, 1)


@pytest.mark.parametrize("name", METHODS)
def test_recomputing_each_step_gives_the_same_meta_gradient(residual, name):
    meta = nets.meta_of(residual, METHODS[name], inner_steps=3)
    plain, again = (
        task_gradient(
            InnerLoop(residual, METHODS[name], second_order=True, recompute=recompute),
            meta,
            nets.task(SHAPE),
        )
        for recompute in (False, True)
    )
    assert again.loss == pytest.approx(plain.loss, abs=1e-14)
    for parameter, g in plain.gradients.items():
        torch.testing.assert_close(
            again.gradients[parameter], g, rtol=1e-10, atol=1e-12, msg=parameter
        )


def small_net() -> tuple[InnerLoop, Meta]:
    torch.manual_seed(0)
    net = take_in(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.zeros(1, 4))
    return InnerLoop(net, METHODS["maml"], second_order=True), nets.meta_of(net, METHODS["maml"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({2: torch.zeros(0, 4), 3: torch.zeros(0, dtype=torch.long)}, "at least one, got 0 quer"),
        ({3: torch.tensor([0])}, "as many targets as queries, at least one, got 2 queries, 1 tar"),
        ({1: torch.tensor([0, 3])}, "one of the 3 outputs of the network, 0 to 2, got 3: number"),
        ({3: torch.tensor([-1, 0])}, "one of the 3 outputs of the network, 0 to 2, got -1"),
        ({0: torch.zeros(2, 4, dtype=torch.complex64)}, "samples are real numbers, got torch.comp"),
        ({2: torch.zeros(2, 4, dtype=torch.complex64)}, "samples are real numbers, got torch.comp"),
    ],
)
def test_tasks_that_cannot_be(changes: dict[int, Tensor], words: str) -> None:
    loop, meta = small_net()
    x, y = torch.zeros(2, 4), torch.tensor([0, 1])
    a, b, c, d = (changes.get(i, part) for i, part in enumerate((x, y, x, y)))
    task = (a, b, c, d)
    with pytest.raises(ValueError, match=words):
        task_gradient(loop, meta, task)
    with pytest.raises(ValueError, match=words):
        TaskGradients(loop)(meta, task)


def test_labels_that_cross_entropy_leaves_out() -> None:
    loop, meta = small_net()
    x, y = torch.ones(2, 4), torch.tensor([-100, 1])
    assert task_gradient(loop, meta, (x, y, x, y)).tasks == 1


def dropping(p: float) -> Network:
    model = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Dropout(p), nn.Linear(9, 3)).double()
    nets.initialise(model, nets.generator())
    return take_in(model, torch.zeros(1, 4, dtype=torch.float64))


@pytest.mark.parametrize("recompute", [False, True])
def test_dropout_draws_by_the_seed_of_the_task(recompute: bool) -> None:
    """A resumed training, or another process, draws the same; the caller's numbers go on."""

    def gradients(p: float, seed: int, caller: int = 0) -> dict[str, Tensor]:
        net = dropping(p)
        meta, task = nets.meta_of(net, METHODS["maml"]), nets.task((4,))
        loop = InnerLoop(net, METHODS["maml"], second_order=True, recompute=recompute)
        torch.manual_seed(caller)
        before = torch.get_rng_state()
        found = TaskGradients(loop).total(meta, [task], [seed]).gradients
        assert torch.equal(torch.get_rng_state(), before)
        return found

    assert close(gradients(0.5, 1), gradients(0.5, 1, caller=7), 0)
    assert not close(gradients(0.5, 1), gradients(0.5, 2), 1e-3)
    assert not close(gradients(0.2, 1), gradients(0.9, 1), 1e-3)


def test_a_step_that_is_computed_again_drops_the_same() -> None:
    net = dropping(0.5)
    meta, task = nets.meta_of(net, METHODS["maml"]), nets.task((4,))
    plain, again = (
        TaskGradients(
            InnerLoop(net, METHODS["maml"], second_order=True, recompute=recompute)
        ).total(meta, [task], [3])
        for recompute in (False, True)
    )
    assert again.loss == plain.loss
    assert close(again.gradients, plain.gradients, 1e-12)
