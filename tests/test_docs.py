# SPDX-License-Identifier: Apache-2.0
"""Every Python block of README.md and docs/ runs, and prints what the page says that it prints.

The blocks of one page share one namespace and run in order, in an empty directory. A ``text`` block directly
after a Python block is what that block prints: trailing whitespace does not count, and a number agrees when
it rounds to the digits on the page. A block directly after ``<!-- skip: reason -->`` is not run.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path

import pytest

import picirc
from picirc.tables import defaults

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,}) *(?P<language>[^\s`]*)")
SKIP = re.compile(r"^\s*<!--\s*skip:\s*\S.*-->\s*$")
NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of the first line of the text, from 1
    before: str  # the last line before the block that is not blank; the closing fence of another block included


@dataclass(frozen=True)
class Example:
    code: str
    line: int
    printed: str | None  # None where the page does not say


def pages() -> list[Path]:
    return [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page; one left open is an error, for it would hide the rest of the page."""
    found: list[Block] = []
    opened, first, body, before = None, 0, [], ""
    for number, line in enumerate(page.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None and fence:
            opened, first, body = fence, number + 1, []
        elif opened is None:
            before = line if line.strip() else before
        elif fence and fence["ticks"].startswith(opened["ticks"]) and line.strip() == fence["ticks"]:
            text = "".join(f"{row.removeprefix(opened['indent'])}\n" for row in body)
            found.append(Block(opened["language"], text, first, before))
            opened, before = None, line
        else:
            body.append(line)
    if opened is not None:
        raise ValueError(f"the block that begins before line {first} is never closed")
    return found


def examples(page: str) -> list[Example]:
    """The Python blocks to run, each with the output that the page promises."""
    found = blocks(page)
    result = []
    for block, following in zip_longest(found, found[1:]):
        if block.language != "python" or SKIP.match(block.before):
            continue
        promised = following is not None and following.language == "text" and FENCE.match(following.before)
        result.append(Example(block.text, block.line, following.text if promised else None))
    return result


def agrees(printed: str, promised: str) -> bool:
    """Whether the output is what the page says, numbers to the digits on the page."""
    lines, expected = ([line.rstrip() for line in text.strip().splitlines()] for text in (printed, promised))
    if len(lines) != len(expected):
        return False
    for line, wanted in zip(lines, expected, strict=True):
        parts, wishes = NUMBER.split(line), NUMBER.split(wanted)  # odd places hold the numbers
        if parts[::2] != wishes[::2]:
            return False
        if not all(rounds_to(*pair) for pair in zip(parts[1::2], wishes[1::2], strict=True)):
            return False
    return True


def rounds_to(number: str, digits: str) -> bool:
    wanted = Decimal(digits)
    unit = Decimal(1).scaleb(int(wanted.as_tuple().exponent))
    return abs(Decimal(number) - wanted) <= unit / 2


def run_page(page: str, name: str) -> None:
    """Run the examples of a page; the name makes tracebacks point into the page."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for example in examples(page):
        output = io.StringIO()
        # Blank lines in front give every statement the line number that it has on the page.
        program = compile("\n" * (example.line - 1) + example.code, name, "exec", dont_inherit=True)
        with redirect_stdout(output):
            exec(program, namespace)
        printed, promised = output.getvalue(), example.printed
        if promised is not None and not agrees(printed, promised):
            pytest.fail(f"{name}:{example.line}: the page says\n{promised}\nbut the code prints\n{printed}")


@pytest.fixture
def _small_tables(monkeypatch):
    """For speed, models of tables are smaller than by default; `make test-pages` takes the defaults."""
    if os.environ.get("FULL_PAGES"):
        return
    for_size = defaults._for_size

    def smaller(rows: int, columns: int) -> defaults.Defaults:
        found = for_size(rows, columns)
        fewer = {"em_steps": 10, "states": min(found.states, 8), "target_steps": 30}
        return found if found.steps <= 120 else replace(found, members=1, steps=60, patience=60, **fewer)

    monkeypatch.setattr(defaults, "_for_size", smaller)


@pytest.mark.usefixtures("_small_tables")
@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_page(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what an example saves is not left behind
    run_page(path.read_text(encoding="utf-8"), str(path))


LINK = re.compile(r"\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)[^)]*\)")


@pytest.mark.parametrize(
    "path", [*pages(), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name
)
def test_links_lead_somewhere(path):
    prose = re.sub(r"^ *(`{3,}|~{3,}).*?^ *\1$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lost = [link["path"] for link in LINK.finditer(prose) if not (path.parent / link["path"]).exists()]
    assert lost == []


def test_every_public_name_is_in_the_reference():
    text = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    described = set(re.findall(r"^::: picirc\.(?:\w+\.)*(\w+)$", text, re.MULTILINE))
    modules = set(picirc._MODULES)  # what they offer is described name by name
    assert set(picirc.__all__) - modules <= described


def test_the_site_can_be_built_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (the extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    loading = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?https?:|<link[^>]* href=\"?https?:[^>]*stylesheet")
    built = list((tmp_path / "site").rglob("*.html"))
    assert tmp_path / "site" / "tutorials" / "tables.html" in built
    assert [page.name for page in built if loading.search(page.read_text(encoding="utf-8"))] == []


# The reader of pages itself, on small pages that are right or wrong on purpose.


PAGE = """\
# Title

```python
x = 2
print(x, "and", x / 3)
```

```text
2 and 0.667
```

<!-- skip: needs an hour -->
```python
raise RuntimeError
```

```text
never compared
```

```bash
make test
```

- in a list

  ```python
  for _ in range(x):
      print("again")
  ```

Prose between the blocks.

```text
not promised by the code above
```

~~~python
print("```python")
~~~
"""


def test_the_python_blocks_are_found_with_what_they_print():
    first, second, third = examples(PAGE)
    assert first == Example('x = 2\nprint(x, "and", x / 3)\n', 4, "2 and 0.667\n")
    assert second == Example('for _ in range(x):\n    print("again")\n', 28, None)
    assert third.code == 'print("```python")\n'


def test_a_page_may_have_no_blocks():
    assert examples("# Title\n") == []


def test_a_right_page_passes():
    run_page(PAGE, "page")


def test_wrong_output_fails_and_shows_both():
    with pytest.raises(pytest.fail.Exception, match=r"page:4: the page says\n2 and 0.668\n\nbut.*\n2 and 0.666666"):
        run_page(PAGE.replace("0.667", "0.668"), "page")


def test_a_skip_needs_a_reason():
    with pytest.raises(RuntimeError):
        run_page(PAGE.replace("skip: needs an hour", "skip:"), "page")


def test_an_error_points_to_the_line_on_the_page():
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(PAGE.replace("x / 3", "x / 0"), "page")
    last = caught.traceback[-1]
    assert (str(last.path), last.lineno + 1) == ("page", 5)


def test_a_block_left_open_is_an_error():
    with pytest.raises(ValueError, match="never closed"):
        examples("```python\nx = 1\n")


@pytest.mark.parametrize(
    ("printed", "promised", "same"),
    [
        ("a b\n", "a b", True),
        ("a b  \n\n", "a b\n", True),
        ("a b", "a  b", False),
        ("a\nb", "a", False),
        ("", "a", False),
        ("1.2346", "1.235", True),
        ("1.2344", "1.235", False),
        ("-0.0001", "0.000", True),
        ("3", "4", False),
        ("3.0", "3", True),
        ("1.04e-07", "1.0e-07", True),
        ("1.06e-07", "1.0e-07", False),
        ("x1 = 5", "x2 = 5", False),
        ("tensor([1.0000, 2.0000])", "tensor([1.00, 2.00])", True),
        ("1 2", "1", False),
        ("nan", "0.0", False),
    ],
)
def test_output_agrees_to_the_digits_on_the_page(printed, promised, same):
    assert agrees(printed, promised) is same
