# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits: learn a PIC and a hidden Chow–Liu tree on the same structure, compare them and draw samples."""

from __future__ import annotations

import math
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import picirc as pc

POINTS = 32
STEPS = 1000
MODEL = Path("demo-digits")


def independent_bits(train: np.ndarray, test: np.ndarray, values: int) -> float:
    """Bits per dimension if the pixels are independent."""
    counts = np.stack([np.bincount(column, minlength=values) for column in train.T]) + 1.0
    logs = np.log2(counts / counts.sum(1, keepdims=True))
    return float(-np.take_along_axis(logs, test.T, 1).mean())


def chow_liu_bits(train: np.ndarray, test: np.ndarray, values: int) -> float:
    """Bits per dimension of a Chow–Liu tree over the pixels, with one pseudo-count for each row of a table."""
    tree = pc.hidden_chow_liu(train)  # its latents, one for each pixel, form the Chow–Liu tree
    total = 0.0
    for child, parent in enumerate(tree.parents):
        given = (train[:, parent], test[:, parent]) if parent >= 0 else (0 * train[:, 0], 0 * test[:, 0])
        table = np.full((values, values), 1.0 / values)
        np.add.at(table, (given[0], train[:, child]), 1.0)
        logs = np.log2(table / table.sum(1, keepdims=True))
        total -= logs[given[1], test[:, child]].mean()
    return total / train.shape[1]


def bits(qpc: pc.QPC, data: np.ndarray) -> float:
    """Bits per dimension of a circuit."""
    return pc.bits_per_dimension(pc.mean_log_prob(qpc, data), data.shape[1])


def learn(data: pc.data.Dataset) -> tuple[pc.PIC, pc.HCLT]:
    """Fit a PIC and an HCLT on the same tree, with the same number of states."""
    tree = pc.hidden_chow_liu(data.train)
    family = pc.Categorical(data.categories)
    seed = torch.Generator().manual_seed(0)
    pic = pc.PIC(tree, inputs=family, width=256, sharing="composite", input_sharing="full", generator=seed)
    schedule = pc.Cosine(1e-2, 1e-4, period=None, warmup=50)
    options = {"steps": STEPS, "schedule": schedule, "optimizer": "adamw", "weight_decay": 0.1, "validate_every": 50}
    pic, _ = pc.fit(pic, data.train, data.valid, rule=pc.shifted(POINTS), **options)
    hclt = pc.HCLT(tree, inputs=family, states=POINTS, generator=seed)
    schedule = pc.Cosine(0.6, 0.02, period=None)
    options = {"steps": STEPS, "schedule": schedule, "smoothing": 0.2, "validate_every": 50}
    hclt, _ = pc.fit_em(hclt, data.train, data.valid, **options)
    return pic, hclt


def sheet(images: torch.Tensor, columns: int) -> np.ndarray:
    """Arrange images ``(n, 64)`` in a grid, with a margin around each."""
    padded = torch.nn.functional.pad(images.reshape(-1, columns, 8, 8), (1, 1, 1, 1))
    return padded.permute(0, 2, 1, 3).reshape(-1, columns * 10).numpy()


def draw(qpc: pc.QPC, hclt: pc.QPC, test: np.ndarray, path: Path) -> None:
    """Draw samples, inpaintings and a sum region of each model in one picture."""
    source = torch.Generator().manual_seed(1)
    originals = torch.as_tensor(test[:10], dtype=torch.float32)
    top = originals.clone()
    top[:, 32:] = math.nan
    filled = qpc.sample(3, given=top, generator=source)
    rows = torch.cat([originals[None], top.nan_to_num(0.0)[None], filled, qpc.mean(given=top)[None]])
    figure, axes = plt.subplots(2, 2, figsize=(11, 9.5), layout="constrained")
    panels = {
        "Samples of the PIC": sheet(qpc.sample(60, generator=source), 10),
        "Inpainting: original, evidence, three samples, mean": sheet(rows.reshape(-1, 64), 10),
    }
    for axis, (title, image) in zip(axes[0], panels.items(), strict=True):
        axis.imshow(image, cmap="gray_r", vmin=0, vmax=16)
        axis.set_title(title)
        axis.axis("off")
    for axis, circuit, name in zip(axes[1], (hclt, qpc), ("HCLT", "QPC"), strict=True):
        axis.imshow(circuit.parameters.weights[0].detach()[20, 0] ** 0.5, cmap="magma", vmin=0, vmax=0.6)
        axis.set_title(f"One sum region of the {name} (square roots)")
        axis.set_xlabel("state of the child")
        axis.set_ylabel("state of the parent")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Fit, compare, draw."""
    start = time.perf_counter()
    data = pc.data.load("digits")
    print(f"\nDigits: {len(data.train)} training images of 8 × 8 pixels, {len(data.test)} test images; N = {POINTS}")
    pic, table = learn(data)
    qpc, hclt = pic(pc.midpoint(POINTS)), table()
    scores = {
        "independent pixels": independent_bits(data.train, data.test, data.categories),
        "Chow–Liu tree": chow_liu_bits(data.train, data.test, data.categories),
        "hidden Chow–Liu tree (EM)": bits(hclt, data.test),
        "probabilistic integral circuit": bits(qpc, data.test),
    }
    print("bits per dimension on the test images:")
    for name, score in scores.items():
        print(f"  {name:32s} {score:.3f}  {'█' * round(14 * score)}")
    path = Path("demo-digits.png")
    draw(qpc, hclt, data.test, path)
    print(f"samples, inpaintings and sum regions: {path}  ({time.perf_counter() - start:.0f} s)")
    pc.save(pic, MODEL)


if __name__ == "__main__":
    main()
