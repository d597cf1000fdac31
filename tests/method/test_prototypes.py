"""A head from prototypes: against plain autograd, and in every way to compute it."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.meta_gradient import TaskGradients, task_gradient
from pmeta.method.methods import method
from pmeta.method.prototypes import prototype_head
from pmeta.network.take_in import take_in


def small(name: str = "maml++", steps: int = 2) -> tuple[InnerLoop, Meta]:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    ).double()
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3, generator=generator)
    net = take_in(model, torch.zeros(1, 1, 4, 4, dtype=torch.float64))
    meta = init_meta(net, method(name), steps, 0.1, generator, "prototype")
    return InnerLoop(net, method(name), second_order=True), meta


def test_the_first_scale_of_the_scores() -> None:
    loop, meta = small()
    generator = torch.Generator().manual_seed(0)
    other = init_meta(loop.net, method("maml"), 1, 0.1, generator, "prototype", head_scale=2.0)
    assert float(meta.head["log_scale"].exp()) == pytest.approx(10 / 64)
    assert float(other.head["log_scale"].exp()) == pytest.approx(2 / 64)


def test_the_first_step_size_of_the_head() -> None:
    loop, _ = small()
    args = (loop.net, method("maml"), 2, 0.1, torch.Generator().manual_seed(0))
    meta = init_meta(*args, "prototype", head_alpha_0=0.5)
    assert meta.alpha.tolist() == [[0.1, 0.1, 0.5]] * 2


def body(loop: InnerLoop) -> nn.Module:
    assert isinstance(loop.net.model, nn.Sequential)
    return loop.net.model[:-1]


def drawn(n_way: int, n_shot: int, n_query: int = 3, seed: int = 1) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_way)
    x, q = (
        torch.randn(n_way * n, 1, 4, 4, generator=generator, dtype=torch.float64)
        for n in (n_shot, n_query)
    )
    return x, labels.repeat_interleave(n_shot), q, labels.repeat_interleave(n_query)


def outer_loss(loop: InnerLoop, meta: Meta, task: tuple[Any, ...]) -> torch.Tensor:
    """Proto-MAML written down plainly, with autograd alone."""
    model, (x, y, q, t) = loop.net.model, task
    classes, s = int(y.max()) + 1, meta.head["log_scale"].exp()
    embedding = functional_call(body(loop), meta.w, x)
    c = torch.stack([embedding[y == k].mean(0) for k in range(classes)])
    w = {**meta.w, "4.weight": 2 * s * c, "4.bias": -s * (c * c).sum(1)}
    for k in range(len(meta.alpha)):
        w = {name: v.clone() for name, v in w.items()}  # a step does not look into the prototypes
        loss = F.cross_entropy(functional_call(model, w, x), y)
        g = torch.autograd.grad(loss, list(w.values()), create_graph=True)
        alpha = {
            p: meta.alpha[k, l] for l, layer in enumerate(loop.net.layers) for p in layer.params
        }
        w = {name: v - alpha[name] * d for (name, v), d in zip(w.items(), g, strict=True)}
    return F.cross_entropy(functional_call(model, w, q), t)


@pytest.mark.parametrize(("n_way", "n_shot"), [(2, 1), (5, 3)])
def test_the_outer_gradient_goes_through_steps_and_prototypes(n_way: int, n_shot: int) -> None:
    loop, meta = small()
    task = drawn(n_way, n_shot)
    found = task_gradient(loop, meta, task)
    own = meta.map(lambda t: t.detach().requires_grad_())
    loss = outer_loss(loop, own, task)
    right = torch.autograd.grad(loss, list(own.parameters().values()))
    assert abs(found.loss - float(loss.detach())) < 1e-12
    for (name, g), d in zip(found.gradients.items(), right, strict=True):
        assert torch.allclose(g, d, rtol=1e-9, atol=1e-12), name
    assert found.gradients["head/log_scale"].abs() > 0


def test_recomputed_steps_and_replays_give_the_same_for_tasks_of_any_size() -> None:
    loop, meta = small()
    again = dataclasses.replace(loop, recompute=True)
    replays = TaskGradients(loop)
    for seed in range(4):
        for size in ((2, 3), (3, 2), (4, 1)):  # the first two have as many samples
            task = drawn(*size, seed=seed)
            right = task_gradient(loop, meta, task)
            for found in (task_gradient(again, meta, task), replays(meta, task)):
                for name, g in found.gradients.items():
                    assert torch.allclose(g, right.gradients[name], rtol=1e-9, atol=1e-12), name


def test_without_a_step_it_is_the_nearest_centroid() -> None:
    loop, meta = small("protonet", 1)
    x, y, q, _ = drawn(4, 2)
    adapted = loop.adapt(meta, (x, y))
    assert adapted.scores == [{}]
    embedding = body(loop)
    c = embedding(x).view(4, 2, -1).mean(1)
    distance = torch.cdist(embedding(q), c).square()
    scores = functional_call(loop.net.model, adapted.w, q)
    s = meta.head["log_scale"].exp()
    shared = s * embedding(q).square().sum(1, keepdim=True)
    assert torch.allclose(scores - shared, -s * distance)


def test_one_sample_at_a_time_gives_the_same_head() -> None:
    loop, meta = small()
    x, y, *_ = drawn(3, 2)
    whole = loop.start(meta, (x, y))
    weight, bias = prototype_head(
        torch.cat([body(loop)(one[None]) for one in x]),
        y,
        3,
        meta.head["log_scale"],
    )
    assert torch.allclose(whole["4.weight"], weight)
    assert torch.allclose(whole["4.bias"], bias)


def test_labels_with_gaps_are_refused() -> None:
    loop, meta = small()
    x, y, *_ = drawn(3, 1)
    with pytest.raises(ValueError, match=r"a sample of every class .* got the labels \[0, 2\]"):
        loop.adapt(meta, (x[y != 1], y[y != 1]))


def test_heads_that_cannot_be_are_refused() -> None:
    loop, _ = small()
    generator = torch.Generator()
    with pytest.raises(ValueError, match="head must be one of learned, prototype, got 'cosine'"):
        init_meta(loop.net, method("pmeta"), 1, 0.1, generator, "cosine")
    with pytest.raises(ValueError, match=r"ProtoNet takes no inner step.*give --head prototype"):
        init_meta(loop.net, method("protonet"), 1, 0.1, generator)
    batch = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))
    net = take_in(
        nn.Sequential(batch, nn.Flatten(), nn.Linear(16, 2)),
        torch.zeros(2, 1, 4, 4),
        batch_norm=True,
    )
    with pytest.raises(ValueError, match="a batch norm mixes samples: use group norm"):
        init_meta(net, method("pmeta"), 1, 0.1, generator, "prototype")
    net = take_in(nn.Sequential(nn.Conv2d(1, 4, 3)), torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match=r"end the model with nn\.Linear"):
        init_meta(net, method("pmeta"), 1, 0.1, generator, "prototype")
