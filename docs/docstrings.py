# SPDX-License-Identifier: Apache-2.0
"""Adapt docstrings to the parser of the reference pages.

The parser renders ``Examples:`` as code, but ``Example:`` as prose, in which ``>>>`` starts a quotation; so the section
is renamed. The underscore of ``Σ_i`` is an index and must not start emphasis. A reference such as
``:class:`~picirc.tables.Schema``` is replaced by the name.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class Docstrings(Extension):
    """Render examples as code and indices literally."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Adapt the docstring of one object."""
        if obj.docstring:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"(?<=[∏Σ∫])_", r"\_", text)
            text = re.sub(r":\w+:`~[\w.]*?(\w+)`", r"`\1`", text)
            obj.docstring.value = re.sub(r":\w+:(`[\w.]+`)", r"\1", text)
