# SPDX-License-Identifier: Apache-2.0
"""Folders of the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for downloads and compiled code: ``picirc`` in the user's cache folder.

    ``XDG_CACHE_HOME`` comes first on every platform.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the XDG convention: relative paths are ignored
        return Path(chosen) / "picirc"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "picirc" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "picirc"
    return Path.home() / ".cache" / "picirc"
