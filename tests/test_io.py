# SPDX-License-Identifier: Apache-2.0
"""Saving and loading: the same bits, or an error in words."""

from __future__ import annotations

import json
import math
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors

import picirc as pc
from picirc.inputs.discrete import SuccessFamily
from picirc.io import files
from picirc.io.describe import from_file, to_file
from picirc.io.files import pack
from picirc.tables import TableModel
from processes import in_process

MODELS = Path(__file__).parent / "data" / "models"

# Regions that share parts, so that no row is known by its latents alone: region 3 splits twice into the same parts, and
# regions 2 and 3 have the same variables.
TWINS = pc.RegionGraph(
    scopes=((0,), (1,), (0, 1), (0, 1), (2,), (0, 1, 2)),
    partitions=((), (), ((0, 1),), ((0, 1), (0, 1)), (), ((2, 4), (3, 4))),
)
STRUCTURES = {
    "chain": pc.chain(4),
    "tree": pc.random_tree(12, seed=3),
    "bushy": pc.LatentTree((-1, 0, 0), ((), (2, 0), (1,))),
    "quad": pc.quad_graph(3, 4),
    "random": pc.random_regions(7, seed=1, repetitions=3),
    "twins": TWINS,
}
MIXED = (pc.Gaussian(min_std=0.125), pc.Categorical(3), pc.Bernoulli(), pc.Poisson(), pc.Binomial(5))


def families(structure: Any) -> list[pc.Family]:
    return [MIXED[i % len(MIXED)] for i in range(structure.n_variables)]


def hclt(structure: Any, product: str = "cp", **options: Any) -> pc.HCLT:
    source = torch.Generator().manual_seed(1)
    return pc.HCLT(structure, families(structure), states=3, product=product, generator=source, **options)


def pic(structure: Any, product: str = "cp", **options: Any) -> pc.PIC:
    source = torch.Generator().manual_seed(2)
    model = pc.PIC(structure, families(structure), width=4, product=product, generator=source, **options)
    for weights in model.mixtures:
        torch.nn.init.normal_(weights, generator=source)
    return model


def circuit(model: pc.PIC | pc.HCLT) -> pc.QPC:
    return model(pc.gauss_legendre(5)) if isinstance(model, pc.PIC) else model()


def assert_same(model: pc.PIC | pc.HCLT, other: pc.PIC | pc.HCLT) -> None:
    """The same class, names, bits and answers."""
    assert type(model) is type(other)
    assert model.structure == other.structure
    assert model.families == other.families
    mine, theirs = model.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) and mine[name].dtype == theirs[name].dtype for name in mine)
    assert [n for n, p in model.named_parameters()] == [n for n, p in other.named_parameters() if p.requires_grad]
    x = circuit(model).sample(5, generator=torch.Generator().manual_seed(0))
    x[0, 0] = math.nan
    assert torch.equal(circuit(model).log_prob(x), circuit(other).log_prob(x))


@pytest.fixture
def small() -> pc.HCLT:
    return hclt(pc.chain(4))


# The same bits


@pytest.mark.parametrize("product", ["cp", "tucker"])
@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
@pytest.mark.parametrize("name", ["model", "model.safetensors"])
def test_hclt_comes_back_with_the_same_bits(structure, product, name, tmp_path):
    model = hclt(structure, product)
    pc.save(model, tmp_path / name)
    assert_same(model, pc.load(tmp_path / name))


@pytest.mark.parametrize("sharing", ["none", "composite", "full"])
@pytest.mark.parametrize("product", ["cp", "tucker"])
@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_pic_comes_back_with_the_same_bits(structure, product, sharing, tmp_path):
    other = {"none": "full", "composite": "none", "full": "composite"}[sharing]
    model = pic(structure, product, sharing=sharing, input_sharing=other)
    pc.save(model, tmp_path / "model")
    assert_same(model, pc.load(tmp_path / "model"))


