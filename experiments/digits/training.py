"""The network in torch, trained on one thread from a seed."""

import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from experiments.digits.architecture import (
    BLOCKS,
    BN_EPSILON,
    N_CLASSES,
    UPSAMPLING,
    Block,
    ConvBn,
    State,
    list_convs,
    make_shortcut,
    make_stem,
)
from experiments.digits.data import SEED, Samples

__all__ = ["EPOCHS", "train"]

EPOCHS = 24
BATCH = 40
LEARNING_RATE = 4e-3


class ConvBnModule(nn.Module):
    """The torch side of ``ConvBn``."""

    def __init__(self, spec: ConvBn) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            spec.channels_in,
            spec.channels_out,
            spec.kernel,
            stride=spec.stride,
            padding=spec.kernel // 2,
            groups=spec.groups,
            bias=False,
        )
        self.bn = nn.BatchNorm2d(spec.channels_out, eps=BN_EPSILON)
        self.relu = spec.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve, normalize, perhaps rectify."""
        y: torch.Tensor = self.bn(self.conv(x))
        return functional.relu(y) if self.relu else y


class Gate(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeeze, 1)
        self.excite = nn.Conv2d(squeeze, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale each channel by a number that the means of all channels decide."""
        pooled = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.excite(functional.relu(self.reduce(pooled))))


class BlockModule(nn.Module):
    """The torch side of ``Block``."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        convs = list_convs(block)
        self.names = [spec.name.rsplit("/", 1)[1] for spec in convs]
        modules = [ConvBnModule(spec) for spec in convs]
        for name, module in zip(self.names, modules, strict=True):
            self.add_module(name, module)
        self.se = Gate(block.expansion, block.squeeze) if block.squeeze else None
        self.shortcut = ConvBnModule(make_shortcut(block)) if block.has_shortcut else None
        nn.init.zeros_(modules[-1].bn.weight)  # every block starts as the identity

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the block computes to its input."""
        y = x
        for name in self.names[:-1]:
            y = self.get_submodule(name)(y)
        y = self.get_submodule(self.names[-1])(y if self.se is None else self.se(y))
        return functional.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Network(nn.Module):
    """The whole network, images to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBnModule(make_stem())
        self.blocks = nn.ModuleList(BlockModule(block) for block in BLOCKS)
        self.head = nn.Linear(BLOCKS[-1].channels_out, N_CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images."""
        x = functional.interpolate(x, scale_factor=UPSAMPLING, mode="bilinear", align_corners=False)
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x.mean((2, 3)))
        return logits

    def read_state(self) -> State:
        """Parameters and running statistics by scope, e.g. ``"stage1/block0/conv1/bn/weight"``."""
        scopes = {f"blocks.{number}.": f"{block.name}/" for number, block in enumerate(BLOCKS)}
        state = {}
        for key, value in self.state_dict().items():
            prefix = next((prefix for prefix in scopes if key.startswith(prefix)), "")
            state[(scopes.get(prefix, "") + key.removeprefix(prefix)).replace(".", "/")] = value.numpy()
        return state


def distort(x: torch.Tensor) -> torch.Tensor:
    """Turn, scale and shift each image a little."""
    angle, scale = (torch.rand(2, len(x)) - 0.5) * torch.tensor([[0.45], [0.25]])
    cos, sin = torch.cos(angle) * (1 + scale), torch.sin(angle) * (1 + scale)
    dx, dy = (torch.rand(2, len(x)) - 0.5) * 0.4
    theta = torch.stack([torch.stack([cos, -sin, dx], 1), torch.stack([sin, cos, dy], 1)], 1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def train(samples: Samples, *, epochs: int) -> State:
    """Train the network for a fixed number of epochs; the test part is never looked at."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    network = Network()
    image, label = torch.from_numpy(samples.image), torch.from_numpy(samples.label)
    n_batches = len(samples) // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=5e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=epochs * n_batches, pct_start=0.2
    )
    network.train()
    for epoch in range(epochs):
        order, losses, started = torch.randperm(len(samples)), [], time.perf_counter()
        for step in range(n_batches):
            rows = order[step * BATCH : (step + 1) * BATCH]
            x = distort(image[rows]) if epoch < epochs - 2 else image[rows]  # the statistics end on undistorted images
            loss = functional.cross_entropy(network(x), label[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        seconds = time.perf_counter() - started
        print(f"epoch {epoch + 1:2}/{epochs}: loss {np.mean(losses):.4f}, {seconds:.1f} s", flush=True)
    return network.read_state()
