# SPDX-License-Identifier: Apache-2.0
"""The shape of the source tree: imports point one way, the symbolic half is free of torch, files stay small.

The checks read the import statements with `ast` and run nothing. What counts as an import:

- Every statement counts, also inside a function: an import put off is still a dependency.
- An import under ``if TYPE_CHECKING:`` does not count, neither for the direction nor for torch, because it
  never runs. In return its names are for annotations only: any other use would be a NameError, and is
  reported here.
- Of a dotted name the module itself counts and not the packages around it. The top package stands for
  everything that it offers, though it imports each name only when it is used; its version is nobody's.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest
import torch

import picirc

PACKAGE = "picirc"
ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / PACKAGE

# A module may import from those before it and from inside its own package.
ORDER = (
    *(
        "errors",
        "checks",
        "atomic",
        "interrupts",
        "memory",
        "autograd",
        "native",
        "structure",
        "symbolic",
        "quadrature",
        "inputs",
        "functions",
        "exact",
        "reference",
        "engine",
        "qpc",
    ),
    *(
        "compile",
        "circuit",
        "model",
        "clusters",
        "hclt",
        "mixture",
        "pic",
        "learning",
        "data",
        "io",
        "tables",
        "report",
        "sequences",
        "estimators",
        "explorer",
        "plot",
        "cli",
        "__main__",
    ),
)
LICENCE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = {".py": "# {}", ".c": "/* {} */", ".css": "/* {} */", ".js": "// {}"}  # how a line of each language says it
TORCH_FREE = ("structure", "symbolic", "quadrature", "compile.plan", "data")
MOST_LINES_OF_A_FILE = 1000
MOST_LINES_OF_A_FUNCTION = 60


@dataclass(frozen=True)
class Import:
    target: str  # the module that is imported, with all its dots
    line: int
    guarded: bool  # stands under ``if TYPE_CHECKING:``
    name: str  # the name it binds


@dataclass(frozen=True)
class Module:
    name: str  # the dotted name without the top package: "compile.plan"; "" is the top package itself
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        """The entry of ORDER that the module belongs to."""
        return self.name.split(".")[0]

    def place(self, line: int) -> str:
        return f"{self.name or PACKAGE}:{line}"


def read_tree(root: Path) -> dict[str, Module]:
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
    return modules


def is_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def statements(node: ast.AST, guarded: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement under a node, and whether it stands under a guard."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, guarded
    elif is_guard(node):
        assert isinstance(node, ast.If)
        for child in node.body:
            yield from statements(child, guarded=True)
        for child in node.orelse:
            yield from statements(child, guarded)
    else:
        for child in ast.iter_child_nodes(node):
            yield from statements(child, guarded)


def imports(module: Module, modules: dict[str, Module]) -> Iterator[Import]:
    """What a module imports, with relative names made absolute: one entry for each name that it binds."""
    dotted = f"{PACKAGE}.{module.name}".rstrip(".").split(".")
    for node, guarded in statements(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                yield Import(alias.name, node.lineno, guarded, bound)
            continue
        base = node.module or ""
        if node.level:
            package = dotted if module.path.name == "__init__.py" else dotted[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            target = inner if inside(inner) in modules else base
            yield Import(target, node.lineno, guarded, alias.asname or alias.name)


def inside(target: str) -> str | None:
    """The name of a target within the package, "" for the top package, or None if it lies elsewhere."""
    if target == PACKAGE:
        return ""
    return target.removeprefix(f"{PACKAGE}.") if target.startswith(f"{PACKAGE}.") else None


def wrong_directions(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.part not in ORDER:  # the top package, or a module that `unlisted` reports
            continue
        for item in imports(module, modules):
            name = inside(item.target)
            if name is None or item.guarded or (name, item.name) == ("", "__version__"):
                continue
            if name.split(".")[0] not in ORDER[: ORDER.index(module.part) + 1]:
                yield f"{module.place(item.line)}: {item.target} does not come before {module.part}"


def unlisted(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.name and module.part not in ORDER:
            yield f"{module.name}: {module.part} is not in the list of modules"


def torch_imports(modules: dict[str, Module]) -> Iterator[str]:
    """Each way from a module that must be free of torch, over modules of the package, to torch."""
    for start in modules:
        if not any(f"{start}.".startswith(f"{free}.") for free in TORCH_FREE):
            continue
        seen, ways = {start}, [(start,)]
        while ways:
            way = ways.pop()
            for item in imports(modules[way[-1]], modules):
                if item.guarded:
                    continue
                if item.target.split(".")[0] == "torch":
                    yield f"{modules[way[-1]].place(item.line)}: {' → '.join((*way, item.target))}"
                name = inside(item.target)
                if name in modules and name not in seen:
                    seen.add(name)
                    ways.append((*way, name))


def misused_types(modules: dict[str, Module]) -> Iterator[str]:
    """Names imported for type checking only and used outside annotations."""
    for module in modules.values():
        found = list(imports(module, modules))
        types = {item.name for item in found if item.guarded} - {item.name for item in found if not item.guarded}
        for name in running_names(module.tree):
            if name.id in types:
                yield f"{module.place(name.lineno)}: {name.id} is imported for type checking only but used"


def running_names(node: ast.AST) -> Iterator[ast.Name]:
    """Every name under a node that is looked up when the program runs, hence outside annotations."""
    if isinstance(node, ast.Name):
        yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from running_names(child)


def oversized(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        lines = len(module.path.read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES_OF_A_FILE:
            yield f"{module.place(lines)}: more than {MOST_LINES_OF_A_FILE} lines"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = body_lines(node)
                if length > MOST_LINES_OF_A_FUNCTION:
                    yield f"{module.place(node.lineno)}: {node.name} has {length} lines"


def unlicensed(root: Path) -> Iterator[str]:
    """The source files that do not begin with a line that names their licence."""
    for path in sorted(root.rglob("*")):
        if path.suffix in COMMENTS:
            expected = COMMENTS[path.suffix].format(LICENCE)
            if path.read_text(encoding="utf-8").partition("\n")[0] != expected:
                yield f"{path.relative_to(root).as_posix()}: the first line is not {expected!r}"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of lines from the first statement after the docstring to the last."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.fixture(scope="module")
def source() -> dict[str, Module]:
    modules = read_tree(SOURCE)
    assert "errors" in modules
    return modules


@pytest.mark.parametrize("check", [wrong_directions, unlisted, torch_imports, misused_types, oversized])
def test_the_source_tree(check, source):
    assert list(check(source)) == []


def test_every_source_file_names_its_licence():
    folders = [SOURCE, *(ROOT / name for name in ("benchmarks", "docs", "examples", "experiments", "hammer", "tests"))]
    assert [line for folder in folders for line in unlicensed(folder)] == []


# The checks themselves, on small trees that are wrong on purpose.


@pytest.fixture
def tree(tmp_path):
    """Writes files into a package and reads it; every package directory gets its ``__init__.py``."""

    def write(**files: str) -> dict[str, Module]:
        for name, text in files.items():
            path = tmp_path / PACKAGE / (name.replace("__in__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if not (path.parent / "__init__.py").exists():
                (path.parent / "__init__.py").write_text("")
        return read_tree(tmp_path / PACKAGE)

    return write


def test_a_good_tree_passes_every_check(tree):
    modules = tree(
        errors="import math\n",
        structure__in__dag="from picirc.errors import ArgumentError\nfrom . import trees\n",
        structure__in__trees="from ..errors import ArgumentError\n",
        qpc__in__layers="import torch\nfrom picirc.structure.dag import x\nimport picirc.errors\n",
        compile__in__plan="from picirc import structure\nfrom picirc.structure import dag\n",
        compile__in__static="import torch\nfrom picirc.compile.plan import Plan\nfrom .plan import Plan\n",
        cli="from picirc import __version__\n",
        __main__="from picirc.cli import main\n",
        __init__="from picirc.cli import main\nfrom picirc.errors import ArgumentError\n",
    )
    for check in (wrong_directions, unlisted, torch_imports, misused_types, oversized):
        assert list(check(modules)) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import picirc.qpc.layers",
        "from picirc.qpc import layers",
        "from picirc.qpc.layers import up",
        "from picirc import qpc",
        "from ..qpc import layers",
        "from .. import qpc",
        "from picirc import QPC",
        "import picirc",
        "def f():\n    from picirc.qpc.layers import up",
        "try:\n    import picirc.qpc\nexcept ImportError:\n    pass",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import picirc.qpc",
    ],
)
def test_an_import_against_the_direction_is_found(tree, statement):
    modules = tree(symbolic__in__build=statement, qpc__in__layers="")
    (line,) = list(wrong_directions(modules))
    assert line.startswith("symbolic.build:")


def test_relative_imports_of_a_package_start_at_the_package(tree):
    modules = tree(qpc__in__layers="", qpc__in____init__="from .layers import up\nfrom ..compile import plan\n")
    assert list(wrong_directions(modules)) == ["qpc:2: picirc.compile does not come before qpc"]


def test_a_module_outside_the_list_is_found(tree):
    modules = tree(helpers="", helpers2__in__more="", errors="from picirc.helpers import x")
    assert [line.split(":")[0] for line in unlisted(modules)] == ["helpers", "helpers2", "helpers2.more"]
    assert len(list(wrong_directions(modules))) == 1


@pytest.mark.parametrize("free", ["structure__in__dag", "symbolic__in__build", "quadrature", "compile__in__plan"])
@pytest.mark.parametrize(
    "statement",
    ["import torch", "import torch.nn as nn", "from torch import nn", "from torch.nn import Module"],
)
@pytest.mark.parametrize("lazily", [False, True])
def test_torch_is_found_where_it_must_not_be(tree, free, statement, lazily):
    modules = tree(**{free: f"class A:\n    def f(self):\n        {statement}" if lazily else statement})
    (line,) = list(torch_imports(modules))
    assert "→ torch" in line


def test_torch_is_found_behind_other_modules(tree):
    modules = tree(
        compile__in__plan="from picirc.functions import Table",
        functions__in__table="def f():\n    import torch",
        functions__in____init__="from picirc.functions.table import Table",
    )
    assert list(torch_imports(modules)) == ["functions.table:2: compile.plan → functions → functions.table → torch"]


def test_a_name_that_begins_with_torch_is_not_torch(tree):
    modules = tree(quadrature="import torchlike", structure__in__dag="import math", pic="import torch")
    assert list(torch_imports(modules)) == []


@pytest.mark.parametrize("guard", ["from typing import TYPE_CHECKING\nif ", "import typing\nif typing."])
def test_an_import_for_type_checking_serves_annotations_only(tree, guard):
    head = f"{guard}TYPE_CHECKING:\n    import torch\n    from picirc.qpc import QPC\n"
    modules = tree(symbolic__in__build=head + "def f(x: torch.Tensor) -> QPC:\n    y: QPC = x\n    return y\n")
    for check in (wrong_directions, torch_imports, misused_types):
        assert list(check(modules)) == []
    modules = tree(symbolic__in__build=head + "def f(x):\n    return isinstance(x, QPC)\n")
    (line,) = list(misused_types(modules))
    assert "QPC is imported for type checking only" in line


def test_long_files_and_functions_are_found(tree):
    def function(lines: int) -> str:
        return 'def f():\n    """Say.\n\n    More.\n    """\n' + "    x = 1\n" * lines

    assert list(oversized(tree(errors=function(60) + "x = 1\n" * 335))) == []
    (line,) = list(oversized(tree(errors=function(61))))
    assert "f has 61 lines" in line
    (line,) = list(oversized(tree(errors="x = 1\n" * (MOST_LINES_OF_A_FILE + 1))))
    assert f"more than {MOST_LINES_OF_A_FILE} lines" in line


def test_files_without_a_licence_are_found(tmp_path):
    for name, text in {"a.py": f"# {LICENCE}\n", "b.py": f'"""Say."""\n# {LICENCE}\n', "c.c": "", "d.md": ""}.items():
        (tmp_path / name).write_text(text)
    assert [line.partition(":")[0] for line in unlicensed(tmp_path)] == ["b.py", "c.c"]


def test_the_top_package_offers_at_run_time_what_type_checkers_see(source):
    seen = {item.name: item.target for item in imports(source[""], source) if item.guarded}
    modules = {name: target for name, target in seen.items() if target == f"{PACKAGE}.{name}"}
    assert {name: f"{PACKAGE}.{home}" for name, home in picirc._HOME.items()} == {
        name: target for name, target in seen.items() if name not in modules
    }
    assert set(picirc._MODULES) == set(modules)
    assert picirc.__all__ == sorted(seen)
    for name in picirc.__all__:
        assert getattr(picirc, name) is not None
        assert name in dir(picirc)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = picirc.nonsense


READING = ("structure/bayesnet.py", "symbolic/units.py", "symbolic/build.py", "reference.py")
MOST_LINES_TO_READ = 1000
MOST_FUNCTIONS_OF_A_CALL = 80


def test_the_way_from_a_network_to_a_number_is_short():
    assert sum(len((SOURCE / name).read_text(encoding="utf-8").splitlines()) for name in READING) < MOST_LINES_TO_READ
    design = (SOURCE.parent.parent / "docs" / "design.md").read_text(encoding="utf-8")
    reading = design.partition("**Reading list")[2].partition("\n\n")[0]
    assert re.findall(r"`([a-z/_]+\.py)`", reading) == list(READING)


def test_few_functions_lead_to_a_likelihood():
    """A hop that only forwards, or a check that is made twice, shows here."""
    pic, rule, x = picirc.PIC(picirc.chain(8), picirc.Bernoulli(), 8), picirc.trapezoidal(16), torch.zeros(5, 8)
    pic(rule).log_prob(x)  # what is kept for the next call is made now
    visited = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(SOURCE):
            visited.add(frame.f_code)

    sys.setprofile(note)
    try:
        pic(rule).log_prob(x)
    finally:
        sys.setprofile(None)
    assert 30 < len(visited) < MOST_FUNCTIONS_OF_A_CALL, sorted(code.co_qualname for code in visited)


@pytest.mark.parametrize("folder", ["examples", "experiments"])
def test_examples_and_experiments_use_the_public_names(folder):
    public = {PACKAGE, *(f"{PACKAGE}.{name}" for name in picirc._MODULES)}
    found = {}
    for path in sorted((SOURCE.parent.parent / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {target for node, _ in statements(tree) for target in targets(node)}
        found[path.name] = {name for name in named if name.partition(".")[0] == PACKAGE} - public
    assert found
    assert not {name: wrong for name, wrong in found.items() if wrong}


def targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
