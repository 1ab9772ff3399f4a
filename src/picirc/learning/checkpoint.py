# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: one safetensors file, replaced in one move and loaded without running code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from picirc.atomic import replacing
from picirc.errors import ArgumentError

_NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A training between two steps.

    Attributes:
        state: Plain numbers and texts: the step, the best score, the records so far, the settings.
        tensors: The model's, the best model's and the optimizer's tensors, by name.
    """

    state: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with a prefix, without it."""
        return {n[len(prefix) :]: t for n, t in self.tensors.items() if n.startswith(prefix)}


def save_checkpoint(
    folder: Path, model: nn.Module, best: Mapping[str, Tensor], optimizer: Optimizer | None, state: Mapping[str, Any]
) -> None:
    """Write everything that a training needs to continue as if it had never stopped."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    if optimizer is not None:
        for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            for name, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{number}.{name}"] = value
    flat = {name: value.detach().contiguous() for name, value in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / _NAME) as (partial,):
        try:
            save_file(flat, partial, metadata={"state": json.dumps(dict(state))})
        except SafetensorError as error:  # as it reports a full disk
            raise OSError(f"{folder / _NAME}: {error}") from error


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a folder; None when there is none."""
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            state = _state(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        expected = "a checkpoint that was written completely"
        raise ArgumentError("resume", expected, f"{path.name}: {error}", "delete it to start anew") from error
    return Checkpoint(state, tensors)


def _state(metadata: Mapping[str, str] | None) -> Mapping[str, Any]:
    found = json.loads((metadata or {}).get("state", "null"))
    if not isinstance(found, dict) or "identity" not in found:
        raise ValueError("it does not hold the state of a training")
    return found


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer | None) -> None:
    """Put the tensors of a checkpoint back where they came from."""
    load_parameters(model, checkpoint.part("model."))
    if optimizer is None:
        return
    for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        found = checkpoint.part(f"optimizer.{number}.")
        if found:
            optimizer.state[parameter] = {
                # Counts stay where they were; moments live with their parameter.
                name: value if value.ndim == 0 else value.to(parameter.device)
                for name, value in found.items()
            }


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load a model's tensors, refusing those of another model."""
    own = model.state_dict()
    wrong = [n for n in own if n not in tensors or tensors[n].shape != own[n].shape] + [
        n for n in tensors if n not in own
    ]
    if wrong:
        raise ArgumentError(
            "resume", "a checkpoint of this model", f"other tensors: {', '.join(wrong[:3])}", "use another folder"
        )
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])
