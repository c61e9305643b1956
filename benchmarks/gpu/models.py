"""The models that are trained, in plain PyTorch: ResNet-50 (He et al., CVPR 2016, table 1), a GPT (Radford et al., 2019), and
two small ones of the kinds in Gandiva's Table 1: a variational autoencoder (Kingma and Welling, 2014) of images of 28 by 28
pixels, and a super-resolution network (Shi et al., CVPR 2016)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inside: int, middle: int, stride: int) -> None:
        super().__init__()
        outside = 4 * middle
        self.path = nn.Sequential(
            *(nn.Conv2d(inside, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True)),
            *(nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True)),
            *(nn.Conv2d(middle, outside, 1, bias=False), nn.BatchNorm2d(outside)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.path(x) + self.shortcut(x))


class ResNet50(nn.Sequential):
    """25.6 million parameters."""

    def __init__(self, classes: int = 1000) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        layers.append(nn.MaxPool2d(3, 2, 1))
        inside = 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            middle = 64 << stage
            for block in range(blocks):
                layers.append(Bottleneck(inside, middle, 2 if stage and not block else 1))
                inside = 4 * middle
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """With 48 blocks of width 1600, 1.6 thousand million parameters, as GPT-2 XL."""

    def __init__(self, blocks: int, width: int = 1600, heads: int = 25, words: int = 50257, length: int = 1024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, words: Any) -> Any:
        x = self.blocks(self.words(words) + self.places[: words.shape[1]])
        return self.norm(x) @ self.words.weight.t()


class VAE(nn.Module):
    """Two layers each way, 20 latent variables."""

    def __init__(self, pixels: int = 784, middle: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(pixels, middle), nn.ReLU(), nn.Linear(middle, 2 * latent))
        self.decode = nn.Sequential(nn.Linear(latent, middle), nn.ReLU(), nn.Linear(middle, pixels))

    def forward(self, x: Any) -> Any:
        """The negative evidence lower bound, summed over the batch."""
        mean, log_variance = self.encode(x).float().chunk(2, dim=1)
        drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        error = nn.functional.binary_cross_entropy_with_logits(self.decode(drawn).float(), x, reduction="sum")
        return error - 0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()


class SuperResolution(nn.Sequential):
    """Three times as many pixels each way."""

    def __init__(self, times: int = 3) -> None:
        super().__init__(
            *(nn.Conv2d(1, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, times * times, 3, padding=1)),
            nn.PixelShuffle(times),
        )


BYTES_PER_PARAMETER = 16
"""Weight, gradient, and AdamW's two averages, of 4 bytes each."""


def gpt_blocks(most_bytes: int, width: int = 1600, words: int = 50257) -> int:
    """How many blocks a GPT may have so that its weights, gradients and AdamW's state take no more than this."""
    fixed = (words + 1024 + 2) * width
    each = 12 * width * width + 13 * width
    return max(1, min(48, (most_bytes // BYTES_PER_PARAMETER - fixed) // each))
