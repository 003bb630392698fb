"""The text of a run as batches: nothing lost or cut that counts, and read no longer than needed."""

from itertools import islice

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import TEXT, VOCABULARY, on_cpu, tiny_options

from bilm.data import numbered_words
from bilm.data.shards import resolve_shards
from bilm.data.survey import once_from, survey
from bilm.data.vocabulary import MARKS, PAD_CHAR, UnicodeCharsVocabulary, Vocabulary
from bilm.data.windows import model_batch
from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.token_encoder import Highway, TokenEncoder
from bilm.training.devices import Devices
from bilm.training.sampling import draw_negatives, with_unknown
from bilm.training.training_text import TrainingText

N_CHARS = 12
CHAR_CNN = {"max_characters_per_token": N_CHARS, "filters": [[1, 4], [5, 6]]}
RUN_OPTIONS = tiny_options(char_cnn=CHAR_CNN)
OPTIONS = RUN_OPTIONS.model


def draw_window(seed, n_rows, n_steps, longest=N_CHARS):
    rng = np.random.default_rng(seed)
    window = {}
    for suffix in ("", "_reverse"):
        window["token_ids" + suffix] = rng.integers(0, 9, size=(n_rows, n_steps))
        window["next_token_id" + suffix] = rng.integers(0, 9, size=(n_rows, n_steps))
        lengths = rng.integers(3, longest + 1, size=(n_rows, n_steps, 1))
        chars = rng.integers(0, 4, size=(n_rows, n_steps, N_CHARS))
        is_word = np.arange(N_CHARS) < lengths
        window["tokens_characters" + suffix] = np.where(is_word, chars, PAD_CHAR)
    return window


@settings(max_examples=30)
@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 6), st.integers(3, N_CHARS))
def test_distinct_tokens_reproduce_the_window(seed, n_rows, n_steps, longest):
    window = draw_window(seed, n_rows, n_steps, longest)
    batch = model_batch(window, OPTIONS)
    groups = batch["distinct"]
    distinct = np.full((sum(map(len, groups)), N_CHARS), PAD_CHAR)
    ends = np.cumsum([len(group) for group in groups])
    for group, end in zip(groups, ends, strict=True):
        n_chars = min(group.shape[1], N_CHARS)
        distinct[end - len(group) : end, :n_chars] = group[:, :n_chars]
    used = np.unique(np.concatenate([p.reshape(-1) for p in batch["places"].values()]))
    assert len(np.unique(distinct[used], axis=0)) == len(used)
    for direction, suffix in (("forward", ""), ("backward", "_reverse")):
        chars = window["tokens_characters" + suffix]
        np.testing.assert_array_equal(distinct[batch["places"][direction]], chars)
        np.testing.assert_array_equal(batch["targets"][direction], window["next_token_id" + suffix])


@pytest.mark.parametrize("max_words", [1, 1000])
def test_batches_of_word_numbers_equal_those_of_characters(tmp_path, monkeypatch, max_words):
    monkeypatch.setattr(numbered_words, "MAX_CACHED_WORDS", max_words)  # 1: always forgotten
    long = "a" * N_CHARS
    lines = [f"{long}x {long}y a w{k} {long}z" for k in range(40)]  # with the same characters
    (tmp_path / "text").write_text("\n".join(lines))
    (tmp_path / "vocab").write_text("\n".join([*MARKS, "a", *(f"w{k}" for k in range(30))]))
    vocab = UnicodeCharsVocabulary(tmp_path / "vocab", N_CHARS)
    shards = resolve_shards(str(tmp_path / "text"))
    batches = TrainingText(RUN_OPTIONS, vocab, shards, 0).batches(Devices(on_cpu()))
    reader = TrainingText(RUN_OPTIONS, vocab, shards, 0).reader
    n_rows, n_steps = RUN_OPTIONS.batch_size, RUN_OPTIONS.unroll_steps
    for window in islice(reader.iter_batches(n_rows, n_steps), 30):
        (found,), _ = next(batches)
        expected = model_batch(window, OPTIONS)
        for name, value in expected.items():
            tf.nest.map_structure(np.testing.assert_array_equal, found[name], value)


@pytest.mark.parametrize("longest", [3, 6, 7, 8, N_CHARS])
def test_character_axis_is_cut_exactly(longest):
    window = draw_window(0, 3, 5, longest)
    cnn = CharacterCNN(261, 3, OPTIONS.char_cnn.filters)
    encoder = TokenEncoder(4, cnn, Highway(0))
    encoder.build()
    batch = model_batch(window, OPTIONS)
    found = np.asarray(encoder.encode_groups(batch["distinct"]))[batch["places"]["forward"]]
    np.testing.assert_allclose(found, encoder(window["tokens_characters"]), atol=1e-6)


def test_negatives_depend_on_seed_step_replica_and_direction():
    window = draw_window(0, 2, 4)
    text = TrainingText(RUN_OPTIONS, UnicodeCharsVocabulary(VOCABULARY, N_CHARS), TEXT, 3)
    for suffix in ("", "_reverse"):
        window["word_numbers" + suffix] = text.reader.words(["word"] * 8).reshape(2, 4)
    batch = text.batch(window, 7, 1)
    for k, targets in enumerate(batch["targets"].values()):
        draws = draw_negatives(49, 16, (3, 7, 1, k), targets.reshape(-1))
        found = batch["negatives"]["backward" if k else "forward"]
        np.testing.assert_array_equal(found.ids, draws.ids)


def test_half_of_the_words_that_occur_once_are_unknown_targets(tmp_path):
    (tmp_path / "text").write_text("".join(f"a a w{i}\n" for i in range(200)))
    words = [*MARKS, "a", *(f"w{i}" for i in range(200))]
    (tmp_path / "vocab").write_text("\n".join(words))
    vocab, shards = Vocabulary(tmp_path / "vocab"), resolve_shards(str(tmp_path / "text"))
    options = tiny_options(char_cnn=None, batch_size=16, unroll_steps=8)
    options = options.replace(once_from=once_from(survey(shards, vocab), vocab))
    assert options.once_from == 4
    text = TrainingText(options, vocab, shards, seed=0)
    (batch,), _ = next(text.batches(Devices(on_cpu())))
    other = TrainingText(options.replace(once_from=None), vocab, shards, seed=0)
    (same,), _ = next(other.batches(Devices(on_cpu())))
    for direction, targets in batch["targets"].items():
        targets, before = targets.numpy(), same["targets"][direction].numpy()
        np.testing.assert_array_equal(targets[before < 4], before[before < 4])
        once = targets[before >= 4]
        assert set(once) - {vocab.unk} <= set(before[before >= 4])
        assert 0.2 < np.mean(once == vocab.unk) < 0.8


def test_unknown_targets_do_not_depend_on_the_number_of_replicas():
    targets = np.full((6, 5), 9)
    whole = with_unknown(targets, 4, 2, (0, 3, 1), range(6))
    ranges = range(2), range(2, 6)
    parts = [with_unknown(targets[: len(r)], 4, 2, (0, 3, 1), r) for r in ranges]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert {*whole.ravel()} == {2, 9}
