"""The models of the table in docs/guide/firmware.md that are not in the zoo, with random weights:
instructions and bytes depend on the network and on which layers are updated, not on the weights."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from pmeta.compiler.export import export
from pmeta.method.learned import Meta, init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import initialise
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.rl.config import RLConfig
from pmeta.rl.train import build, make_env
from pmeta.sensors.net import SensorNet


def written(model: nn.Module, shape: tuple[int, ...], live: Sequence[str], steps: int) -> bytes:
    """A model of p-Meta that updates the layers `live` in each of its steps."""
    generator = torch.Generator().manual_seed(0)
    net = take_in(initialise(model, generator), torch.zeros(1, *shape))
    meta = init_meta(net, METHODS["pmeta"], steps, 0.01, generator).map(torch.Tensor.detach)
    meta = only(net, meta, live)
    return export(net, meta, METHODS["pmeta"], shape).data


def only(net: Network, meta: Meta, live: Sequence[str]) -> Meta:
    """The same with step sizes of 0 in all other layers."""
    kept = torch.tensor([layer.name in live for layer in net.layers])
    p = meta.parameters()
    meta = meta.with_parameters({**p, "alpha": p["alpha"] * kept})
    return Meta(meta.w, meta.alpha, meta.attention, meta.updates())


def policy() -> bytes:
    """2D navigation: two hidden layers of 100, an episode of 100 observations."""
    config = RLConfig(method="pmeta")
    env = make_env(config)
    net, meta = build(config, env)
    return export(net, meta, config.method_row(), (config.horizon, env.obs_size)).data


MODELS: dict[str, Callable[[], bytes]] = {
    "sensor": lambda: written(SensorNet(6, 128, 5), (6, 128), ("conv3", "fc"), 3),
    "policy": policy,
}
