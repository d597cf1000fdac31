"""The paper's backbones as lists of operations (Sec. 4.2, 4.3), for costs without torch."""

from pmeta.cost.ops import Op, m


class Builder:
    """Collects operations; each method appends one that reads `source` and returns the index to
    read it at."""

    def __init__(self, x: tuple[int, ...]):
        self.ops: list[Op] = []
        self.shapes = {-1: x}

    def conv(self, name: str, source: int, channels: int, size: int = 3, bias: bool = False) -> int:
        c, *space = self.shapes[source]
        weight, kernel = channels * c * size**2, (size, size)
        y = (channels, *space)
        own = {"weight": weight, "bias": channels if bias else 0, "kernel": kernel}
        return self._append("conv", y, source, name=name, **own)

    def conv_norm(
        self, conv: str, norm: str, source: int, channels: int, groups: int, size: int = 3
    ) -> int:
        """A conv and its norm; without groups the conv has a bias instead."""
        y = self.conv(conv, source, channels, size, bias=not groups)
        return self.norm(norm, y, groups) if groups else y

    def norm(self, name: str, source: int, groups: int) -> int:
        y = self.shapes[source]
        return self._append("norm", y, source, name=name, weight=y[0], bias=y[0], groups=groups)

    def fc(self, name: str, source: int, channels: int) -> int:
        *rows, c = self.shapes[source]
        return self._append(
            "fc", (*rows, channels), source, name=name, weight=channels * c, bias=channels
        )

    def relu(self, source: int) -> int:
        return self._append("relu", self.shapes[source], source)

    def maxpool(self, source: int) -> int:
        c, h, w = self.shapes[source]
        return self._append("maxpool", (c, h // 2, w // 2), source)

    def pool(self, source: int) -> int:
        return self._append("pool", self.shapes[source][:1], source)

    def flatten(self, source: int) -> int:
        return self._append("view", (m(self.shapes[source]),), source)

    def add(self, first: int, second: int) -> int:
        return self._append("add", self.shapes[first], first, second)

    def _append(self, kind: str, y: tuple[int, ...], *sources: int, **layer: object) -> int:
        self.shapes[len(self.ops)] = y
        self.ops.append(Op(kind, self.shapes[sources[0]], y, sources, **layer))  # type: ignore[arg-type]
        return len(self.ops) - 1


def four_conv(
    n_way: int = 5,
    image: tuple[int, int, int] = (3, 84, 84),
    channels: int = 32,
    groups: int = 8,
    embedding: str = "plain",
) -> tuple[Op, ...]:
    """4Conv: four times conv 3x3, group norm, ReLU and 2x2 max-pool, then fc; with
    embedding="norm" a norm of one group before it, with "signed" and no ReLU before that.

    Without groups it has no norms, and convs with biases."""
    net, at = Builder(image), -1
    for b in range(1, 5):
        at = net.conv_norm(f"conv{b}", f"norm{b}", at, channels, groups)
        at = net.maxpool(at if b == 4 and embedding == "signed" else net.relu(at))
    if embedding != "plain":
        at = net.norm("norm5", at, groups=1)
    net.fc("fc", net.flatten(at), n_way)
    return tuple(net.ops)


def resnet12(
    n_way: int = 5,
    image: tuple[int, int, int] = (3, 84, 84),
    widths: tuple[int, ...] = (64, 128, 256, 512),
    groups: int = 8,
) -> tuple[Op, ...]:
    """ResNet12: blocks of three 3x3 convs beside a 1x1 shortcut, LeakyReLU and max-pool behind the
    sum; then fc."""
    net, at = Builder(image), -1
    for b, width in enumerate(widths, start=1):
        y = at
        for i in (1, 2, 3):
            y = net.conv_norm(f"block{b}.conv{i}", f"block{b}.norm{i}", y, width, groups)
            y = net.relu(y) if i < 3 else y
        shortcut = f"block{b}.shortcut"
        skip = net.conv_norm(shortcut, f"{shortcut}_norm", at, width, groups, size=1)
        at = net.maxpool(net.relu(net.add(y, skip)))
    net.fc("fc", net.pool(at), n_way)
    return tuple(net.ops)


def mlp(
    obs: int, act: int, steps: int = 200, hidden: tuple[int, ...] = (100, 100)
) -> tuple[Op, ...]:
    """MLP policy with ReLU; a sample is an episode of `steps` observations."""
    net, at = Builder((steps, obs)), -1
    for l, width in enumerate(hidden, start=1):
        at = net.relu(net.fc(f"fc{l}", at, width))
    net.fc(f"fc{len(hidden) + 1}", at, act)
    return tuple(net.ops)
