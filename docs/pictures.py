# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of the documentation anew: run the code of a page and keep the pictures that it writes.

Usage: ``python docs/pictures.py tutorials/images.md tutorials/tables.md``. Pictures of reports need Chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ASSETS = Path(__file__).parent.resolve() / "assets"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH = 1100
# Of a report: what is left out, and from where to where the picture reaches.
PARTS = {"report-top": ("footer", 20, 1130), "report-pairs": ("header, footer, section:not(#pairs)", 70, 874)}


def draw(page: Path) -> None:
    """Run a page in an empty folder and keep what it drew."""
    code = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
        for picture in Path(folder).glob("*.png"):
            shutil.copyfile(picture, ASSETS / picture.name)
        for report in list(Path(folder).glob("*.html")):
            for name, (without, top, bottom) in PARTS.items():
                photograph(report, without, ASSETS / f"{name}.png", top, bottom)


def photograph(page: Path, without: str, path: Path, top: int, bottom: int) -> None:
    """Save what a browser shows of a page when some of its elements are left out."""
    part = page.with_name("part.html")
    part.write_text(page.read_text(encoding="utf-8").replace("</style>", f"{without} {{display: none}}</style>"))
    options = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={WIDTH},{bottom + 200}",
    )
    subprocess.run(["chromium", *options, f"--screenshot={path}", part.as_uri()], check=True, capture_output=True)
    with Image.open(path) as whole:
        whole.crop((0, top, WIDTH, bottom)).save(path, optimize=True)


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "Agg"
    for name in sys.argv[1:]:
        draw(ASSETS.parent / name)
