# SPDX-License-Identifier: Apache-2.0
"""Write our figures into ``README.md`` between its marker comments, from the records of the experiments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness import HERE, Record, Runner
from reproduce import NAMES, experiment

MARKERS = {
    "overview": ("<!-- overview -->", "<!-- /overview -->"),
    "details": ("<!-- details -->", "<!-- /details -->"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Replace what is between the markers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE, help="where the folders of the experiments are")
    parser.add_argument("--readme", type=Path, default=HERE / "README.md")
    options = parser.parse_args(arguments)
    text = options.readme.read_text(encoding="utf-8")
    found = {name: recorded(name, options.out) for name in NAMES}
    text = between(text, *MARKERS["overview"], overview(found, options.out))
    text = between(text, *MARKERS["details"], details(found, options.out))
    options.readme.write_text(text, encoding="utf-8")


def recorded(name: str, root: Path) -> list[Record]:
    """The records of an experiment's jobs."""
    return Runner(name, root).records(experiment(name).jobs(quick=False))


def overview(found: dict[str, list[Record]], root: Path) -> str:
    """One row an experiment: where it is in the paper, the paper's figures, ours, the command."""
    table = [["in the paper", "the paper's figures", "ours", "command", "picture"]]
    table.append(
        [
            *("Figure 3, C.2", "the error falls with N", "[see there](sanity_check/README.md)"),
            *("`make sanity`", "[points.png](sanity_check/results/points.png)"),
        ]
    )
    for name, records in found.items():
        module = experiment(name)
        ours = module.summary(records) if records else "not run yet"
        total = len(module.jobs(quick=False))
        if 0 < len(records) < total:
            ours += f" ({len(records)} of {total} jobs)"
        links = ", ".join(f"[{path.name}]({name}/{path.name})" for path in pictures(name, root))
        table.append([module.PLACE, module.PAPER, ours, f"`make reproduce-{name}`", links])
    return markdown(table)


def details(found: dict[str, list[Record]], root: Path) -> str:
    """Picture, table and circumstances of every experiment that has records."""
    sections = []
    for name, records in found.items():
        if not records:
            continue
        module = experiment(name)
        title = (getattr(module, "__doc__", "") or name).strip().rstrip(".")
        drawn = [f"![{path.stem}]({name}/{path.name})" for path in pictures(name, root)]
        parts = [f"### {name}", f"{title}.", *drawn, markdown(module.rows(records)), circumstances(records)]
        sections.append("\n\n".join(parts))
    return "\n\n".join(sections)


def circumstances(records: Sequence[Record]) -> str:
    """How long it took, on what, and with which code."""

    def distinct(name: str) -> str:
        return ", ".join(sorted({str(record[name]) for record in records}))

    hours = sum(record["seconds"] for record in records) / 3600
    largest = max(record["peak_bytes"] for record in records) / 2**30
    return (
        f"{len(records)} jobs, {hours:.1f} hours, at most {largest:.1f} GiB; {distinct('threads')} threads on "
        f"{distinct('processor')}; revision {distinct('revision')}."
    )


def pictures(name: str, root: Path) -> list[Path]:
    """The pictures of an experiment."""
    return sorted((root / name).glob("*.png"))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table, its first row the head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def between(text: str, start: str, end: str, content: str) -> str:
    """The text with what is between two markers replaced."""
    before, rest = text.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{content}\n{end}{after}" if content else f"{before}{start}\n{end}{after}"


if __name__ == "__main__":
    main()
