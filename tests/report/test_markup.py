# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picirc.report.drawing import Markup, escape, join, shorten, tag, text_width

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY_TEXT)
def test_whatever_a_text_holds_it_comes_back_as_text(text):
    element = ElementTree.fromstring(tag("p", text, title=text, class_="x"))
    assert not list(element)
    assert set(element.attrib) == {"title", "class"}
    # What XML cannot say is replaced, and it knows one kind of line end and, in attributes, one kind of space.
    sayable = all(c.isprintable() and c != "\ufffd" for c in text)
    if sayable:
        assert element.text == (text or None)
        assert element.attrib["title"] == text
    assert "\u202e" not in (element.text or "")


def test_only_markup_is_left_alone():
    assert tag("b", tag("i", "<")) == "<b><i>&lt;</i></b>"
    assert tag("b", Markup("<i/>") + "<i/>") == "<b><i/>&lt;i/&gt;</b>"
    assert join(["<", tag("br")], ", ") == "&lt;, <br/>"
    assert isinstance(Markup("a") + "b", Markup)
    assert escape(escape("&")) == "&amp;"


def test_attributes_without_a_value_are_left_out():
    assert tag("td", class_=None, colspan=2) == '<td colspan="2"></td>'


@given(st.text(), st.integers(4, 30))
def test_a_shortened_text_fits_and_keeps_its_ends(text, most):
    short = shorten(text, most)
    plain = " ".join(text.split())
    assert text_width(short, 1) <= text_width("x" * most, 1) + 1e-9 or len(plain) <= 2
    if short != plain:
        head, tail = short.split("…")[0], short.split("…")[-1]
        assert plain.startswith(head)
        assert plain.endswith(tail)


@pytest.mark.parametrize("text", ["漢字", "ab", "ＡＢ"])
def test_wide_characters_count_as_wide(text):
    assert text_width(text, 10) > 20 if not text.isascii() else text_width(text, 10) < 20
