"""The backbones of the paper (Sec. 4.2, 4.3): plain modules that know nothing of p-Meta."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _norm(kind: str, channels: int, groups: int) -> nn.Module:
    """Group norm; the batch norm of Table 5, which always uses the statistics of the batch at hand;
    or none, where the convs have biases: what is left of a batch norm whose statistics are folded
    into the conv before it."""
    if kind == "group":
        return nn.GroupNorm(groups, channels)
    if kind == "batch":
        return nn.BatchNorm2d(channels, track_running_stats=False)
    if kind == "none":
        return nn.Identity()
    raise ValueError(f"norm must be 'group', 'batch' or 'none', got {kind!r}.")


def _conv(c_in: int, c_out: int, size: int, norm: str) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, size, padding=size // 2, bias=norm == "none")


def _pool(kind: str) -> str:
    if kind not in ("max", "average"):
        raise ValueError(f"pool must be 'max' or 'average', got {kind!r}.")
    return kind


def _shrink(kind: str, y: Tensor, slope: float) -> Tensor:
    """(Leaky)ReLU and 2x2 pooling. Max-pooling commutes with a rising function, and pooled first it
    costs a quarter."""
    if kind == "max":
        return _rectified(F.max_pool2d(y, 2), slope)
    return F.avg_pool2d(_rectified(y, slope), 2)


def _rectified(y: Tensor, slope: float) -> Tensor:
    """LeakyReLU with this slope; 0 is ReLU, and 1 changes nothing."""
    if slope == 1:
        return y
    return F.leaky_relu(y, slope) if slope else F.relu(y)


class FourConv(nn.Module):
    """4Conv (Finn et al. 2017): four blocks of 3x3 conv, norm, ReLU and 2x2 pooling, then one fc
    layer.

    The paper gives no number of groups; the default is 8 (with 32 channels, groups of 4).
    With embedding="norm" a norm of one group gives all embeddings the same length, for prototypes;
    with "signed" it comes behind a last block without ReLU, whose embeddings have all directions.

    >>> FourConv()(torch.zeros(2, 3, 84, 84)).shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        n_way: int = 5,
        image: tuple[int, int, int] = (3, 84, 84),
        channels: int = 32,
        groups: int = 8,
        norm: str = "group",
        pool: str = "max",
        embedding: str = "plain",
    ):
        super().__init__()
        self.pool = _pool(pool)
        c, h, w = image
        if min(h, w) < 16:
            raise ValueError(
                f"4Conv halves the image four times and needs at least 16x16 pixels, got {h}x{w}."
            )
        self.blocks = range(1, 5)
        for b in self.blocks:
            self.add_module(f"conv{b}", _conv(c if b == 1 else channels, channels, 3, norm))
            self.add_module(f"norm{b}", _norm(norm, channels, groups))
        if embedding not in ("plain", "norm", "signed"):
            raise ValueError(f"embedding must be 'plain', 'norm' or 'signed', got {embedding!r}.")
        self.embedding = embedding
        if embedding != "plain":
            self.norm5 = nn.GroupNorm(1, channels)
        self.fc = nn.Linear(channels * (h // 16) * (w // 16), n_way)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, n_way)
        for b in self.blocks:
            y = self.get_submodule(f"norm{b}")(self.get_submodule(f"conv{b}")(x))
            slope = 1.0 if b == 4 and self.embedding == "signed" else 0.0
            x = _shrink(self.pool, y, slope)  # (B, channels, H / 2^b, W / 2^b)
        if self.embedding != "plain":
            x = self.norm5(x)
        return self.fc(x.flatten(1))


class ResidualBlock(nn.Module):
    """Three 3x3 convs with norms beside a 1x1 shortcut conv with its norm; LeakyReLU and pooling
    behind the sum."""

    def __init__(self, c_in: int, c_out: int, groups: int, norm: str, pool: str):
        super().__init__()
        self.pool = _pool(pool)
        for i in range(1, 4):
            self.add_module(f"conv{i}", _conv(c_in if i == 1 else c_out, c_out, 3, norm))
            self.add_module(f"norm{i}", _norm(norm, c_out, groups))
        self.shortcut = _conv(c_in, c_out, 1, norm)
        self.shortcut_norm = _norm(norm, c_out, groups)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(1, 4):
            y = self.get_submodule(f"norm{i}")(self.get_submodule(f"conv{i}")(y))
            if i < 3:
                y = F.leaky_relu(y, 0.1)
        return _shrink(self.pool, y + self.shortcut_norm(self.shortcut(x)), 0.1)


class ResNet12(nn.Module):
    """ResNet12 (Oreshkin et al. 2018): four residual blocks, global average pooling, one fc layer.

    >>> sum(p.numel() for p in ResNet12().parameters())
    7999365
    """

    def __init__(
        self,
        n_way: int = 5,
        image: tuple[int, int, int] = (3, 84, 84),
        widths: tuple[int, ...] = (64, 128, 256, 512),
        groups: int = 8,
        norm: str = "group",
        pool: str = "max",
    ):
        super().__init__()
        if min(image[1:]) < 2 ** len(widths):
            raise ValueError(
                f"ResNet12 halves the image {len(widths)} times and needs at least "
                f"{2 ** len(widths)} pixels a side, got {image[1]}x{image[2]}."
            )
        for b, (c_in, c_out) in enumerate(zip((image[0], *widths), widths, strict=False), start=1):
            self.add_module(f"block{b}", ResidualBlock(c_in, c_out, groups, norm, pool))
        self.blocks = len(widths)
        self.fc = nn.Linear(widths[-1], n_way)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, n_way)
        for b in range(1, self.blocks + 1):
            x = self.get_submodule(f"block{b}")(x)
        return self.fc(x.mean((2, 3)))


class MLPPolicy(nn.Module):
    """Gaussian policy with two hidden layers of 100 and ReLU (Sec. 4.3): the mean of the action,
    and log sigma.

    >>> mean, log_std = MLPPolicy(20, 6)(torch.zeros(3, 200, 20))
    >>> mean.shape, log_std.shape
    (torch.Size([3, 200, 6]), torch.Size([6]))
    """

    def __init__(self, observation: int, action: int, hidden: tuple[int, ...] = (100, 100)):
        super().__init__()
        sizes = (observation, *hidden, action)
        self.depth = len(sizes) - 1
        for i in range(self.depth):
            self.add_module(f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))
        self.log_std = nn.Parameter(torch.zeros(action))

    # (..., observation) -> (..., action), (action,)
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for i in range(1, self.depth):
            x = F.relu(self.get_submodule(f"fc{i}")(x))
        return self.get_submodule(f"fc{self.depth}")(x), self.log_std


def initialise(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw the weights of convs and fc layers anew from `generator`, in PyTorch's own
    distribution."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            bound = module.weight[0].numel() ** -0.5
            for p in module.parameters(recurse=False):
                nn.init.uniform_(p, -bound, bound, generator=generator)
    return model
