# SPDX-License-Identifier: Apache-2.0
"""Docstrings for the reference, put into the words that the reader of docstrings understands.

Their ``Example:`` is what it calls ``Examples:``. Under that name it becomes a block of code; under ours it would be
prose, in which ``>>>`` opens a quotation. The underscore of ``Σ_i`` is an index, not the beginning of emphasis; and of
a reference such as ``:class:`~picirc.tables.Schema``` the name is shown.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class Docstrings(Extension):
    """Examples as code, and indices as they are written."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Adapt the docstring of one object."""
        if obj.docstring:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"(?<=[∏Σ∫])_", r"\_", text)
            text = re.sub(r":\w+:`~[\w.]*?(\w+)`", r"`\1`", text)
            obj.docstring.value = re.sub(r":\w+:(`[\w.]+`)", r"\1", text)
