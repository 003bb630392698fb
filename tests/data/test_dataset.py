import math
from collections import deque
from itertools import count, islice, pairwise

import h5py
import numpy as np
import pytest
from conftest import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data import dataset
from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.data.stream import SentenceStream
from bilm.data.vocabulary import MARKS, PAD_CHAR, UnicodeCharsVocabulary, Vocabulary

LENGTHS = st.lists(st.integers(1, 9), max_size=12)
SIZES = st.integers(1, 5)


def write_corpus(folder, lengths, n_shards=1):
    """Sentences of the given lengths without repeated words; returns pattern and vocabulary."""
    words = (f"w{i}" for i in count())
    sentences = [" ".join(islice(words, n)) for n in lengths]
    for i in range(n_shards):
        lines = sentences[i * len(sentences) // n_shards : (i + 1) * len(sentences) // n_shards]
        (folder / f"{i:03}.txt").write_text("".join(f"{line}\n\n" for line in lines))
    vocab_words = [*MARKS, *" ".join(sentences).split()]
    (folder / "vocab").write_text("".join(f"{word}\n" for word in vocab_words))
    return f"{folder}/*.txt", Vocabulary(folder / "vocab")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return (tmp_path_factory.mktemp("corpus") for _ in count())


def sentences_of(reader):
    """The words of each sentence of a reader between its marks, in order."""
    direction = "backward" if reader.reverse else "forward"
    key = reader.seed, int(reader.reverse)
    stream = SentenceStream(reader.shards, reader._shuffle_buffer, key, None)
    return (piece.tokens for piece in reader._pieces(stream, math.inf, direction))


def predictions(reader):
    """(input, target) of each sentence of a reader, in order."""
    for tokens in sentences_of(reader):
        yield list(pairwise(reader.vocab.known_ids(tokens).tolist()))


def row_predictions(windows, n_rows):
    """(input, target) of each row over all windows, without what is masked."""
    rows = [[] for _ in range(n_rows)]
    for window in windows:
        mask = window.get("mask", np.ones_like(window["token_ids"], bool))
        for i, row in enumerate(rows):
            pair = (window[key][i, mask[i]].tolist() for key in ("token_ids", "next_token_id"))
            row += zip(*pair, strict=True)
    return rows


@pytest.mark.parametrize(
    "path", sorted((GOLDEN / "data").glob("*.hdf5")), ids=lambda path: path.stem
)
def test_golden_windows(path, golden_data):
    with h5py.File(path) as file:
        attributes = dict(file.attrs)
        expected = [{k: v[()] for k, v in file[name].items()} for name in sorted(file)]
    if path.stem.endswith("chars"):
        width = attributes["max_characters_per_token"]
        vocab = UnicodeCharsVocabulary(golden_data / "vocab.txt", width, validate_file=True)
    else:
        vocab = Vocabulary(golden_data / "vocab.txt", validate_file=True)
    kind = BidirectionalLMDataset if path.stem.startswith("bidirectional") else LMDataset
    reader = kind(golden_data / "heldout/*.txt", vocab, test=True)
    windows = list(reader.iter_batches(attributes["batch_size"], attributes["unroll_steps"]))
    assert len(windows) == len(expected)
    for window, there in zip(windows, expected, strict=True):
        assert {k for k, v in window.items() if v is not None} == set(there)
        for key, value in there.items():
            assert window[key].dtype == value.dtype
            np.testing.assert_array_equal(window[key], value)


def fill_rows(sentences, n_rows, n_steps):
    """The definition of a training window, one prediction at a time."""
    queue, rows, windows = deque(sentences), [[] for _ in range(n_rows)], []
    while True:
        window = []
        for i in range(n_rows):
            taken = []
            while len(taken) < n_steps:
                if not rows[i]:
                    if not queue:
                        return windows
                    rows[i] = queue.popleft()
                taken.append(rows[i][0])
                rows[i] = rows[i][1:]
            window.append(taken)
        windows.append(window)


@settings(deadline=None)
@given(LENGTHS, SIZES, st.integers(1, 9), st.booleans())
def test_training_windows_match_their_definition(folders, lengths, n_rows, n_steps, reverse):
    pattern, vocab = write_corpus(next(folders), lengths, n_shards=2)
    reader = LMDataset(pattern, vocab, reverse, test=True)
    expected = fill_rows(predictions(reader), n_rows, n_steps)
    windows = reader.iter_batches(n_rows, n_steps)
    windows = [np.stack([w["token_ids"], w["next_token_id"]], -1) for w in windows]
    assert [[list(map(tuple, row)) for row in w.tolist()] for w in windows] == expected


def deal(sentences, n_rows, drop_remainder):
    """The rows of an evaluation by definition: windows of one step."""
    queue, rows, pending = deque(sentences), [[] for _ in range(n_rows)], [[]] * n_rows
    while queue or any(pending):
        step = []
        for i in range(n_rows):
            if not pending[i] and queue:
                pending[i] = queue.popleft()
            if not pending[i] and drop_remainder:
                return rows
            step.append(pending[i][:1])
            pending[i] = pending[i][1:]
        for row, taken in zip(rows, step, strict=True):
            row += taken
    return rows


@settings(deadline=None)
@given(LENGTHS, SIZES, st.integers(1, 30), st.booleans(), st.booleans())
def test_evaluation_windows_match_the_definition(folders, lengths, n_rows, n_steps, reverse, drop):
    pattern, vocab = write_corpus(next(folders), lengths)
    reader = LMDataset(pattern, vocab, reverse, test=True)
    windows = list(reader.iter_evaluation(n_rows, n_steps, drop_remainder=drop))
    assert row_predictions(windows, n_rows) == deal(predictions(reader), n_rows, drop)
    for window in windows:
        mask = window["mask"]
        assert (mask.dtype, mask.shape) == (bool, (n_rows, n_steps))
        assert mask.any()
        assert (mask[:, :-1] >= mask[:, 1:]).all()
        assert not window["token_ids"][~mask].any()
        assert not window["next_token_id"][~mask].any()


def test_bidirectional_evaluation_windows_are_mirrored_and_share_a_mask(golden_data):
    vocab = UnicodeCharsVocabulary(golden_data / "vocab.txt", 12)
    # Endless and shuffled for training, the reader still evaluates once and in order.
    reader = BidirectionalLMDataset(golden_data / "heldout/*", vocab, shuffle_on_load=True)
    for window in reader.iter_evaluation(3, 5):
        mask = window["mask"]
        assert "mask_reverse" not in window
        for suffix in ("", "_reverse"):
            chars, ids = window["tokens_characters" + suffix], window["token_ids" + suffix]
            assert (chars[~mask] == PAD_CHAR).all()
            known = mask & (ids != vocab.unk)
            np.testing.assert_array_equal(chars[known], vocab.word_char_ids[ids[known]])
    lengths = [len(words) + 1 for words in reader.shards.sentences()]
    for window in reader.iter_evaluation(len(lengths), max(lengths)):  # a sentence per row
        assert window["mask"].sum() == sum(lengths)
        for row, there in enumerate(window["mask"]):
            forward = window["next_token_id"][row, there]
            backward = window["next_token_id_reverse"][row, there]
            np.testing.assert_array_equal(forward[:-1], backward[:-1][::-1])
            assert (forward[-1], backward[-1]) == (vocab.eos, vocab.bos)


def epochs(reader, n_sentences, n_epochs):
    """Sentences as tuples of ids, forward, of each of the first epochs."""
    ids = map(reader.vocab.known_ids, sentences_of(reader))
    sentences = (tuple(sorted(numbers.tolist())) for numbers in ids)
    return [list(islice(sentences, n_sentences)) for _ in range(n_epochs)]


def test_shuffled_epochs_are_permutations(folders, monkeypatch):
    monkeypatch.setattr(dataset, "SHUFFLE_BUFFER", 10)
    pattern, vocab = write_corpus(next(folders), [3] * 40, n_shards=4)

    def read(**kwargs):
        kwargs = {"shuffle_on_load": True} | kwargs
        return epochs(LMDataset(pattern, vocab, **kwargs), n_sentences=40, n_epochs=2)

    (in_order, again), (first, second) = read(shuffle_on_load=False), read()
    assert in_order == again
    assert sorted(first) == sorted(second) == sorted(in_order)
    assert first not in (second, in_order)
    assert read() == [first, second]
    assert read(seed=1)[0] != first
    assert read(reverse=True)[0] != first  # `epochs` sorts the ids of a sentence


def test_directions_shuffle_independently(folders):
    pattern, vocab = write_corpus(next(folders), [4] * 60, n_shards=2)
    readers = (BidirectionalLMDataset(pattern, vocab, False, True, seed) for seed in (3, 3, 4))
    window, same, other = (next(reader.iter_batches(4, 50)) for reader in readers)
    np.testing.assert_equal(window, same)
    forward, backward = window["token_ids"], window["token_ids_reverse"]
    assert (forward != other["token_ids"]).any() and (backward != other["token_ids_reverse"]).any()
    assert set(forward.ravel()) != set(backward.ravel())


@pytest.mark.parametrize("lengths", [[14_000], [4_000] * 5, [90, 9_000, 900], [1] * 9 + [9_000]])
@pytest.mark.parametrize("reverse", [False, True])
def test_epoch_reads_each_token_once_whatever_the_lines_are(folders, lengths, reverse):
    pattern, vocab = write_corpus(next(folders), lengths)
    n_rows, n_steps, n_predictions = 16, 20, sum(lengths) + len(lengths)
    reader = LMDataset(pattern, vocab, reverse, shuffle_on_load=True)
    windows = list(islice(reader.iter_batches(n_rows, n_steps), n_predictions // n_rows // n_steps))
    read = [pair for row in row_predictions(windows, n_rows) for pair in row]
    once = LMDataset(pattern, vocab, reverse, test=True)
    text = {pair for sentence in predictions(once) for pair in sentence}
    assert set(read) <= text and len(text) == n_predictions
    assert len(set(read)) > 0.95 * n_predictions
    assert len({tuple(row) for row in windows[0]["next_token_id"].tolist()}) == n_rows


def test_own_rows_of_a_host_equal_those_of_all(folders):
    pattern, vocab = write_corpus(next(folders), [1, 5, 2, 8] * 5, n_shards=2)
    reader = BidirectionalLMDataset(pattern, vocab, shuffle_on_load=True)
    ranges = None, range(2), range(2, 5)
    batches = (reader.iter_placed_batches(5, 4, returned=rows) for rows in ranges)
    whole, *parts = (list(islice(own, 9)) for own in batches)
    for (window, place), *own in zip(whole, *parts, strict=True):
        for _, other in own:
            np.testing.assert_equal(other, place)
        for key in ("token_ids", "next_token_id", "token_ids_reverse", "next_token_id_reverse"):
            together = np.concatenate([part[key] for part, _ in own])
            np.testing.assert_array_equal(together, window[key])
