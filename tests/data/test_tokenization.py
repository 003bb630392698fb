"""Sentences are lists of words; text is split by spaCy; untokenized text gives one warning."""

import pytest

from bilm.data.shards import Shards
from bilm.data.survey import check_tokenization, survey
from bilm.data.tokenization import (
    TokenizationCheck,
    checked_sentence,
    sentence_splitter,
)
from bilm.data.vocabulary import MARKS, Vocabulary
from bilm.errors import DataError

pytestmark = pytest.mark.clients

RAW = "Das Haus ist, wie er sagte, groß. Wer weiß? Niemand!"
TOKENIZED = "Das Haus ist , wie Dr. M. sagte , groß . Wer weiß ? Niemand !"
RUSSIAN, ARABIC = "Дом, который он видел, был большой.", "البيت، الذي رآه، كبير؟"
ENTITIES = "this &amp; that &lt; is HTML :) :: http://a.b/c"


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


# --- sentences ---


@pytest.mark.parametrize(
    "sentence",
    [{"a", "b"}, frozenset("ab"), {"a": 1}, {"a": 1}.keys(), "a string", b"bytes", 3],
)
def test_sentences_without_an_order_of_words_are_refused(sentence):
    with pytest.raises(DataError, match=r"sentence 7 is .*; expected a list of words"):
        checked_sentence(sentence, "sentence 7")


@pytest.mark.parametrize("sentence", [("a", "b"), iter(["a", "b"]), (w for w in "ab"), ["a", "b"]])
def test_sentences_may_be_any_ordered_iterable(sentence):
    assert checked_sentence(sentence, "it") == ["a", "b"]


# --- splitting ---


def test_sentence_splitter_keeps_abbreviations_and_quotes():
    pytest.importorskip("spacy", reason="make test-clients has spaCy")
    split = sentence_splitter("en")
    found = [" ".join(words) for words in split('Mr. Smith said "No." Why?\n \nHe\nleft .')]
    assert found == ['Mr. Smith said " No . "', "Why ?", "He left ."]
    assert split(" \n") == []


# --- text that is not tokenized ---


def finds(*sentences, known=(), n=100):
    check = TokenizationCheck("text", known)
    for _ in range(n):
        for sentence in sentences:
            check.add(sentence.split())
    return check.warn()


@pytest.mark.parametrize("sentence", [RAW, RUSSIAN, ARABIC, '"Ja," sagte er.'])
def test_untokenized_text_gives_a_warning(sentence, caplog):
    assert finds(sentence)
    (line,) = warnings(caplog)
    assert line.startswith("text: probably not tokenized: ") and "such as '" in line


@pytest.mark.parametrize("sentence", [TOKENIZED, ENTITIES, "no marks at all", "他说 ， 好 。", ","])
def test_tokenized_text_gives_no_warning(sentence, caplog):
    assert not finds(sentence) and not warnings(caplog)


def test_few_untokenized_words_give_no_warning():
    assert not finds(RAW, *[TOKENIZED] * 9)
    assert not finds(RAW, n=4)


def test_words_of_the_vocabulary_give_no_warning():
    assert not finds(RAW, known=set(RAW.split()))


def test_golden_text_is_tokenized(golden_data):
    assert not check_tokenization(Shards(sorted(golden_data.rglob("*.txt"))))


def test_survey_warns_once_of_untokenized_text(tmp_path, caplog):
    for name in "ab":
        (tmp_path / name).write_text(f"{RAW}\n" * 100, encoding="utf-8")
    (tmp_path / "v").write_text("".join(f"{word}\n" for word in MARKS))
    survey(Shards([tmp_path / "a", tmp_path / "b"]), Vocabulary(tmp_path / "v"))
    (line,) = [line for line in warnings(caplog) if "tokenized" in line]
    assert line.startswith(f"{tmp_path}/a and 1 more: ") and "'ist,', 'sagte,', 'weiß?'" in line


def test_watched_sentences_are_unchanged_and_warned_of_once(caplog):
    sentences = [RAW.split()] * 100
    check = TokenizationCheck("-")
    assert list(check.watch(iter(sentences))) == sentences
    assert list(check.watch(sentences)) == sentences
    assert len(warnings(caplog)) == 1
