"""Sentences are lists of words; text is split by spaCy."""

import numpy as np
import pytest

from bilm.data.tokenization import checked_sentence, checked_sentences, sentence_splitter
from bilm.errors import DataError

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("sentence", [("a", "b"), iter(["a", "b"]), (w for w in "ab"), ["a", "b"]])
def test_sentences_may_be_any_ordered_iterable(sentence):
    assert checked_sentence(sentence, "it") == ["a", "b"]


def test_batches_that_are_not_lists_are_refused():
    columns = {"id": ["a", "b"], "text": ["a c", "b"]}
    for batch in (columns, np.array([["a c"], ["b"]]), np.array("a"), {"a"}, b"a", 3):
        with pytest.raises(DataError, match="expected a list of words, a one-dimensional array"):
            list(checked_sentences(batch, kind="word"))
    for library in (pytest.importorskip("pandas"), pytest.importorskip("polars")):
        list(checked_sentences(library.Series(columns["id"]), str.split))
        for check in (checked_sentences, checked_sentence):
            with pytest.raises(DataError, match=r"it is a DataFrame of shape \(2, 2\)[,;] exp"):
                list(check(library.DataFrame(columns), name="it"))


def test_sentence_splitter_keeps_abbreviations_quotes_and_headings():
    pytest.importorskip("spacy", reason="make test-clients has spaCy")
    text = 'CHAPTER ONE\nMr. Smith said "No." Why?\n \nThe End of the Book\nHe\nleft .'
    found = [" ".join(words) for words in sentence_splitter("en")([text])]
    first = ["CHAPTER ONE", 'Mr. Smith said " No . "', "Why ?"]
    assert found == [*first, "The End of the Book", "He left ."]
    assert len(list(sentence_splitter("en", paragraph_per_line=True)(text.split("\n")))) == 6


def test_sentence_splitter_reads_paragraphs_of_any_length(monkeypatch):
    pytest.importorskip("spacy", reason="make test-clients has spaCy")
    split, line = sentence_splitter("en"), 'Mr. Smith said "No." Why? ' * 9
    whole = list(split([line]))
    long = [line] * 5_000  # 1.2 million characters without a blank line
    assert sum(1 for _ in split(long)) == sum(1 for _ in split([" ".join(long)])) == 90_000
    monkeypatch.setattr("bilm.data.tokenization.PART_WORDS", 7)
    assert list(split([line])) == list(split(line.split())) == whole and len(whole) == 18
