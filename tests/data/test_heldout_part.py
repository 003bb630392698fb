"""A part drawn from a text: its size, and what remains for training."""

from random import Random

import pytest

from bilm.data.dataset import LMDataset
from bilm.data.shards import Shards, count_tokens, draw_heldout_part
from bilm.data.vocabulary import Vocabulary
from bilm.data.vocabulary_builder import build_vocabulary
from bilm.errors import DataError


@pytest.fixture
def drawn(tmp_path):
    """A text in two files, one sentence repeated in the second; its held-out part; the rest."""
    lines = [f"sentence number {number} of the text" for number in range(800)]
    (tmp_path / "a.txt").write_text("\n\n".join(lines[:500]) + "\n")
    (tmp_path / "b.txt").write_text("\n".join([*lines[500:], lines[390], "two words"]) + "\n")
    text = Shards([tmp_path / "a.txt", tmp_path / "b.txt"])
    draw_heldout_part(text, tmp_path / "heldout.txt")
    heldout = Shards([tmp_path / "heldout.txt"])
    return lines, heldout, text.leaving_out(heldout.digests())


def test_heldout_part_consists_of_whole_blocks(drawn):
    lines, heldout, _ = drawn
    held_out = [" ".join(words) for words in heldout.sentences()]
    assert held_out == lines[380:400] + lines[780:800]


def test_training_reads_no_sentence_of_the_heldout_part(drawn, tmp_path):
    lines, heldout, rest = drawn
    held_out = set(map(" ".join, heldout.sentences()))
    remaining = [line for line in lines if line not in held_out]
    assert list(map(" ".join, rest.sentences())) == [*remaining, "two words"]

    build_vocabulary(rest, tmp_path / "vocab.txt", min_count=1)
    vocab = Vocabulary(tmp_path / "vocab.txt")
    n_predictions = sum(len(line.split()) + 1 for line in [*remaining, "two words"])
    reader = LMDataset(rest, vocab, shuffle_on_load=True)
    windows = reader.iter_batches(1, n_predictions)
    read = vocab.decode(next(windows)["next_token_id"][0]).split("</S>")
    assert sorted(line.strip() for line in read) == sorted(["", *remaining, "two words"])


def test_short_sentences_and_long_texts_have_a_heldout_part(tmp_path):
    lines = [f"Name{number} :" if number % 2 else f"the line {number}" for number in range(400)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    text = Shards([tmp_path / "a.txt"])
    draw_heldout_part(text, tmp_path / "heldout.txt")
    assert (tmp_path / "heldout.txt").read_text().split("\n")[:-1] == lines[380:400:2]
    lines = [f"w{number} " * 20_000 for number in range(40)]  # 20 blocks of 40,000 words
    (tmp_path / "a.txt").write_text("\n".join(lines))
    draw_heldout_part(text, tmp_path / "heldout.txt")
    assert len((tmp_path / "heldout.txt").read_text().split()) == 40_000


def texts_that_repeat(random):
    """Texts whose sentences have copies, by name."""
    words = [f"w{number}" for number in range(200)]
    different = [" ".join(random.choices(words, k=7)) for _ in range(300)]
    responses = ["lord have mercy on us", "hear our prayer o lord"]
    return {
        "twenty copies": random.sample(different * 20, 6_000),
        "log": [
            f"error {random.randrange(40)} in part {random.choice('xyz')}" for _ in range(9_000)
        ],
        "liturgy": [random.choice([*responses, *different]) for _ in range(400)] + responses * 900,
        "dialogue": [*different, *(["yes it is", "no it is not"] * 200)],
        "long blocks": ["w " * (6 if n // 20 % 20 < 19 else 12) + f"{n}" for n in range(2_000)],
    }


@pytest.mark.parametrize("name", ["twenty copies", "log", "liturgy", "dialogue", "long blocks"])
def test_text_that_repeats_its_sentences_loses_few_words(tmp_path, name, log):
    lines = texts_that_repeat(Random(3))[name]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    text = Shards([tmp_path / "a.txt"])
    draw_heldout_part(text, tmp_path / "heldout.txt")
    heldout = Shards([tmp_path / "heldout.txt"])
    n_tokens = count_tokens(text).n_tokens
    n_left = count_tokens(text.leaving_out(heldout.digests())).n_tokens
    assert 0.94 * n_tokens <= n_left < n_tokens
    assert f"training reads {n_left} of {n_tokens} words" in log.text


def test_sentences_without_copies_are_held_out_first(tmp_path):
    lines = [f"a sentence of six words {number}" for number in range(400)]
    lines[380:390] = ["long " * 11 + f"sentence {number}" for number in range(10)]
    lines[390:400] = lines[:10]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    draw_heldout_part(Shards([tmp_path / "a.txt"]), tmp_path / "heldout.txt")
    assert (tmp_path / "heldout.txt").read_text().splitlines() == lines[380:390]


def test_text_of_one_sentence_is_trained_on_whole_with_a_warning(tmp_path, log):
    (tmp_path / "a.txt").write_text("the same line\n" * 400)
    draw_heldout_part(Shards([tmp_path / "a.txt"]), tmp_path / "heldout.txt")
    assert "too few different sentences" in log.text and "nothing is measured" in log.text
    assert not (tmp_path / "heldout.txt").exists()


def test_text_of_few_sentences_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a b c\n" * 19)
    with pytest.raises(DataError, match=r"19 sentences \(lines\) are too few to hold out a part"):
        draw_heldout_part(Shards([tmp_path / "a.txt"]), tmp_path / "heldout.txt")
    assert not (tmp_path / "heldout.txt").exists()
