"""What made a model, for its summary."""

from __future__ import annotations

import platform

import numpy as np
import torch

from picirc import __version__


def versions() -> dict[str, str]:
    """The versions of the programs that matter, by name."""
    found = {"picirc": __version__, "python": platform.python_version()}
    return found | {"torch": torch.__version__, "numpy": np.__version__}