@pytest.mark.parametrize("options", [{"fourier": False}, {"learnable": True}, {"sigma": 3.0}])
def test_features_come_back_as_they_were(options, tmp_path):
    model = pic(pc.chain(3), **options)
    pc.save(model, tmp_path / "m")
    found = pc.load(tmp_path / "m")
    assert_same(model, found)
    assert isinstance(found, pc.PIC)
    assert [n for n, _ in found.named_buffers()] == [n for n, _ in model.named_buffers()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_floating_point_type_is_kept(dtype, tmp_path):
    for model in (hclt(pc.chain(3), dtype=dtype), pic(pc.chain(3)).to(dtype)):
        pc.save(model, tmp_path / "m.safetensors")
        assert_same(model, pc.load(tmp_path / "m.safetensors"))


def test_a_loaded_model_lives_apart_from_its_file(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    found = pc.load(path)
    before = {name: value.clone() for name, value in found.state_dict().items()}
    path.write_bytes(bytes(path.stat().st_size))  # in place: tensors mapped from the file would change
    assert all(torch.equal(before[name], value) for name, value in found.state_dict().items())
    trained, _ = pc.fit(found, found().sample(32, generator=torch.Generator().manual_seed(0)), steps=2)
    assert not torch.equal(trained.weights[0], found.weights[0])


def test_loading_leaves_the_random_numbers_alone(small, tmp_path):
    pc.save(small, tmp_path)
    state = torch.get_rng_state()
    pc.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_same_model_gives_the_same_file(small, tmp_path):
    for name in ("a", "b"):
        pc.save(small, tmp_path / name, summary={"b": 1, "a": [1.5, None, "ü"]})
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def test_the_summary_comes_back(small, tmp_path):
    summary = {"bits": 1.25, "note": "ünïcode", "list": [1, None, True], "deep": {"a": {"b": []}}}
    pc.save(small, tmp_path, summary=summary)
    assert pc.io.describe(tmp_path)["summary"] == summary
    copy = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    assert copy == pc.io.describe(tmp_path)


@dataclass(frozen=True, repr=False)
class Trials(SuccessFamily):
    """A family of one's own."""

    trials: int = 2


def test_a_family_of_ones_own_needs_its_class(tmp_path):
    model = pc.HCLT(pc.chain(3), inputs=Trials(4), states=2)
    pc.save(model, tmp_path)
    with pytest.raises(pc.ArgumentError, match="'Trials'"):
        pc.load(tmp_path)
    assert_same(model, pc.load(tmp_path, families=[Trials]))


@dataclass(frozen=True, repr=False)
class Gaussian(pc.Gaussian):
    """Another family of the same name."""


@dataclass(frozen=True, repr=False)
class Scaled(Trials):
    """A family whose field comes back as a list."""

    scales: tuple[float, ...] = (1.0, 2.0)


@dataclass(frozen=True, repr=False)
class Linked(Trials):
    """A family with a field that JSON has no word for."""

    link: Any = math.exp


@pytest.mark.parametrize(
    ("family", "match"),
    [(Gaussian(), "rename"), (Scaled(), "families that are determined"), (Linked(), "plain JSON values")],
)
def test_a_family_that_would_not_come_back_is_refused(family, match, tmp_path):
    with pytest.raises(pc.ArgumentError, match=match):
        pc.save(pc.HCLT(pc.chain(3), inputs=family, states=2), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


# The order of the rows


@pytest.mark.parametrize("product", ["cp", "tucker"])
@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_layout_is_undone(structure, product):
    for model in (hclt(structure, product), pic(structure, product)):
        stored = to_file(model)
        back = from_file(model, stored)
        assert all(torch.equal(value, back[name]) for name, value in model.state_dict().items())
        assert sum(t.numel() for t in stored.values()) == sum(t.numel() for t in model.state_dict().values())


def test_rows_stand_by_latent_whatever_the_order_of_the_plan():
    model = hclt(pc.random_tree(12, seed=3))
    tree = model.structure
    for block, weights in zip(model.plan.blocks, model.weights, strict=True):
        for row, (unit, _, _) in enumerate(block.integrals):
            weights.data[row] = int(unit.variables[0][1:])
    for group, table in zip(model.plan.inputs, model.inputs, strict=True):
        for row, column in enumerate(group.columns):
            table.data[row] = int(column)
    stored = to_file(model)
    others = [latent for latent in range(12) if latent != tree.root]
    assert stored["weights.0.1"][:, 0, 0, 0].tolist() == [tree.root]
    assert stored["weights.1.1"][:, 0, 0, 0].tolist() == others
    for number, family in enumerate(MIXED):
        columns = [column for column in range(12) if model.families[column] == family]
        assert stored[f"inputs.{number}"][:, 0, 0].tolist() == columns


def test_mixtures_of_all_heights_stand_by_region():
    model = hclt(pc.quad_graph(4, 4))
    assert len(model.mixtures) > 1  # the plan has one block for each height
    for sums, weights in zip(model.plan.mixtures, model.mixtures, strict=True):
        for row, unit in enumerate(sums):
            weights.data[row] = len(model.plan.circuit.scope(unit))
    sizes = [
        len(s) for s, ways in zip(model.structure.scopes, model.structure.partitions, strict=True) if len(ways) == 2
    ]
    assert to_file(model)["mixtures.2"][:, 0, 0].tolist() == sizes


# Models of earlier versions


@pytest.mark.parametrize("name", ["hclt", "hclt-tucker", "pic", "pic-quad"])
def test_models_of_format_1_are_loaded_by_every_later_version(name):
    model = pc.load(MODELS / name)
    known = json.loads((MODELS / f"{name}.json").read_text())
    rows = torch.tensor([[math.nan if v is None else v for v in row] for row in known["rows"]], dtype=torch.float64)
    found = circuit(model).log_prob(rows)
    assert pc.io.describe(MODELS / name)["format"] == 1
    torch.testing.assert_close(found, torch.tensor(known["log_prob"], dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_a_table_of_format_1_is_loaded_by_every_later_version():
    model = TableModel.load(MODELS / "table")
    known = json.loads((MODELS / "table.json").read_text(encoding="utf-8"))
    assert pc.io.describe(MODELS / "table")["format"] == 1
    assert list(model.schema.names) == list(known["table"])
    np.testing.assert_allclose(model.log_density(known["table"]), known["log_density"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.predict(known["table"], "pet"), known["pet"], rtol=1e-9, atol=1e-9)


# Files that are not what they should be


def broken(path: Path) -> str:
    with pytest.raises(pc.ArgumentError) as caught:
        pc.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def same_or_refused(model: pc.HCLT, path: Path) -> None:
    try:
        found = pc.load(path)
    except pc.ArgumentError:
        return
    assert_same(model, found)


def test_flipped_bytes_are_found(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path, summary={"note": "x"})
    content = path.read_bytes()
    source = random.Random(0)
    header = 8 + int.from_bytes(content[:8], "little")
    places = [
        *range(8),
        *(source.randrange(header) for _ in range(120)),
        *(source.randrange(len(content)) for _ in range(80)),
    ]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << source.randrange(8)
        path.write_bytes(changed)
        same_or_refused(small, path)


def test_a_flipped_bit_of_a_number_is_damage(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "damaged" in broken(path)


def test_a_changed_digit_of_the_description_is_damage(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    content = path.read_bytes()
    assert b"[-1, 0, 1, 2]" in content
    path.write_bytes(content.replace(b"[-1, 0, 1, 2]", b"[-1, 0, 1, 1]"))  # another tree, of the same shapes
    assert "damaged" in broken(path)


def test_truncated_files_are_refused(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    content = path.read_bytes()
    source = random.Random(1)
    for length in [0, 1, 7, 8, 9, len(content) - 1, *(source.randrange(len(content)) for _ in range(40))]:
        path.write_bytes(content[:length])
        broken(path)
    path.write_bytes(content + b"x")
    broken(path)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\x80\x04K\x01.", bytes(100), b"\xff" * 64, b"PK\x03\x04" + bytes(60)]
)
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    broken(path)


def test_a_path_without_a_model_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / "none.safetensors"):
        with pytest.raises(pc.ArgumentError, match="nothing at"):
            pc.load(path)


def test_tensors_of_another_program_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(3)}, tmp_path / "model.safetensors")
    assert "description" in broken(tmp_path / "model.safetensors")


def rewrite(path: Path, description: Any, tensors: dict[str, torch.Tensor]) -> None:
    """A file that says anything, with checksums that agree."""
    content, _ = pack({}, tensors)
    old = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["picirc"]
    checksum = json.loads(old)["description"]["sha256"]
    full = description | {"sha256": checksum} if isinstance(description, dict) else description
    text = json.dumps({"sha256": files._sign(full), "description": full})
    path.write_bytes(files.save(tensors, metadata={"picirc": text}))


def read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    # Not load_file: its tensors are a map of the file, which the tests write over.
    return pc.io.describe(path), load_tensors(path.read_bytes())


def test_a_newer_format_says_so(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    description, tensors = read(path)
    rewrite(path, description | {"format": 2, "new": []}, tensors)
    assert "upgrade" in broken(path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": 0}, "format"),
        ({"format": True}, "format"),
        ({"format": "1"}, "format"),
        ({"kind": "os.system"}, "kind"),
        ({"kind": ["PIC"]}, "kind"),
        ({"kind": "PIC"}, "settings"),
        ({"dtype": "float64"}, "float64"),
        ({"dtype": "object"}, "dtype"),
        ({"structure": None}, "structure"),
        ({"structure": {"kind": "LatentTree", "parents": 3, "variables": [[0]]}}, "parents"),
        ({"structure": {"kind": "LatentTree", "parents": [-1], "variables": ["0"]}}, "variables"),
        ({"structure": {"kind": "LatentTree", "parents": [1, 0], "variables": [[0], [1]]}}, "root"),
        ({"structure": {"kind": "LatentTree", "parents": [-1], "variables": [[0]], "x": 1}}, "structure"),
        ({"families": []}, "columns"),
        ({"families": [{"name": "Bernoulli", "columns": [0, 1, 2, 2]}]}, "columns"),
        ({"families": [{"name": "Categorical", "categories": -1, "columns": [0, 1, 2, 3]}]}, "categories"),
        ({"families": [{"name": "Categorical", "categories": 10**12, "columns": [0, 1, 2, 3]}]}, "tensors"),
        ({"families": [{"name": "Family", "columns": [0, 1, 2, 3]}]}, "Family"),
        ({"families": [{"name": "Bernoulli", "columns": [0, 1, 2, 3], "__class__": 1}]}, "families"),
        ({"settings": {"states": 10**6, "product": "cp"}}, "shape"),
        ({"settings": {"states": 10**40, "product": "cp"}}, "something else"),
        ({"settings": {"states": True, "product": "cp"}}, "states"),
        ({"settings": {"states": 3, "product": "cp", "generator": 1}}, "settings"),
    ],
)  # fmt: skip
def test_a_hostile_description_is_refused(change, match, small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    description, tensors = read(path)
    rewrite(path, description | change, tensors)
    assert match in broken(path)


@pytest.mark.parametrize("description", [None, 3, [], "text", {}, {"format": 1}])
def test_a_description_that_is_none_is_refused(description, small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    rewrite(path, description, read(path)[1])
    broken(path)


def test_tensors_that_do_not_fit_are_refused(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    description, tensors = read(path)
    first = "inputs.0"
    for changed in (
        {k: v for k, v in tensors.items() if k != first},
        tensors | {"extra": torch.zeros(1)},
        tensors | {first: tensors[first][:, :1].contiguous()},
        tensors | {first: tensors[first].double()},
        tensors | {first: tensors[first].int()},
        tensors | {first: torch.full_like(tensors[first], math.nan)},
        tensors | {first: torch.full_like(tensors[first], math.inf)},
        tensors | {first: torch.full_like(tensors[first], -math.inf)},
        tensors | {first: torch.full_like(tensors[first], 3e38)},
        {},
    ):
        rewrite(path, description, changed)
        broken(path)


def mutate(value: Any, source: random.Random) -> Any:
    """Change one thing somewhere in a JSON value."""
    odd = [None, True, -1, 0, 1, 2, 7, 10**30, 0.5, "", "cp", "PIC", [], {}, [[]], {"kind": "RegionGraph"}]
    if isinstance(value, dict) and value and source.random() < 0.9:
        key = source.choice(sorted(value))
        if source.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: mutate(value[key], source)}
    if isinstance(value, list) and value and source.random() < 0.9:
        place = source.randrange(len(value))
        if source.random() < 0.2:
            return value[:place] + value[place + 1 :]
        return [*value[:place], mutate(value[place], source), *value[place + 1 :]]
    if isinstance(value, int) and source.random() < 0.5:
        return value + source.choice([-1, 1])
    return source.choice(odd)


@pytest.mark.parametrize("which", range(3))
def test_any_description_loads_or_is_refused(which, tmp_path):
    model = [hclt(pc.chain(4)), pic(pc.random_tree(5, seed=0)), hclt(TWINS, "tucker")][which]
    path = tmp_path / "m.safetensors"
    pc.save(model, path, summary={"note": 1})
    description, tensors = read(path)
    source = random.Random(which)
    loaded = 0
    for _ in range(80):
        changed = description
        for _ in range(source.choice([1, 1, 2, 4])):
            changed = mutate(changed, source)
        rewrite(path, changed, tensors)
        try:
            found = pc.load(path)
        except pc.ArgumentError:
            continue
        loaded += 1  # another model, but a sound one, with the numbers of the file
        assert all(torch.equal(value, tensors[name]) for name, value in to_file(found).items())
        assert circuit(found).log_prob(torch.full((1, len(found.families)), math.nan)).abs() < 1e-4
    assert 0 < loaded < 80


def test_small_files_do_not_grow_in_memory(small, tmp_path):
    """A deep tree, or a region with many partitions, has far more entries in its scopes than in its description."""
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    description, tensors = read(path)
    for deep in (3000, 10_000):
        families = [{"name": "Bernoulli", "columns": list(range(deep))}]
        chain = {"kind": "LatentTree", "parents": list(range(-1, deep - 1)), "variables": [[i] for i in range(deep)]}
        rewrite(path, description | {"structure": chain, "families": families}, tensors)
        assert "entries" in broken(path)
    wide = 1000
    scopes, partitions = [[i] for i in range(wide)], [[] for _ in range(wide)]
    ways = [[0, 1]] * 60_000
    graph = {"kind": "RegionGraph", "scopes": [*scopes, list(range(wide))], "partitions": [*partitions, ways]}
    rewrite(path, description | {"structure": graph, "families": families}, tensors)
    assert "entries" in broken(path)


def test_long_chains_come_back(tmp_path):
    """They have the most entries for the size of their file."""
    model = pc.HCLT(pc.chain(1500), pc.Bernoulli(), states=2)
    pc.save(model, tmp_path / "m.safetensors")
    assert pc.load(tmp_path / "m.safetensors").structure == model.structure


def test_an_ensemble_has_the_members_of_its_tensors(tmp_path, monkeypatch):
    """No more are built, and all of them from one plan."""
    members = [pc.PIC(pc.chain(4), pc.Bernoulli(), width=4) for _ in range(3)]
    path = tmp_path / "m.safetensors"
    pc.save(pc.Ensemble(members), path)
    built = []
    make = pc.PIC.__init__
    monkeypatch.setattr(pc.PIC, "__init__", lambda self, *a, **k: (built.append(1), make(self, *a, **k))[1])
    assert len(pc.load(path).members) == 3
    assert len(built) == 1
    description, tensors = read(path)
    for count in (0, 2, 4, 100, 10**9, True):
        rewrite(path, description | {"members": count}, tensors)
        assert "members" in broken(path)
    assert len(built) == 1


def test_a_mixture_of_trees_has_a_tree_and_a_weight_for_each_member(tmp_path):
    trees = [pc.chain(4), pc.star(4), pc.chain(4)]
    path = tmp_path / "m.safetensors"
    pc.save(pc.Ensemble([pc.PIC(tree, pc.Bernoulli(), width=4) for tree in trees], [3, 1, 2]), path)
    assert list(pc.load(path).structures) == trees
    description, tensors = read(path)
    own = description["structure"]
    graph = {"kind": "RegionGraph", "scopes": [[0], [1], [0, 1]], "partitions": [[], [], [[0, 1]]]}
    for wrong in (own[:2], [*own, own[0]], own[0], [], [own[0], 1, own[2]], [own[0], own[0], own[2]], [graph] * 3):
        rewrite(path, description | {"structure": wrong}, tensors)
        broken(path)
    for weights in ([1, 2], [1, 2, -3], [1, 2, None], [1, 2, True], "123", None, {}):
        rewrite(path, description | {"weights": weights}, tensors)
        assert "weights" in broken(path)


def test_families_of_very_many_values_are_refused(small, tmp_path):
    """Their tables would take memory at the first query."""
    family = pc.Binomial(10**9)
    with pytest.raises(pc.ArgumentError, match="values"):
        pc.save(pc.HCLT(pc.chain(4), family, states=3), tmp_path / "m")
    path = tmp_path / "m.safetensors"
    model = pc.HCLT(pc.chain(4), pc.Binomial(9), states=3)
    pc.save(model, path)
    description, tensors = read(path)
    description["families"][0]["trials"] = 10**9
    rewrite(path, description, tensors)
    assert "values" in broken(path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"description": ' + "[" * 5000 + "]" * 5000 + "}", '{"a": ' + "9" * 5000 + "}", "NaN", "{"]
)
def test_texts_that_are_hard_to_read_are_refused(text, small, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(files.save(to_file(small), metadata={"picirc": text}))
    broken(path)
    with pytest.raises(pc.ArgumentError, match="a model that picirc saved"):
        pc.io.describe(path)


# Writing


def test_any_text_can_stand_in_a_summary(small, tmp_path):
    summary = {"path": "name-\udce9.csv", "null": "\0", "key \u2028": "\U0001f427"}
    pc.save(small, tmp_path / "m", summary=summary)
    assert pc.io.describe(tmp_path / "m")["summary"] == summary
    assert_same(small, pc.load(tmp_path / "m"))


def test_a_description_that_fits_into_no_file_is_refused(small, tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> bytes:
        raise SafetensorError("header too large")  # as it says above 100 MB

    monkeypatch.setattr(files, "save", full)
    with pytest.raises(pc.ArgumentError, match="a description that fits into a file"):
        pc.save(small, tmp_path / "m", summary={"note": "x"})
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_stored_is_refused(small, tmp_path):
    with pytest.raises(pc.ArgumentError, match="summary"):
        pc.save(small, tmp_path / "m", summary={"model": small})
    with pytest.raises(pc.ArgumentError, match="summary"):
        pc.save(small, tmp_path / "m", summary={"bits": math.nan})
    with pytest.raises(pc.ArgumentError, match="a PIC or an HCLT"):
        pc.save(torch.nn.Linear(2, 2), tmp_path / "m")  # type: ignore[arg-type]
    mixed = hclt(pc.chain(3))
    mixed.inputs[0].data = mixed.inputs[0].data.double()
    with pytest.raises(pc.ArgumentError, match="one floating-point type"):
        pc.save(mixed, tmp_path / "m")
    for number in (math.nan, math.inf, -math.inf, 1e20):
        small.weights[0].data[0, 0, 0, 0] = number
        with pytest.raises(pc.ArgumentError, match="finite"):
            pc.save(small, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("name", ["m", "m.safetensors"])
def test_a_full_disk_leaves_the_old_model(call, name, small, tmp_path, monkeypatch):
    pc.save(small, tmp_path / name)
    other = hclt(pc.chain(4))
    other.weights[0].data += 1

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        pc.save(other, tmp_path / name)
    monkeypatch.undo()
    gone = (
        [tmp_path / "m" / "model.json"] if (name, call) == ("m", "replace") else []
    )  # it goes before the tensors change
    assert sorted(tmp_path.rglob("*")) == [path for path in before if path not in gone]
    assert_same(small, pc.load(tmp_path / name))


def test_a_kill_between_the_two_files_leaves_a_whole_model(small, tmp_path, monkeypatch):
    pc.save(small, tmp_path)
    other = hclt(pc.chain(4))
    other.weights[0].data += 1
    replace = os.replace
    done: list[str] = []

    def once(source: Path, target: Path) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(target.name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(KeyboardInterrupt):
        pc.save(other, tmp_path)
    assert done == ["model.safetensors"]
    assert_same(other, pc.load(tmp_path))
    assert not (tmp_path / "model.json").exists()  # the one of the old model would be wrong


def save_and_die(path: Path) -> None:
    model = pc.load(path)
    assert isinstance(model, pc.HCLT)
    model.weights[0].data += 1
    os.fsync = lambda _: os._exit(9)  # the file is written, but not yet in its place
    pc.save(model, path)


def test_a_killed_process_leaves_the_old_model(small, tmp_path):
    pc.save(small, tmp_path / "m")
    assert in_process(save_and_die, tmp_path / "m") == 9
    assert_same(small, pc.load(tmp_path / "m"))
    pc.save(small, tmp_path / "m")  # what is left over does not stand in the way
    assert_same(small, pc.load(tmp_path / "m"))


def test_the_file_has_the_usual_permissions(small, tmp_path):
    mask = os.umask(0o022)
    try:
        pc.save(small, tmp_path / "m.safetensors")
    finally:
        os.umask(mask)
    assert (tmp_path / "m.safetensors").stat().st_mode & 0o777 == 0o644


def test_any_reader_of_safetensors_can_read_the_tensors(small, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(small, path)
    with safe_open(path, framework="np") as file:
        assert set(file.keys()) == set(to_file(small))
    assert set(load_tensors(path.read_bytes())) == set(to_file(small))
