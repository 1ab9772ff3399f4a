# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from data_files import write, write_text

from picirc import data
from picirc.errors import ArgumentError

TRAIN = " the <unk> sat \n on N mats \r\n\n" + "x" * 300 + " \n"
VALID = "  mats on the  \n"
TEST = "N\nsat"


def naive(text: str, vocabulary: list[str], length: int = 288) -> list[list[int]]:
    rows = []
    for line in text.split("\n"):
        sentence = line.strip()
        if sentence:
            row = [vocabulary.index(sentence[i]) if i < len(sentence) else 0 for i in range(length)]
            rows.append(row)
    return rows


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", ["ptb", "."])
def test_sentences_become_rows(tmp_path, folder, packed):
    write_text(tmp_path / folder, TRAIN, VALID, TEST, packed)
    result = data.load("ptb-288", tmp_path, download=False)
    vocabulary = ["@"]
    for line in TRAIN.split("\n"):
        for character in line.strip():
            if character not in vocabulary:
                vocabulary.append(character)
    assert result.symbols == "".join(vocabulary) == "@the <unk>saoNmx"
    assert result.categories == len(vocabulary)
    assert result.train.tolist() == naive(TRAIN, vocabulary)
    assert result.valid.tolist() == naive(VALID, vocabulary)
    assert result.test.tolist() == naive(TEST, vocabulary)
    assert result.train.shape == (3, 288)
    assert result.train.dtype == np.uint8
    assert result.train.flags.writeable
    assert result.image_shape is None
    assert result.train_labels is None


def test_decoding_undoes_coding(tmp_path):
    write_text(tmp_path / "ptb", TRAIN, VALID, TEST)
    result = data.load("ptb-288", tmp_path, download=False)
    assert data.decode(result.train, result.symbols) == ["the <unk> sat", "on N mats", "x" * 288]
    assert data.decode(result.test, result.symbols) == ["N", "sat"]


def test_a_character_that_training_lacks_is_an_error(tmp_path):
    write_text(tmp_path / "ptb", TRAIN, VALID, "sat\n\nsat q\n")
    with pytest.raises(ArgumentError, match=r"ptb\.test\.txt\.gz, line 3: expected .* training text, got 'q'"):
        data.load("ptb-288", tmp_path)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_padding_must_not_occur_in_the_text(tmp_path, part):
    texts = [TRAIN, VALID, TEST]
    texts[part] = "sat\nt@t"
    write_text(tmp_path / "ptb", *texts)
    with pytest.raises(ArgumentError, match="line 2: expected text without @"):
        data.load("ptb-288", tmp_path)


def test_an_empty_file_is_an_error(tmp_path):
    write_text(tmp_path / "ptb", TRAIN, " \n\n", TEST)
    with pytest.raises(ArgumentError, match=r"ptb\.valid.*at least one sentence"):
        data.load("ptb-288", tmp_path)


def test_bytes_that_are_no_text_are_an_error(tmp_path):
    write_text(tmp_path / "ptb", TRAIN, VALID, TEST, packed=False)
    write(tmp_path / "ptb" / "ptb.test.txt", b"sat\nsat \xff\n")
    with pytest.raises(ArgumentError, match=r"ptb\.test\.txt, line 2: expected text in UTF-8"):
        data.load("ptb-288", tmp_path)


def test_too_many_characters_are_an_error(tmp_path):
    write_text(tmp_path / "ptb", "".join(map(chr, range(0x4E00, 0x4F00))), "", "")
    with pytest.raises(ArgumentError, match="at least one sentence"):
        data.load("ptb-288", tmp_path)
    text = "".join(map(chr, range(0x4E00, 0x4F00)))
    write_text(tmp_path / "ptb", text, text, text)
    with pytest.raises(ArgumentError, match="at most 255 characters, got 256"):
        data.load("ptb-288", tmp_path)
    write_text(tmp_path / "ptb", text[1:], text[1:], text[1:])
    result = data.load("ptb-288", tmp_path)
    assert result.categories == 256
    assert result.train[0, :255].tolist() == list(range(1, 256))


@pytest.mark.parametrize("rows", [[1, 2], [[0.5]], [[3]], [[-1]]])
def test_only_categories_can_be_decoded(rows):
    with pytest.raises(ArgumentError, match="rows"):
        data.decode(rows, "@ab")
