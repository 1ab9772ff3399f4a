# SPDX-License-Identifier: Apache-2.0
"""Include pages from elsewhere in the repository, with links that work in both places.

The experiments, the changelog and the guide for contributors are where readers of the repository expect them. The site
includes them from there, and rewrites links that lead out of ``docs/`` (or, in those files, into it) to links between
pages. A link to a file that is not part of the site, such as a program, is replaced by its text.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
OUTSIDE = (
    *("CHANGELOG.md", "CONTRIBUTING.md"),
    *(f"experiments/**/*.{suffix}" for suffix in ("csv", "json", "md", "png")),
)
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<rest>[^)]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the files from outside of ``docs/`` under their paths in the repository."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            where = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, where, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Turn links between files of the repository into links between pages."""
    here = page.file.src_uri
    home = here if (ROOT / here).exists() else f"docs/{here}"  # of the page, in the repository

    def between_pages(link: re.Match[str]) -> str:
        wanted = normpath(f"{dirname(home) or '.'}/{link['path']}")
        target = wanted.removeprefix("docs/")
        if files.get_file_from_path(target) is None and (ROOT / wanted).exists():
            return link["text"]
        return f"[{link['text']}]({relpath(target, dirname(here) or '.')}{link['rest']})"

    return LINK.sub(between_pages, markdown)
