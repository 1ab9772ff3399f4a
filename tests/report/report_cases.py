# SPDX-License-Identifier: Apache-2.0
"""Ways to read a page back."""

from __future__ import annotations

from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def parsed(markup: str) -> ElementTree.Element:
    """Markup as a tree; what is not well-formed raises."""
    return ElementTree.fromstring(f"<root>{markup}</root>")


def cells_of(markup: str) -> list[list[str]]:
    """The text of all cells of the first table, row by row, the heading included."""
    table = parsed(markup).find(".//table")
    assert table is not None
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
