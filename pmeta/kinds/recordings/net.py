"""A small network for windows of sensor readings."""

import torch
from torch import Tensor, nn


class SensorNet(nn.Module):
    """Three convs over time that halve it, each with norm and ReLU, then one fc layer.

    >>> SensorNet(inputs=6, length=64, classes=5)(torch.zeros(2, 6, 64)).shape
    torch.Size([2, 5])
    """

    def __init__(self, inputs: int, length: int, classes: int, channels: int = 24):
        super().__init__()
        if length < 8:
            raise ValueError(f"the network halves a window three times, got --length {length}.")
        for b in range(1, 4):
            conv = nn.Conv1d(inputs if b == 1 else channels, channels, 5, stride=2, padding=2)
            self.add_module(f"conv{b}", conv)
            self.add_module(f"norm{b}", nn.GroupNorm(4, channels))
            length = (length + 1) // 2
        self.fc = nn.Linear(channels * length, classes)

    def forward(self, x: Tensor) -> Tensor:  # (B, inputs, length) -> (B, classes)
        for b in range(1, 4):
            y = self.get_submodule(f"norm{b}")(self.get_submodule(f"conv{b}")(x))
            x = torch.relu(y)  # (B, channels, length / 2^b)
        return self.fc(x.flatten(1))
