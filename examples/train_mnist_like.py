"""Train a small convolution net on pictures of digits that are drawn here: segments of a display, shifted and noisy.

python examples/train_mnist_like.py [--steps 80]
"""

import argparse

import torch
from torch import nn

import sardonyx

# The segments of a display by their usual letters, as rows and columns of a picture, and those that are lit for each digit.
SEGMENTS = {"a": (1, slice(2, 6)), "g": (6, slice(2, 6)), "d": (11, slice(2, 6))}
SIDES = {"f": (slice(1, 7), 2), "b": (slice(1, 7), 5), "e": (slice(6, 12), 2), "c": (slice(6, 12), 5)}
LIT = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgecd", "abc", "abcdefg", "abfgcd")


def pictures(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits in random positions, with noise, and what they show."""
    labels = torch.randint(0, 10, (count,))
    batch = 0.25 * torch.randn(count, 1, 16, 16)
    for picture, label in zip(batch[:, 0], labels.tolist(), strict=True):
        row, column = torch.randint(0, 4, (2,)).tolist()
        window = picture[row : row + 13, column : column + 8]
        for name in LIT[label]:
            window[{**SEGMENTS, **SIDES}[name]] += 1.0
    return batch, labels


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32 * 4 * 4, 10),
    )
    model = sardonyx.training.TrainingModule(model)  # the only line that differs from eager PyTorch
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(steps):
        images, labels = pictures(32)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3}: loss {loss.item():.3f}")
    images, labels = pictures(300)
    with torch.no_grad():
        accuracy = (model.eval()(images).argmax(1) == labels).float().mean().item()
    print(f"accuracy on new pictures: {accuracy:.1%}")
    if steps >= 80 and accuracy < 0.9:
        raise SystemExit("it has not learned")


if __name__ == "__main__":
    main()
