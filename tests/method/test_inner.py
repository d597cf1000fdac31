"""The inner step: by hand, against plain MAML, in micro-batches, and what it refuses."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pmeta.method.inner import InnerLoop, cross_entropy
from pmeta.method.learned import Meta, init_meta
from pmeta.method.methods import METHODS, Method
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from tests.helpers.nets import (
    Residual,
    Separable,
    batch_norm,
    changed,
    generator,
    meta_of,
    network,
    task,
)

ATTENTION = Method("attention", scores="attention", clip_ratio_fw=0.3, clip_ratio_bw=0.1)
SHAPE = (2, 6, 6)


def half_square(output: Tensor, y: Tensor) -> Tensor:  # (B, 1), (B,) -> (B,)
    return (output[:, 0] - y).square() / 2


class TestByHand:
    """out = b a x with a = 1, b = 2, at x = 1, y = 1: the residual is 1, g(a) = b = 2 and g(b) = a
    = 1.

    With step sizes 2 and 1: a' = 1 - 2 * 2 = -3 and b' = 2 - 1 * 1 = 1. Query x = 1, y = 1: the
    residual is -3 - 1 = -4, so dL/da' = b' * -4 = -4 and dL/db' = a' * -4 = 12.
    """

    net = take_in(
        nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)), torch.zeros(1, 1)
    )
    x, y = torch.ones(1, 1), torch.ones(1)

    def meta(self, alpha: list[list[float]], attention: dict[str, Tensor] | None = None) -> Meta:
        w = {"0.weight": torch.tensor([[1.0]]), "1.weight": torch.tensor([[2.0]])}
        meta = Meta(
            w,
            torch.tensor(alpha, dtype=torch.float32),
            attention or {},
            torch.ones(len(alpha), 2, dtype=torch.bool),
        )
        return meta.map(lambda t: t.requires_grad_())

    def outer(self, meta: Meta, method: Method, second_order: bool) -> dict[str, list[float]]:
        w = (
            InnerLoop(self.net, method, half_square, second_order=second_order)
            .adapt(meta, (self.x, self.y))
            .w
        )
        assert (w["0.weight"].item(), w["1.weight"].item()) == (-3, 1)
        loss = half_square(forward(self.net, w, self.x)[0], self.y).sum()
        p = meta.parameters()
        g = torch.autograd.grad(loss, list(p.values()))
        return {name: t.flatten().tolist() for name, t in zip(p, g, strict=True)}

    def test_second_order(self) -> None:
        """a' = a - 2 b (ab - 1) and b' = b - a (ab - 1), so the Jacobian of (a', b') in (a, b) is

            da'/da = 1 - 2 b^2 = -7    da'/db = -2 (2ab - 1) = -6
            db'/da = -(2ab - 1) = -3   db'/db = 1 - a^2 = 0

        and dL/da = -4 * -7 + 12 * -3 = -8, dL/db = -4 * -6 + 12 * 0 = 24. In the step sizes: dL/da'
        * -g(a) = 8, 12 * -1.
        """
        g = self.outer(self.meta([[2, 1]]), METHODS["maml"], second_order=True)
        assert g == {"w/0.weight": [-8], "w/1.weight": [24], "alpha": [8, -12]}

    def test_first_order(self) -> None:
        """The gradients count as constants, so the Jacobian is the identity; the step sizes get the
        same gradient."""
        g = self.outer(self.meta([[2, 1]]), METHODS["maml"], second_order=False)
        assert g == {"w/0.weight": [-4], "w/1.weight": [12], "alpha": [8, -12]}

    @pytest.mark.parametrize("second_order", [True, False])
    def test_channel_factors(self, second_order: bool) -> None:
        """a' = a - alpha fw bw b (ab - 1) with alpha = 1, fw = 2, bw = 1 is the same step, and

        dL/dfw = -4 * -(1 * 1 * 2) = 8, dL/dbw = -4 * -(1 * 2 * 2) = 16, dL/dalpha = -4 * -(2 * 1 *
        2) = 16, in either order.
        """
        factors = {"0.fw.alpha": torch.tensor([2.0]), "0.bw.alpha": torch.tensor([1.0])}
        g = self.outer(
            self.meta([[1, 1]], factors), Method("static", scores="static"), second_order
        )
        assert (g["attention/0.fw.alpha"], g["attention/0.bw.alpha"], g["alpha"]) == (
            [8],
            [16],
            [16, -12],
        )
        assert (g["w/0.weight"], g["w/1.weight"]) == (
            ([-8], [24]) if second_order else ([-4], [12])
        )

    def test_two_steps(self) -> None:
        """From (a, b) = (1, 2) half steps: (1 - 2/2, 2 - 1/2) = (0, 3/2). There ab - 1 = -1, g(a) =
        -3/2, g(b) = 0, and a step with 2 and 4 gives (3, 3/2); eight samples that are all alike
        change nothing."""
        meta = self.meta([[0.5, 0.5], [2, 4]])
        support = (self.x.expand(8, 1), self.y.expand(8))
        w = InnerLoop(self.net, METHODS["maml"], half_square).adapt(meta, support).w
        assert (w["0.weight"].item(), w["1.weight"].item()) == (3, 1.5)


def test_attention_gets_its_gradient_in_first_order() -> None:
    """With two channels, where softmax is not constant: dL/db2 of the forward module, derived
    below.

    A layer w (1 x 2) at w = (0, 0), then a head v = 1; x = (1, 1), y = -1. The residual is 1 and
    g(w) = (1, 1). With b2 = 0 the scores are gamma = 2 softmax(0, 0) = (1, 1), so w' = (0, 0) - 2
    (1, 1), v' = 1 - 1 * 0 = 1. At the query x = (1, 0), y = 0 the loss is w'_1^2 / 2 with
    derivative -2 in w'_1 and in gamma_1 -2 * -2 = 4. Softmax: dgamma_1/db2 = 2 (1/4, -1/4).
    """
    net = take_in(
        nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False)), torch.zeros(1, 2)
    )
    attention = {}
    for side, c in (("fw", 2), ("bw", 1)):
        for key, t in (
            ("W1", torch.eye(c)),
            ("b1", torch.zeros(c)),
            ("W2", torch.zeros(c, c)),
            ("b2", torch.zeros(c)),
        ):
            attention[f"0.{side}.{key}"] = t.requires_grad_()
    w = {"0.weight": torch.zeros(1, 2), "1.weight": torch.ones(1, 1)}
    meta = Meta(w, torch.tensor([[2.0, 1.0]]), attention, torch.ones(1, 2, dtype=torch.bool))
    loop = InnerLoop(net, replace(ATTENTION, clip_ratio_fw=0.0, clip_ratio_bw=0.0), half_square)
    adapted = loop.adapt(meta, (torch.ones(1, 2), -torch.ones(1))).w
    assert adapted["0.weight"].tolist() == [[-2, -2]]
    loss = half_square(forward(net, adapted, torch.tensor([[1.0, 0.0]]))[0], torch.zeros(1)).sum()
    assert torch.autograd.grad(loss, attention["0.fw.b2"])[0].tolist() == [2, -2]


# Against plain MAML, written anew


def plain_maml(net: Network, meta: Meta, support: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """Eq. 1 with a step size for each layer and step (Eq. 6), by autograd alone."""
    w = meta.w
    owner = {name: net.layers.index(layer) for layer in net.layers for name in layer.params}
    for alpha in meta.alpha:
        loss = nn.functional.cross_entropy(functional_call(net.model, w, (support[0],)), support[1])
        g = torch.autograd.grad(loss, list(w.values()), create_graph=True)
        w = {name: t - alpha[owner[name]] * d for (name, t), d in zip(w.items(), g, strict=True)}
    return w


@pytest.mark.parametrize("second_order", [True, False])
@pytest.mark.parametrize(
    ("method", "batch"),
    [
        (METHODS["maml"], None),
        (METHODS["maml"], 2),
        (replace(METHODS["pmeta"], clip_ratio_fw=None, clip_ratio_bw=None), None),
        (Method("static, all 1", scores="static"), 1),
    ],
    ids=["maml", "maml-2", "both-off", "static"],
)
@pytest.mark.parametrize("model", [Residual, Separable])
def test_without_attention_it_is_maml(
    model: type[nn.Module], method: Method, batch: int | None, second_order: bool
) -> None:
    shape = SHAPE if model is Residual else (2, 8, 8)
    net = network(model(), shape)
    meta = init_meta(net, method, 3, 0.2, generator()).map(lambda t: t.requires_grad_())
    sx, sy, qx, qy = task(shape)
    expected = plain_maml(net, meta, (sx, sy))
    adapted = InnerLoop(net, method, batch=batch, second_order=second_order).adapt(meta, (sx, sy)).w
    torch.testing.assert_close(adapted, expected, rtol=1e-12, atol=1e-12)
    if second_order:
        inputs = [*meta.w.values(), meta.alpha]
        g, g_expected = (
            torch.autograd.grad(
                cross_entropy(functional_call(net.model, w, (qx,)), qy).mean(), inputs
            )
            for w in (adapted, expected)
        )
        torch.testing.assert_close(g, g_expected, rtol=1e-12, atol=1e-12)


# Gradient accumulation


@pytest.mark.parametrize("vectorised", [True, False])
@pytest.mark.parametrize("batch", [1, 2, 5, 7, 100])
def test_micro_batches_change_nothing_without_attention(batch: int, vectorised: bool) -> None:
    """Of 7 samples: 2 and 5 do not divide them."""
    net = network(Residual(), SHAPE)
    meta = meta_of(net, METHODS["maml"], 3)
    support = task(SHAPE, n_support=7)[:2]
    whole = InnerLoop(net, METHODS["maml"]).adapt(meta, support).w
    parts = (
        InnerLoop(net, METHODS["maml"], batch=batch, vectorised=vectorised).adapt(meta, support).w
    )
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", [Residual, Separable])
@pytest.mark.parametrize("batch", [1, 2, 3, 7, 100, None])
def test_vectorised_accumulation_is_the_looped_one(
    model: type[nn.Module], batch: int | None
) -> None:
    """Values and outer gradients, with clipping, over 7 samples; the last micro-batch of 2 or 3 has
    a single sample."""
    shape = SHAPE if model is Residual else (2, 8, 8)
    net = network(model(), shape)
    meta = meta_of(net, ATTENTION).map(lambda t: t.requires_grad_())
    sx, sy, qx, qy = task(shape, n_support=7)
    results = []
    for vectorised in (True, False):
        loop = InnerLoop(net, ATTENTION, batch=batch, vectorised=vectorised, second_order=True)
        w = loop.adapt(meta, (sx, sy)).w
        loss = cross_entropy(forward(net, w, qx)[0], qy).mean()
        results.append((w, torch.autograd.grad(loss, list(meta.parameters().values()))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-11, atol=1e-12)


def test_with_attention_the_micro_batch_matters() -> None:
    """So that the test above does not compare what is the same anyway."""
    net = network(Residual(), SHAPE)
    meta, support = meta_of(net, ATTENTION), task(SHAPE, n_support=7)[:2]
    one, whole = (
        InnerLoop(net, ATTENTION, batch=batch).adapt(meta, support).w["conv2.weight"]
        for batch in (1, None)
    )
    assert (one - whole).abs().max() > 1e-4


@pytest.mark.parametrize(("sparse_fw", "sparse_bw"), [("x", "w"), ("w", "y"), ("x", "y")])
def test_vectorised_ablations_are_the_looped_ones(sparse_fw: str, sparse_bw: str) -> None:
    net = network(Residual(), SHAPE)
    method = replace(ATTENTION, sparse_fw=sparse_fw, sparse_bw=sparse_bw)
    meta, support = meta_of(net, method), task(SHAPE)[:2]
    w = [
        InnerLoop(net, method, batch=2, vectorised=v).adapt(meta, support).w for v in (True, False)
    ]
    torch.testing.assert_close(w[0], w[1], rtol=1e-12, atol=1e-12)


def test_batch_norm_runs_micro_batches_one_by_one() -> None:
    """Its statistics are those of the micro-batch, so vectorised or not, batch 2 differs from the
    whole set, alike."""
    net = network(Separable(4, batch_norm), (2, 8, 8), batch_norm=True)
    meta, support = meta_of(net, METHODS["maml"], 1), task((2, 8, 8))[:2]
    results = {
        (batch, v): InnerLoop(net, METHODS["maml"], batch=batch, vectorised=v)
        .adapt(meta, support)
        .w["stem.0.weight"]
        for batch in (2, None)
        for v in (True, False)
    }
    assert torch.equal(results[2, True], results[2, False])
    assert not torch.allclose(results[2, True], results[None, True])


def test_sparse_x_is_what_the_layer_sees() -> None:
    """Table 7: gamma_fw on x_{l-1} itself, by hand for one fc layer before the head; the others' x
    is dense."""
    first = nn.Linear(4, 3)
    net = network(nn.Sequential(first, nn.Tanh(), nn.Linear(3, 3)), (4,))
    method = replace(ATTENTION, sparse_fw="x", clip_ratio_bw=None)
    meta = meta_of(net, method, 1)
    x, y = task((4,))[:2]
    seen: list[Tensor] = []
    first.register_forward_hook(lambda m, args, out: seen.append(out.detach()))
    InnerLoop(net, method).adapt(meta, (x, y))
    v = torch.relu(x @ meta.attention["0.fw.W1"].T + meta.attention["0.fw.b1"])
    z = (v @ meta.attention["0.fw.W2"].T + meta.attention["0.fw.b2"]).mean(0)
    pi = z.softmax(0)
    order = pi.argsort()
    dropped = 1 + int((pi[order].cumsum(0) < 0.3).sum())
    pi[order[:dropped]] = 0
    gamma = pi / pi.sum() * 4
    expected = (x * gamma) @ meta.w["0.weight"].T + meta.w["0.bias"]
    torch.testing.assert_close(seen[0], expected, rtol=1e-12, atol=1e-12)


def test_sparse_g_y_goes_on_down() -> None:
    """Table 7: of two linear layers below the head the lower one gets a gradient that has passed
    the upper one's gamma_bw."""
    net = network(
        nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 3)),
        (4,),
    )
    method = replace(ATTENTION, sparse_bw="y", clip_ratio_fw=None, clip_ratio_bw=0.5)
    meta = meta_of(net, method, 1)
    meta = replace(meta, mask=torch.tensor([[True, True, False]]))
    static = {
        name: torch.zeros_like(t) if name[-2:] in ("W1", "W2", "b1") else t
        for name, t in meta.attention.items()
    }
    meta = replace(meta, attention=static)
    x, y = task((4,))[:2]
    new = InnerLoop(net, method).adapt(meta, (x, y)).w

    def gamma(l: int) -> Tensor:
        pi = meta.attention[f"{l}.bw.b2"].softmax(0)
        order = pi.argsort()
        pi[order[: 1 + int((pi[order].cumsum(0) < 0.5).sum())]] = 0
        return pi / pi.sum() * 4

    w0, w1, w2 = (meta.w[f"{l}.weight"] for l in range(3))
    logits = x @ w0.T @ w1.T @ w2.T + meta.w["2.bias"]
    g = (logits.softmax(1) - nn.functional.one_hot(y, 3)) / len(x)
    g_y1 = (g @ w2) * gamma(1)
    g_y0 = (g_y1 @ w1) * gamma(0)
    expected = [w0 - meta.alpha[0, 0] * g_y0.T @ x, w1 - meta.alpha[0, 1] * g_y1.T @ (x @ w0.T)]
    torch.testing.assert_close([new["0.weight"], new["1.weight"]], expected, rtol=1e-12, atol=1e-12)


