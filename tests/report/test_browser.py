# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: nothing goes wrong, nothing is asked for, nothing lies on top of something else."""

from __future__ import annotations

import pytest
from browser import browser, find_chromium
from test_page import odd_table

from picirc.report import write_report
from picirc.tables import fit_table

PROGRAM = find_chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed (apt-get install chromium)")

# Texts of one drawing that overlap by more than a hair, and texts that leave their drawing.
COLLISIONS = """
(() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([text, a], i) => {
      if (a.left < frame.left - 2 || a.right > frame.right + 2 || a.bottom > frame.bottom + 3)
        found.push('outside: ' + text);
      for (const [other, b] of boxes.slice(i + 1)) {
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (width > 1 && height > 0.3 * Math.min(a.height, b.height)) found.push(text + ' / ' + other);
      }
    });
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    table = odd_table(60)
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(fit_table(table, {"many": "categorical"}, steps=4, points=4, width=4), table, path)
    return path


@pytest.fixture(scope="module")
def opened():
    with browser(PROGRAM) as found:
        yield found


@pytest.mark.parametrize("width", [360, 768, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_without_a_complaint_and_alone(opened, page, width, dark):
    opened.open(page, width, dark=dark, phone=width < 500)
    assert opened.messages == []
    assert opened.requests == [page.resolve().as_uri()]
    assert opened.evaluate("document.compatMode") == "CSS1Compat"
    assert opened.evaluate("document.querySelectorAll('section').length") == 6
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, 1400])
def test_no_text_lies_on_another_or_leaves_its_drawing(opened, page, width):
    opened.open(page, width, phone=width < 500)
    opened.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.evaluate(COLLISIONS) == []


def test_light_and_dark_have_readable_contrast(opened, page):
    """The contrast of text and paper, by the formula of the web's accessibility guidelines, is above their 4.5."""
    contrast = """
    (() => {
      const light = colour => {
        const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
          .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      return ['body', '.lead', '.note', 'nav a'].map(name => {
        const ink = light(getComputedStyle(document.querySelector(name)).color);
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      });
    })()
    """
    papers = set()
    for dark in (False, True):
        opened.open(page, dark=dark)
        assert min(opened.evaluate(contrast)) > 4.5
        papers.add(opened.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2
