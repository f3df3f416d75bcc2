"""The deep residual network of IMPALA (Espeholt et al. 2018, figure 3, right, without the LSTM), in PyTorch."""

import torch
from torch import nn
from work import FEATURES


class _Block(nn.Module):
    """A residual block: two convolutions, each after a ReLU, with a skip connection."""

    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.second(torch.relu(self.first(torch.relu(hidden))))


class ImpalaResNet(nn.Module):
    """Three sections of a convolution, a pooling that halves the image, and two blocks; then a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for channels in (16, 32, 32):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            layers += [_Block(channels), _Block(channels)]
            before = channels
        self.layers = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(32 * 8 * 8, FEATURES), nn.ReLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Map floats in [0, 1], `[N, 3, 64, 64]`, to features `[N, 256]`."""
        return self.layers(image)
