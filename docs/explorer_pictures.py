# SPDX-License-Identifier: Apache-2.0
"""Photograph the explorer for the documentation; needs Chromium and playwright.

Usage: ``python docs/explorer_pictures.py``; it fits some small models first, which takes a minute or two.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from palmerpenguins import load_penguins
from PIL import Image
from playwright.sync_api import Page, sync_playwright

import picirc as pc

ASSETS = Path(__file__).parent / "assets"
COLOURS = 255  # of a picture, so that its file is small


def table() -> pc.Explorer:
    """Penguins of one species that weigh much."""
    penguins = load_penguins()
    with tempfile.TemporaryDirectory() as folder:
        pc.fit_table(penguins).save(f"{folder}/penguins")  # the page is called as the folder
        return pc.explore(f"{folder}/penguins", data=penguins, browser=False, wait=False)


def images() -> pc.Explorer:
    """Digits."""
    digits = pc.data.load("digits")
    tree = pc.hidden_chow_liu(digits.train)
    seed = torch.Generator().manual_seed(0)
    pic = pc.PIC(tree, pc.Categorical(17), width=128, sharing="composite", input_sharing="full", generator=seed)
    pic, _ = pc.fit(pic, digits.train, digits.valid, rule=pc.shifted(16), steps=500)
    return pc.explore(pic, data=digits, browser=False, wait=False)


def sequences() -> pc.Explorer:
    """A series of numbers, counts and categories that swing together."""
    rng = np.random.default_rng(0)
    days = np.arange(120)
    degrees = 10 + 5 * np.sin(days / 6) + 0.7 * rng.normal(size=120)
    table = {
        "day": np.datetime64("2024-01-01") + days,
        "degrees": np.where((days >= 20) & (days < 24), np.nan, degrees),
        "sales": rng.poisson(np.exp(degrees / 6)),
        "sky": np.where(degrees + rng.normal(size=120) < 10, "rain", "sun").astype(object),
    }
    model = pc.fit_sequences(table, time="day", dims=2)
    return pc.explore(model, data=table, browser=False, wait=False)


def circuit() -> pc.Explorer:
    """A network with three latents."""
    net = pc.BayesNet()
    net.latent("z1", pc.LinearGaussian(std=1.0))
    net.latent("z2", pc.LinearGaussian({"z1": 0.8}, bias=0.1, std=0.5))
    net.latent("z3", pc.LinearGaussian({"z1": -0.5}, std=0.7))
    net.observed("x1", pc.LinearGaussian({"z1": 1.0}, std=0.3))
    net.observed("x2", pc.LinearGaussian({"z1": 0.4, "z2": -1.5}, bias=2.0, std=0.4))
    net.observed("x3", pc.LinearGaussian({"z3": 1.2}, std=0.5))
    return pc.explore(net, browser=False, wait=False)


def settled(page: Page) -> None:
    """Wait until no question is under way."""
    page.wait_for_selector("main")
    page.wait_for_selector("body:not([data-busy])", state="attached")


def photograph(
    page: Page, explorer: pc.Explorer, name: str, view: dict[str, Any], clicks: tuple[str, ...] = ()
) -> None:
    """Open a view, press some buttons and save what is seen."""
    page.goto(explorer.url + ("#" + quote(json.dumps(view)) if view else ""))
    settled(page)
    for button in clicks:
        page.get_by_role("button", name=button, exact=True).click()
        page.wait_for_timeout(500)
        settled(page)
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    height = page.evaluate("Math.ceil(document.querySelector('#page').getBoundingClientRect().bottom) + 16")
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": min(height, page.viewport_size["height"])}
    with Image.open(io.BytesIO(page.screenshot(clip=clip))) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(ASSETS / f"{name}.png", optimize=True)
    explorer.stop()


def main() -> None:
    """All pictures."""
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as program:
        browser = program.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = browser.new_page(viewport={"width": 1300, "height": 890})
        heavy = {"a": {"species": {"is": "Gentoo"}, "body_mass_g": {"from": 5000, "to": None}}}
        photograph(page, table(), "explore-table", heavy)
        photograph(page, images(), "explore-image", {}, ("Example ›",) * 3 + ("Hide bottom",))
        changed = {"u": 80, "h": 40, "c": {"79": {"degrees": 8}}}
        photograph(page, sequences(), "explore-sequence", changed)
        photograph(page, circuit(), "explore-circuit", {"x": {"x1": 0.5, "x2": 1.2, "x3": -0.4}, "n": 24})
        browser.close()


if __name__ == "__main__":
    main()
