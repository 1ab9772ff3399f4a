# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: what a person does with mouse and keyboard, and what goes wrong around them."""

from __future__ import annotations

import csv
import io
import json
import shutil
from urllib.parse import unquote

import pytest
from explorer_cases import HOSTILE, hostile_table, network

import picirc as pc

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed (apt-get install chromium)")
OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PATIENCE = 60_000  # milliseconds; far more than anything takes, so that a slow computer is no failure

CONTRAST = """
() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/^rgba\\(.*, 0\\)$/.test(colour) && colour !== 'transparent') return light(colour);
    }
    return light(getComputedStyle(document.body).backgroundColor);
  };
  const poor = [];
  for (const element of document.querySelectorAll(
      'h1, h2, h3, p, button, label, span, small, b, dt, dd, th, td, text, figcaption')) {
    if (!element.textContent.trim() || element.closest('.hidden-text') || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ink = light(element.tagName === 'text' ? style.fill : style.color), back = paper(element);
    const ratio = (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
    if (ratio < 4.5) poor.push([element.tagName, element.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return poor;
}
"""
NAMELESS = """
() => [...document.querySelectorAll('button, input, select, canvas, [role=button], [role=img], [tabindex="0"]')]
  .filter(e => e.getClientRects().length)
  .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length || e.closest('label')
                 || e.querySelector('title')))
  .map(e => e.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as program:
        found = program.chromium.launch(executable_path=PROGRAM, args=OPTIONS)
        yield found
        found.close()


@pytest.fixture
def visit(browser):
    """Open an address; the page may not complain, nor ask for anything from elsewhere."""
    contexts, complaints, requests = [], [], []

    def go(url: str, *, quiet: bool = True, **options):
        contexts.append(browser.new_context(**{"viewport": {"width": 1300, "height": 900}} | options))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        if quiet:
            page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        page.wait_for_selector("main")
        wait_for_answers(page)
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:")) for url in requests)


@pytest.fixture(scope="module")
def table(serve, mixed):
    return serve(*mixed, name="Trees").url


def wait_for_answers(page) -> None:
    """Wait until no question is under way."""
    page.wait_for_selector("body:not([data-busy]):not(:has(.loading))", state="attached")


def evidence(page):
    return json.loads(unquote(page.url.partition("#")[2]) or "{}")


def card(page, name):
    return page.locator("article", has=page.get_by_role("heading", name=name, exact=True))


def expected(page, name) -> str:
    return card(page, name).locator(".now").inner_text()


def test_a_category_changes_the_other_cards_and_the_address(visit, table):
    page = visit(table)
    before = expected(page, "length")
    card(page, "kind").get_by_role("button", name="cedar").click()
    wait_for_answers(page)
    assert expected(page, "length") != before
    assert evidence(page) == {"a": {"kind": {"is": "cedar"}}}
    assert "probability" in page.locator(".facts").inner_text()
    assert "of 120 rows agree" in page.locator(".facts").inner_text()
    card(page, "kind").get_by_role("button", name="ash").click()
    wait_for_answers(page)
    assert evidence(page) == {"a": {"kind": {"in": ["cedar", "ash"]}}}
    shown = expected(page, "length")
    page.reload()
    wait_for_answers(page)
    page.wait_for_selector(".chip")
    wait_for_answers(page)
    assert expected(page, "length") == shown  # a link holds the whole view
    page.get_by_role("button", name="Remove kind").first.click()
    wait_for_answers(page)
    assert evidence(page) == {}
    assert expected(page, "length") == before


def test_a_number_is_set_by_slider_fields_and_drag(visit, table):
    page = visit(table)
    slider = card(page, "length").get_by_role("slider")
    assert "unknown, expected" in slider.get_attribute("aria-valuetext")
    slider.focus()
    page.keyboard.press("ArrowRight")
    wait_for_answers(page)
    assert "is" in evidence(page)["a"]["length"]
    assert "known" in slider.get_attribute("aria-valuetext")
    assert "log density" in page.locator(".facts").inner_text()
    card(page, "length").get_by_placeholder("from").fill("11")
    card(page, "length").get_by_placeholder("from").press("Tab")
    wait_for_answers(page)
    assert evidence(page)["a"]["length"] == {"from": 11, "to": None}
    box = card(page, "weight").locator("svg").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 30, steps=3)
    page.mouse.up()
    wait_for_answers(page)
    dragged = evidence(page)["a"]["weight"]
    assert dragged["from"] < dragged["to"]
    card(page, "weight").locator("svg").click(position={"x": 40, "y": 30})
    wait_for_answers(page)
    assert "is" in evidence(page)["a"]["weight"]
    page.get_by_role("button", name="Reset").click()
    wait_for_answers(page)
    assert evidence(page) == {}


def test_a_range_the_wrong_way_round_is_explained(visit, table):
    page = visit(table)
    card(page, "length").get_by_placeholder("from").fill("14")
    card(page, "length").get_by_placeholder("to").fill("11")
    card(page, "length").get_by_placeholder("to").press("Tab")
    assert "must not be above" in page.get_by_role("alert").inner_text()


def test_two_sets_of_evidence_stand_side_by_side(visit, table):
    page = visit(table)
    card(page, "kind").get_by_role("button", name="ash").click()
    page.get_by_role("button", name="Compare").click()
    card(page, "kind").get_by_role("button", name="ash").click()
    card(page, "kind").get_by_role("button", name="cedar").click()
    wait_for_answers(page)
    assert evidence(page) == {"a": {"kind": {"is": "ash"}}, "b": {"kind": {"is": "cedar"}}, "on": 1}
    first, second = card(page, "length").locator(".now p").all_inner_texts()
    assert float(first.split()[0]) < float(second.split()[0])
    page.get_by_role("button", name="Change evidence A").click()
    card(page, "old").get_by_role("button", name="True").click()
    wait_for_answers(page)
    assert evidence(page)["a"] == {"kind": {"is": "ash"}, "old": {"is": True}}
    assert page.locator(".only-two").is_visible()
    page.get_by_role("button", name="Stop comparing").click()
    wait_for_answers(page)
    assert "b" not in evidence(page)
    assert not page.locator(".only-two").is_visible()


def test_rows_show_their_surprises_and_the_tree_leads_to_cards(visit, table):
    page = visit(table)
    page.get_by_role("button", name="Most surprising rows").click()
    page.locator(".surprising button").first.click()
    page.wait_for_selector(".note:not([hidden])")
    wait_for_answers(page)
    assert len(evidence(page)["a"]) >= 4
    assert card(page, "weight").locator(".note").inner_text().startswith(("Fits", "Surprising"))
    page.get_by_role("button", name="Remove weight").first.click()
    wait_for_answers(page)
    assert "90 %" in expected(page, "weight")
    page.get_by_role("button", name="Go to rings").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Value of rings"


def test_rows_are_drawn_and_downloaded(visit, table):
    page = visit(table)
    card(page, "kind").get_by_role("button", name="birch").click()
    page.get_by_role("button", name="Draw ten rows").click()
    page.wait_for_selector(".drawn tbody tr")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    with open(download.value.path(), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(io.StringIO(file.read())))
    assert [row["kind"] for row in rows] == ["birch"] * 10
    assert all(float(row["weight"]) for row in rows)


def test_hostile_names_are_only_names(visit, serve):
    model = pc.fit_table(hostile_table(), steps=2, points=4, width=4, settings={"members": 1})
    page = visit(serve(model, hostile_table()).url)
    assert page.locator("article").count() == len(HOSTILE)
    assert page.locator("main img, main script").count() == 0
    category = card(page, "constructor").get_by_role("button").first
    category.click()
    slider = page.get_by_role("slider", name="Value of __proto__")
    slider.focus()
    page.keyboard.press("ArrowRight")
    wait_for_answers(page)
    assert set(evidence(page)["a"]) == {"constructor", "__proto__"}
    page.reload()
    page.wait_for_selector(".chip")
    assert page.locator(".chip").count() == 2
    page.get_by_role("button", name="Draw ten rows").click()
    page.wait_for_selector(".drawn tbody tr")


def test_two_tabs_have_evidence_of_their_own(visit, table):
    one, two = visit(table), visit(table)
    card(one, "kind").get_by_role("button", name="ash").click()
    card(two, "kind").get_by_role("button", name="cedar").click()
    wait_for_answers(one)
    wait_for_answers(two)
    assert evidence(one) == {"a": {"kind": {"is": "ash"}}}
    assert evidence(two) == {"a": {"kind": {"is": "cedar"}}}
    assert expected(one, "length") != expected(two, "length")


def test_a_server_that_goes_away_is_said_and_the_view_is_kept(visit, mixed):
    from picirc.explorer import make_page
    from picirc.explorer.server import Explorer

    explorer = Explorer(make_page(*mixed))
    page = visit(explorer.url, quiet=False)  # the browser reports the failed request
    explorer.stop()
    card(page, "kind").get_by_role("button", name="ash").click()
    page.wait_for_selector("#lost:not([hidden])")
    assert "has stopped" in page.locator("#lost").inner_text()
    assert evidence(page) == {"a": {"kind": {"is": "ash"}}}


def test_an_address_with_nonsense_still_opens(visit, table):
    page = visit(table + "#%7Bnonsense")
    assert "no valid state" in page.get_by_role("alert").inner_text()
    assert page.locator("article").count() == 5


def test_images_are_rubbed_out_and_completed(visit, serve, images):
    page = visit(serve(*images).url)
    facts = page.locator(".facts")
    assert "16 of 16 pixels unknown" in facts.inner_text()
    page.get_by_role("button", name="Example ›").click()
    facts.filter(has_text=" 0 of 16 pixels").wait_for()
    page.get_by_role("button", name="Hide bottom").click()
    facts.filter(has_text=" 8 of 16 pixels").wait_for()
    page.get_by_role("button", name="Erase").click()
    page.locator("canvas.editor").click(position={"x": 20, "y": 20})
    facts.filter(has_text=" 9 of 16 pixels").wait_for()
    page.locator("canvas.editor").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press(" ")
    facts.filter(has_text=" 8 of 16 pixels").wait_for()
    shown = facts.inner_text()
    page.reload()
    facts.filter(has_text=" 8 of 16 pixels").wait_for()
    assert facts.inner_text() == shown
    assert page.locator(".pictures canvas").count() == 9
    assert page.evaluate(NAMELESS) == []


def test_large_images_are_completed(visit, serve, large_images):
    page = visit(serve(*large_images).url)
    facts = page.locator(".facts")
    page.get_by_role("button", name="Example ›").click()
    facts.filter(has_text=" 0 of 784 pixels").wait_for()
    page.get_by_role("button", name="Hide bottom").click()
    facts.filter(has_text=" 392 of 784 pixels").wait_for()
    assert len(evidence(page)["p"]) == 2 * 784


def test_the_fan_of_a_sequence_moves_with_the_evidence(visit, serve, weather):
    page = visit(serve(*weather).url)
    told = page.get_by_role("img", name="degrees:")
    label = told.get_attribute("aria-label")
    assert evidence(page) == {"s": 0, "u": 18, "h": 12}
    page.get_by_role("slider", name="Rows known").focus()
    page.keyboard.press("ArrowLeft")
    wait_for_answers(page)
    assert evidence(page)["u"] == 17
    assert "17 rows known" in told.get_attribute("aria-label")
    page.get_by_label("Value of degrees").fill("40")
    page.get_by_label("Value of degrees").press("Tab")
    wait_for_answers(page)
    assert evidence(page)["c"] == {"16": {"degrees": 40}}
    shown = told.get_attribute("aria-label")
    assert shown != label
    assert page.locator(".mark.edited").count() == 1
    page.reload()
    page.wait_for_selector(".mark.edited")
    wait_for_answers(page)
    assert told.get_attribute("aria-label") == shown  # a link holds the whole view
    page.get_by_role("button", name="Restore degrees from the data").click()
    wait_for_answers(page)
    assert "c" not in evidence(page)
    dot = page.locator(".series .mark.set0").nth(8).bounding_box()
    page.mouse.move(dot["x"] + 2, dot["y"] + 2)
    page.mouse.down()
    page.mouse.move(dot["x"] + 2, dot["y"] - 20, steps=2)
    page.mouse.up()
    wait_for_answers(page)
    assert len(evidence(page)["c"]) == 1
    page.get_by_label("Sequence").select_option("south")
    wait_for_answers(page)
    assert evidence(page)["s"] == 1
    assert page.evaluate(NAMELESS) == []


def test_more_points_make_a_smaller_error(visit, serve):
    page = visit(serve(network()).url)

    def reading(name: str) -> float:
        wait_for_answers(page)
        return float(page.locator("dt", has_text=name).locator("+ dd").inner_text())

    coarse = reading("true error")
    slider = page.get_by_role("slider", name="N")
    slider.fill("64")
    page.locator("figcaption", has_text="64 points").first.wait_for()
    assert reading("true error") < 1e-6 < coarse
    assert page.locator(".unit.integral").count() == 2
    assert page.locator(".unit.observed").count() == 2
    page.get_by_label("unknown").first.check()
    wait_for_answers(page)
    assert evidence(page)["x"]["x1"] is None
    page.get_by_label("Rule").select_option("Gauss–Hermite")
    wait_for_answers(page)
    assert evidence(page)["rule"] == "Gauss–Hermite"
    assert page.evaluate(NAMELESS) == []


@pytest.mark.parametrize("width", [360, 1300])
def test_every_page_is_readable_and_fits(visit, serve, table, images, weather, width):
    view = '#{"a":{"kind":{"is":"ash"},"length":{"from":9,"to":12}},"b":{"old":{"is":true}},"on":1}'
    for url in (table + view, serve(*images).url, serve(*weather).url, serve(network()).url):
        page = visit(url, viewport={"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            wait_for_answers(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CONTRAST) == []
            assert page.evaluate(NAMELESS) == []


def test_the_keyboard_reaches_every_control_in_the_order_of_the_page(visit, table):
    page = visit(table)
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("(e => e.getAttribute('aria-label') || e.textContent)(document.activeElement)"))
    assert seen[:5] == ["Skip to the content", "Compare", "Draw ten rows", "Copy link", "Reset"]
    assert [name.partition(":")[0] for name in seen[5:8]] == ["ash", "birch", "cedar"]
    assert seen[8:11] == ["Value of length", "length, from", "length, to"]