# Only what lives


ABLATIONS = {
    "rho off fw": replace(METHODS["pmeta"], clip_ratio_fw=None),
    "rho off bw": replace(METHODS["pmeta"], clip_ratio_bw=None),
    "rho 0.3 0.3": replace(METHODS["pmeta"], clip_ratio_bw=0.3),
    "static": replace(METHODS["pmeta"], scores="static"),
    "sparse x": replace(METHODS["pmeta"], sparse_fw="x"),
    "sparse y": replace(METHODS["pmeta"], sparse_bw="y", clip_ratio_bw=0.3, clip_ratio_fw=None),
}


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("batch", [None, 1])
@pytest.mark.parametrize("name", [*METHODS, *ABLATIONS])
def test_a_users_own_model(name: str, batch: int | None, norm: str) -> None:
    """All methods and ablations on a depthwise-separable net with a residual, in float32 as the
    user has it."""
    model = Separable(8, batch_norm) if norm == "batch" else Separable(8)
    net = take_in(model, torch.zeros(1, 2, 8, 8), batch_norm=norm == "batch")
    method = {**METHODS, **ABLATIONS}[name]
    meta = init_meta(net, method, 3, 0.05, generator())
    x, y = task((2, 8, 8))[:2]
    loop = InnerLoop(net, method, batch=batch)
    adapted = loop.adapt(meta, (x.float(), y))
    head = set(net.head.params)
    expected = {"head": head, "body": set(meta.w) - head, "all": set(meta.w)}[method.update]
    assert all(t.isfinite().all() for t in adapted.w.values())
    assert changed(meta, adapted.w) == expected
    assert len(adapted.scores) == 3
    assert set(adapted.scores[0]) == {
        layer.name for layer in net.layers if set(layer.params) <= expected
    }


