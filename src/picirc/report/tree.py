"""The tree of dependencies: which columns tell most about each other, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from picirc.report.markup import Markup, join, number, shorten, tag, text_width
from picirc.report.material import Material
from picirc.report.scales import label
from picirc.report.svg import FONT, drawing
from picirc.structure.trees import LatentTree

_ROW, _GAP, _PAD = 32.0, 44.0, 10.0  # between leaves, between generations, inside of a name's frame
_THICKEST = 7.0
_MOST_CENTRED = 40  # latents of a tree that is seen at once


@dataclass(frozen=True)
class Node:
    """A latent in the drawing.

    Attributes:
        name: The names of its variables, shortened; empty for a latent without any.
        x: The left end of its frame.
        y: Its middle.
        width: Of its frame.
        end: Where its generation ends, and lines to the next one may bend.
    """

    name: str
    x: float
    y: float
    width: float
    end: float


def section(material: Material) -> Markup:
    """The drawing of the tree."""
    structure = material.tree
    nodes = layout(structure, [field.name for field in material.fields])
    strengths = [edge_information(material, structure, latent) for latent in range(structure.n_latents)]
    strongest = max(strengths, default=0.0)
    lines = []
    for latent, parent in enumerate(structure.parents):
        if parent >= 0:
            share = strengths[latent] / strongest if strongest else 0.0
            lines.append(_edge(nodes[parent], nodes[latent], strengths[latent], share))
    frames = [_frame(node, material, structure.variables[latent]) for latent, node in enumerate(nodes)]
    width = max(node.x + node.width for node in nodes) + 4
    height = max(node.y for node in nodes) + _ROW / 2 + 4
    picture = drawing(width, height, *lines, *frames, title="The tree of dependencies", class_="tree")
    return tag("div", picture, class_="scroll", tabindex=0) + _key(strongest)


def edge_information(material: Material, tree: LatentTree, latent: int) -> float:
    """The most that a variable of a latent tells about one of its parent, in nats."""
    parent = tree.parents[latent]
    pairs = [(a, b) for a in tree.variables[latent] for b in (tree.variables[parent] if parent >= 0 else ())]
    return max((float(material.information[pair]) for pair in pairs), default=0.0)


def layout(tree: LatentTree, names: Sequence[str]) -> list[Node]:
    """Generations from left to right, each as wide as its longest name, on the rows of ``rows_of``."""
    labels = [shorten(", ".join(names[v] for v in own), 22) for own in tree.variables]
    widths = [text_width(name, FONT) + 2 * _PAD if name else 10.0 for name in labels]
    depth = [0] * tree.n_latents
    for latent in reversed(tree.order[:-1]):
        depth[latent] = depth[tree.parents[latent]] + 1
    ends, start = [], 4.0
    for level in range(max(depth) + 1):
        ends.append(start + max(width for width, d in zip(widths, depth, strict=True) if d == level))
        start = ends[-1] + _GAP
    starts = [4.0, *(end + _GAP for end in ends)]
    rows = rows_of(tree)
    return [
        Node(labels[k], starts[depth[k]], (rows[k] - min(rows) + 0.5) * _ROW, widths[k], ends[depth[k]])
        for k in range(tree.n_latents)
    ]


def rows_of(tree: LatentTree) -> list[float]:
    """A row for each latent, so that all of one generation are at least one row apart and no lines cross.

    Children stand as close as the generations below them allow, the one with most below it first. Parents stand in the
    middle of their children or, in a tree too large to be seen at once, beside the first of them: the root is then at
    the top, where one begins to read.
    """
    below = [1] * tree.n_latents
    for latent in tree.order[:-1]:
        below[tree.parents[latent]] += below[latent]
    centred = tree.n_latents <= _MOST_CENTRED
    shift = [0.0] * tree.n_latents  # from a parent's row to its child's
    tops: list[list[float]] = [[] for _ in below]  # the first row of each generation, from the latent's own
    bottoms: list[list[float]] = [[] for _ in below]  # and the last one
    for latent in tree.order:  # children before parents
        top: list[float] = []
        bottom: list[float] = []
        children = sorted(tree.children[latent], key=lambda child: (-below[child], child))
        for child in children:
            # Generations that the earlier children do not have leave room.
            needed = [down - up for down, up in zip(bottom, tops[child], strict=False)]
            shift[child] = max(needed) + 1 if needed else 0.0
            bottom = _merged(bottom, bottoms[child], shift[child], later=True)
            top = _merged(top, tops[child], shift[child], later=False)
        middle = (shift[children[0]] + shift[children[-1]]) / 2 if children and centred else 0.0
        for child in children:
            shift[child] -= middle
            tops[child], bottoms[child] = [], []
        tops[latent], bottoms[latent] = ([0.0, *(row - middle for row in edge)] for edge in (top, bottom))
    rows = [0.0] * tree.n_latents
    for latent in reversed(tree.order[:-1]):
        rows[latent] = rows[tree.parents[latent]] + shift[latent]
    return rows


def _merged(edge: list[float], child: list[float], shift: float, *, later: bool) -> list[float]:
    """The edge of several children: of each generation that two of them have, the later (or the earlier) one's."""
    both = min(len(edge), len(child))
    inner = [child[i] + shift if later else edge[i] for i in range(both)]
    return [*inner, *edge[both:], *(row + shift for row in child[both:])]


def _edge(parent: Node, child: Node, strength: float, share: float) -> Markup:
    start, end = parent.end, child.x
    bend = 0.6 * (end - start)
    path = (
        f"M{number(parent.x + parent.width)} {number(parent.y)}H{number(start)}"
        f"C{number(start + bend)} {number(parent.y)} "
        f"{number(end - bend)} {number(child.y)} {number(end)} {number(child.y)}"
    )
    words = f"{parent.name or 'latent'} – {child.name or 'latent'}: {label(strength, 0.01)} nats"
    return tag("path", tag("title", words), d=path, class_="edge", stroke_width=1 + (_THICKEST - 1) * share)


def _frame(node: Node, material: Material, variables: tuple[int, ...]) -> Markup:
    fields = [material.fields[v] for v in variables]
    if not fields:
        return tag("circle", cx=node.x + 5, cy=node.y, r=5.0, class_="latent")
    kind = "coded" if fields[0].labels else "void" if fields[0].empty else "numeric"
    box = tag("rect", x=node.x, y=node.y - 12, width=node.width, height=24.0, rx=12.0, class_=f"node {kind}")
    words = join((f"{field.name} ({field.kind})" for field in fields), ", ")
    name = tag("text", node.name, x=node.x + node.width / 2, y=node.y + 4, text_anchor="middle")
    return tag("g", tag("title", words), box, name)


def _key(strongest: float) -> Markup:
    def item(class_: str, text: str) -> Markup:
        return tag("span", tag("i", class_=f"swatch {class_}"), text)

    thick = f"the thicker a line, the more its ends tell about each other, up to {label(strongest, 0.01)} nats"
    return tag("p", item("numeric", "numbers"), item("coded", "categories"), tag("span", thick), class_="key")
