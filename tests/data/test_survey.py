"""Logged findings about a text: skipped, truncated, replaced or out of order."""

import numpy as np
import pytest

from bilm.data.shards import Shards
from bilm.data.survey import find_disorder, log_survey, once_from, survey
from bilm.data.vocabulary import MARKS, Vocabulary
from bilm.errors import DataError


@pytest.fixture
def corpus(tmp_path):
    """Two shards whose words have Zipf's frequencies, with empty lines and long words."""
    rng = np.random.default_rng(0)
    for name in "ab":
        words = rng.zipf(1.3, size=(400, 10)).clip(max=300)
        text = "".join(" ".join(f"w{i}" for i in row) + "\n" for row in words)
        (tmp_path / name).write_text(f"\n{text} \n{'é' * 30} {'x' * 49}\n", encoding="utf-8")
    return Shards([tmp_path / "a", tmp_path / "b"])


def write_vocabulary(tmp_path, words):
    (tmp_path / "v").write_text("".join(f"{word}\n" for word in [*MARKS, *words]))
    return tmp_path / "v"


def messages(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelname == level]


def test_survey_warns_of_an_unsorted_vocabulary(corpus, tmp_path, caplog):
    words = sorted((f"w{i}" for i in range(1, 301)), reverse=True)
    path = write_vocabulary(tmp_path, words)
    vocab = Vocabulary(path)
    read = survey(corpus, vocab)
    log_survey(read, vocab)
    (line,) = messages(caplog, "WARNING")
    assert line.startswith(f"{path}: not sorted by descending frequency in this text: ")
    assert "'w1', which occurs" in line and "\n" not in line
    caplog.clear()
    log_survey(read, vocab, check_order=False)  # a full softmax takes no negatives
    assert messages(caplog, "WARNING") == []


def test_survey_finds_the_words_that_occur_once(tmp_path):
    (tmp_path / "text").write_text("a a b b\nc a d\n")
    shards = Shards([tmp_path / "text"])

    def found(*words):
        vocab = Vocabulary(write_vocabulary(tmp_path, words))
        return once_from(survey(shards, vocab), vocab)

    assert found("a", "b", "c", "d", "other") == 5
    assert found("a", "c", "b", "d") == 6  # not sorted: only the last ones
    assert found("c", "d", "b", "a") is None
    assert found("a", "b", "c") is None  # `d` is unknown
    (tmp_path / "text").write_text("a b\nc d\n")
    assert found("a", "b", "c", "d") == 3


def test_survey_accepts_the_order_of_similar_text(tmp_path):
    """Sampling error of rare words is accepted."""
    vocab = Vocabulary(write_vocabulary(tmp_path, [f"w{i}" for i in range(2000)]))
    rng = np.random.default_rng(0)
    expected = 20_000 / np.arange(1, 2001)
    counts = np.concatenate([np.zeros(3, int), rng.poisson(expected)])
    assert find_disorder(counts, vocab) is None
    counts[[5, 1500]] = counts[[1500, 5]]
    early, late = find_disorder(counts, vocab)
    assert late == 1500 and counts[early] == counts[:1500][3:].min()


def test_survey_samples_every_shard(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.data.survey.SAMPLE_TOKENS", 20)
    vocab = Vocabulary(write_vocabulary(tmp_path, ["w1"]))
    whole, sample = (survey(corpus, vocab, is_whole=is_whole) for is_whole in (True, False))
    assert tuple(whole.counts) == (802, 8004) and whole.totals.sum() == 8004
    assert tuple(sample.counts) == (2, 20) and sample.totals.sum() == 20
    expected = [vocab.eos]
    for path in corpus.paths:
        first = next(Shards([path]).sentences())
        expected += [*vocab.known_ids(first), vocab.eos]
    for read in (whole, sample):
        np.testing.assert_array_equal(read.sample, expected)
    assert once_from(sample, vocab) is None


def test_survey_of_a_blank_text_is_refused(tmp_path):
    (tmp_path / "blank").write_text("\n \n")
    vocab = Vocabulary(write_vocabulary(tmp_path, []))
    with pytest.raises(DataError, match="blank: no sentence"):
        survey(Shards([tmp_path / "blank"]), vocab)


def test_vocabulary_of_another_text_is_refused(corpus, tmp_path):
    path = write_vocabulary(tmp_path, ["other", "words"])
    vocab = Vocabulary(path)
    with pytest.raises(DataError, match=f"{path}: contains no word of the training text"):
        log_survey(survey(corpus, vocab), vocab)