def test_adapted_weights_hold_no_graph_and_leave_the_model_alone() -> None:
    net = network(Residual(), SHAPE)
    before = {name: t.clone() for name, t in net.model.state_dict().items()}
    meta, support = meta_of(net, ATTENTION), task(SHAPE)[:2]
    start = {name: t.clone() for name, t in meta.parameters().items()}
    loop = InnerLoop(net, ATTENTION)
    w = loop.adapt(meta, support).w
    with torch.no_grad():
        torch.testing.assert_close(loop.adapt(meta, support).w, w, rtol=0, atol=0)
    assert not any(t.requires_grad for t in w.values())
    assert all(p.grad is None for p in net.model.parameters())
    torch.testing.assert_close(dict(net.model.state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close(meta.parameters(), start, rtol=0, atol=0)


def test_scores_are_given_back() -> None:
    net = network(Residual(), SHAPE)
    adapted = InnerLoop(net, ATTENTION, batch=1).adapt(meta_of(net, ATTENTION), task(SHAPE)[:2])
    gamma_fw, gamma_bw = adapted.scores[1]["conv2"]
    assert gamma_fw is not None
    assert gamma_bw is not None
    assert (gamma_fw.shape, gamma_bw.shape) == ((5, 4), (5, 6))
    assert adapted.scores[1]["head"] == (None, None)


# Bad input


def test_empty_support() -> None:
    net = network(Residual(), SHAPE)
    loop, meta = InnerLoop(net, METHODS["maml"]), meta_of(net, METHODS["maml"])
    with pytest.raises(
        ValueError, match="as many targets as samples, at least one, got 0 samples, 0 targets"
    ):
        loop.adapt(meta, (torch.zeros(0, *SHAPE), torch.zeros(0)))
    with pytest.raises(ValueError, match="got 2 samples, 3 targets"):
        loop.adapt(meta, (torch.zeros(2, *SHAPE), torch.zeros(3)))


@pytest.mark.parametrize("shape", [(7,), (2, 6), (0, 7), (1, 2, 7)])
def test_alpha_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    net = network(Residual(), SHAPE)
    meta = replace(meta_of(net, METHODS["maml"]), alpha=torch.ones(shape))
    message = rf"a column for each of the 7 layers, got shape \({shape[0]},"
    with pytest.raises(ValueError, match=message):
        InnerLoop(net, METHODS["maml"]).adapt(meta, task(SHAPE)[:2])


def test_mask_of_the_wrong_shape() -> None:
    net = network(Residual(), SHAPE)
    meta = replace(meta_of(net, METHODS["maml"]), mask=torch.ones(1, 7, dtype=torch.bool))
    with pytest.raises(
        ValueError, match=r"for each step size of alpha, shape \(2, 7\).*got shape \(1, 7\)"
    ):
        InnerLoop(net, METHODS["maml"]).adapt(meta, task(SHAPE)[:2])


def test_weights_of_another_model() -> None:
    net = network(Residual(), SHAPE)
    meta = replace(meta_of(net, METHODS["maml"]), w=network(Separable(), (2, 8, 8)).weights())
    with pytest.raises(
        ValueError,
        match=r"names of the model's parameters, got others: take them from net\.weights",
    ):
        InnerLoop(net, METHODS["maml"]).adapt(meta, task(SHAPE)[:2])


def test_negative_alpha() -> None:
    net = network(Residual(), SHAPE)
    meta = meta_of(net, METHODS["maml"])
    meta.alpha[1, 2] = -0.25
    message = "must not be negative, got alpha=-0.25 for layer 'conv2' at step 2: set it to 0"
    with pytest.raises(ValueError, match=message):
        InnerLoop(net, METHODS["maml"]).adapt(meta, task(SHAPE)[:2])


def test_micro_batch_of_nothing() -> None:
    with pytest.raises(
        ValueError,
        match="a micro-batch has at least 1 sample, got batch=0: leave it out for the whole set",
    ):
        InnerLoop(network(Residual(), SHAPE), METHODS["maml"], batch=0)


def test_a_loss_that_is_already_a_mean() -> None:
    net = network(Residual(), SHAPE)
    loop = InnerLoop(net, METHODS["maml"], loss=nn.functional.cross_entropy)
    with pytest.raises(
        ValueError,
        match=r"the loss of each of the 5 samples, shape \(5,\), got \(\): leave its mean",
    ):
        loop.adapt(meta_of(net, METHODS["maml"]), task(SHAPE)[:2])


def test_a_loss_that_leaves_a_layer_out() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.a(x), self.b(x)

    net = network(TwoHeads(), (4,))
    loop = InnerLoop(net, METHODS["maml"], loss=lambda out, y: cross_entropy(out[0], y))
    with pytest.raises(
        ValueError,
        match="depend on every layer that is updated, it does not on b: set mask to False there",
    ):
        loop.adapt(meta_of(net, METHODS["maml"]), task((4,))[:2])
