# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import SVG, parsed

import picirc as pc
from picirc.report.sections import edge_information, layout, rows_of
from picirc.report.sections import tree_section as section

TREES = st.builds(pc.random_tree, st.integers(1, 70), st.integers(0, 10**6))


def generations(tree: pc.LatentTree) -> dict[int, list[int]]:
    depth = {tree.root: 0}
    for latent in reversed(tree.order[:-1]):
        depth[latent] = depth[tree.parents[latent]] + 1
    found = defaultdict(list)
    for latent, level in depth.items():
        found[level].append(latent)
    return found


@given(TREES)
def test_latents_of_a_generation_are_apart_and_lines_do_not_cross(tree):
    rows = rows_of(tree)
    for members in generations(tree).values():
        ordered = sorted(members, key=lambda latent: rows[latent])
        assert all(rows[b] - rows[a] >= 1 - 1e-9 for a, b in pairwise(ordered))
        above = [rows[tree.parents[latent]] for latent in ordered if tree.parents[latent] >= 0]
        assert above == sorted(above)


@given(TREES)
def test_parents_end_before_their_children_begin(tree):
    nodes = layout(tree, [f"{'name' * (i % 7)}{i}" for i in range(tree.n_latents)])
    for latent, parent in enumerate(tree.parents):
        if parent >= 0:
            assert nodes[parent].x + nodes[parent].width <= nodes[parent].end < nodes[latent].x
    assert min(node.y for node in nodes) > 0


def test_the_root_of_a_large_tree_is_at_the_top():
    tree = pc.random_tree(120, seed=0)
    rows = rows_of(tree)
    assert rows[tree.root] == min(rows)


def test_a_small_tree_is_centred():
    assert rows_of(pc.LatentTree((-1, 0, 0), ((0,), (1,), (2,)))) == [0.0, -0.5, 0.5]


def test_the_drawing_has_all_columns_and_the_thickest_line_is_the_strongest(material):
    page = parsed(section(material))
    tree = material.tree
    names = {"".join(text.itertext()) for text in page.iter(f"{SVG}text")}
    assert names == {field.name for field in material.fields}
    edges = [path for path in page.iter(f"{SVG}path") if path.get("class") == "edge"]
    assert len(edges) == tree.n_latents - 1
    below = [latent for latent in range(tree.n_latents) if tree.parents[latent] >= 0]
    strengths = [edge_information(material, tree, latent) for latent in below]
    widths = [float(path.get("stroke-width")) for path in edges]
    assert np.argsort(widths).tolist() == np.argsort(strengths).tolist()
    assert max(widths) == 7


@pytest.mark.parametrize("variables", [((), (0,), (1,)), ((0, 1), (2,), (3, 4))])
def test_latents_with_no_or_several_variables(variables):
    tree = pc.LatentTree((-1, 0, 0), variables)
    nodes = layout(tree, [f"x{i}" for i in range(5)])
    assert [node.name for node in nodes] == [", ".join(f"x{v}" for v in own) for own in variables]
