"""Text that was not tokenized is told, and tokenized text is not."""

import gzip

import pytest

from bilm.data.shards import Shards
from bilm.data.survey import survey
from bilm.data.tokenization_check import TokenizationCheck, check_tokenization, watched
from bilm.data.vocabulary import MARKS, Vocabulary
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.errors import BilmError

RAW = "Das Haus ist, wie er sagte, groß. Wer weiß? Niemand!"
TOKENIZED = "Das Haus ist , wie Dr. M. sagte , groß . Wer weiß ? Niemand !"
RUSSIAN, ARABIC = "Дом, который он видел, был большой.", "البيت، الذي رآه، كبير؟"
ENTITIES = "this &amp; that &lt; is HTML :) :: http://a.b/c"


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def finds(*sentences, known=(), n=100):
    check = TokenizationCheck(known)
    for _ in range(n):
        for sentence in sentences:
            check.add(sentence.split())
    return check.warn("text")


@pytest.mark.parametrize("sentence", [RAW, RUSSIAN, ARABIC, '"Ja," sagte er.'])
def test_text_that_was_not_tokenized(sentence, caplog):
    assert finds(sentence)
    (line,) = warnings(caplog)
    assert line.startswith("text: not tokenized, it seems: ") and "such as '" in line


@pytest.mark.parametrize("sentence", [TOKENIZED, ENTITIES, "no marks at all", "他说 ， 好 。", ","])
def test_text_that_was(sentence, caplog):
    assert not finds(sentence) and not warnings(caplog)


def test_a_few_words_of_many_are_no_sign():
    assert not finds(RAW, *[TOKENIZED] * 9)
    assert not finds(RAW, n=4), "too few to tell"


def test_words_that_the_model_knows_are_right():
    assert not finds(RAW, known=set(RAW.split()))


def test_real_text_that_was_tokenized(golden_data):
    assert not check_tokenization(Shards(sorted(golden_data.rglob("*.txt"))))


def test_a_survey_says_so_once(tmp_path, caplog):
    for name in "ab":
        (tmp_path / name).write_text(f"{RAW}\n" * 100, encoding="utf-8")
    (tmp_path / "v").write_text("".join(f"{word}\n" for word in MARKS))
    survey(Shards([tmp_path / "a", tmp_path / "b"]), Vocabulary(tmp_path / "v"))
    (line,) = [line for line in warnings(caplog) if "tokenized" in line]
    assert line.startswith(f"{tmp_path}/a and 1 more: ") and "'ist,', 'sagte,', 'weiß?'" in line


def test_an_embedded_corpus_is_looked_at_first(tmp_path, caplog):
    with gzip.open(tmp_path / "a.gz", "wt", encoding="utf-8") as file:
        file.write(f"{RAW}\n" * 100)
    with pytest.raises(BilmError, match="nowhere"):
        dump_bilm_embeddings(None, tmp_path / "a.gz", "nowhere.json", "no.hdf5", tmp_path / "o")
    assert "a.gz: not tokenized, it seems: 40 % of the words" in warnings(caplog)[0]


def test_sentences_that_are_watched_pass_unchanged(caplog):
    sentences = [RAW.split()] * 100
    assert list(watched(iter(sentences), "-")) == sentences
    assert len(warnings(caplog)) == 1
