"""A place in the text: whatever is read, it can be left and found again at any window."""

import gzip
import os
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data import dataset
from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.data.shards import Shards
from bilm.data.stream import (
    END_BYTES,
    SentenceStream,
    check_shards,
    describe_shards,
    read_references,
    same_shards,
)
from bilm.data.vocabulary import MARKS, Vocabulary
from bilm.errors import DataError


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return (tmp_path_factory.mktemp("text") for _ in count())


def write_shards(folder, shards, packed, blank=False):
    """Shards of sentences of these lengths without repeated words; returns all words."""
    words = (f"é{i}" for i in count())
    for i, (lengths, pack) in enumerate(zip(shards, packed, strict=True)):
        lines = [" ".join(islice(words, n)) for n in lengths]
        text = "".join(f"{line} \n{' ' * blank}\n" for line in lines).encode("utf-8-sig")
        name = f"{i:03}.txt{'.gz' * pack}"
        (folder / name).write_bytes(gzip.compress(text) if pack else text)
    return [f"é{i}" for i in range(int(next(words)[1:]))]


def arrays(window):
    """The ids of a window; the numbers of its words depend on what was read before."""
    return {name: array for name, array in window.items() if "word_numbers" not in name}


SHARDS = st.lists(st.tuples(st.lists(st.integers(1, 7), max_size=6), st.booleans()), min_size=1)


@settings(deadline=None, max_examples=150)
@given(
    SHARDS.filter(lambda shards: any(lengths for lengths, _ in shards)),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 12),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([0, 8]),
)
def test_continued_stream_equals_uninterrupted_one(
    folders, shards, n_rows, n_steps, buffer_size, n_before, reverse, seed, row_lines
):
    """Nothing is lost, doubled or mixed, whatever the shards, batch, window and place."""
    folder = next(folders)
    words = write_shards(folder, *zip(*shards, strict=True), blank=bool(seed % 2))
    (folder / "vocab").write_text("".join(f"{word}\n" for word in [*MARKS, *words]))
    vocab = Vocabulary(folder / "vocab")

    def read(position=None):
        reader = LMDataset(folder / "*.txt*", vocab, reverse, False, True, seed)
        return reader.iter_placed_batches(n_rows, n_steps, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "ROW_LINES", row_lines)  # 0: whole sentences only
        patch.setattr(dataset, "SHUFFLE_BUFFER", buffer_size)
        straight = list(islice(read(), 2 * n_before))
        position = straight[n_before - 1][1]
        continued = list(islice(read(position), n_before))
    for (window, place), (expected, there) in zip(continued, straight[n_before:], strict=True):
        np.testing.assert_equal(arrays(window), arrays(expected))
        np.testing.assert_equal(place, there)


def test_bidirectional_dataset_continues_from_a_position(folders):
    folder = next(folders)
    words = write_shards(folder, [[3, 1, 4, 1, 5], [9, 2, 6]], [False, True])
    (folder / "vocab").write_text("".join(f"{word}\n" for word in [*MARKS, *words]))
    reader = BidirectionalLMDataset(folder / "*.txt*", Vocabulary(folder / "vocab"), False, True, 3)
    straight = list(islice(reader.iter_placed_batches(3, 4), 9))
    position = straight[4][1]
    continued = reader.iter_placed_batches(3, 4, position)
    for (window, _), (expected, _) in zip(continued, straight[5:], strict=False):
        np.testing.assert_equal(arrays(window), arrays(expected))
    with pytest.raises(DataError, match="position has 3 rows, expected 2"):
        next(reader.iter_placed_batches(2, 4, position))


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), max_size=4), st.integers(0, 30), st.integers(0, 5))
def test_shuffled_epoch_is_a_permutation(folders, sizes, buffer_size, seed):
    folder = next(folders)
    paths = [folder / f"{i}" for i in range(len(sizes))]
    for i, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        path.write_text("".join(f"{i}.{k}\n" for k in range(size)))
    paths = Shards(paths)
    stream = SentenceStream(paths, buffer_size, (seed, 0), None)
    given = list(stream.read_epoch())
    in_order = [words[0] for words in paths.sentences()]
    assert sorted(text for _, text in given) == sorted(in_order)
    if not buffer_size:
        assert [text for _, text in given] == in_order
    references = np.array([reference for reference, _ in given], np.int64)
    assert read_references(paths, references) == [text for _, text in given]
    assert stream.next_epoch() == bool(in_order)


def test_edits_of_equal_size_are_noticed_at_the_ends_of_a_file(tmp_path):
    path = tmp_path / "a"
    size = 2 * END_BYTES + 9
    path.write_bytes(b"x" * size)
    known = describe_shards([str(path)])
    for place, is_noticed in ((0, True), (END_BYTES - 1, True), (END_BYTES + 4, False), (-1, True)):
        content = bytearray(b"x" * size)
        content[place] = ord("y")
        path.write_bytes(content)
        os.utime(path, (len(known), abs(place)))  # equal times would be a cached digest
        assert same_shards(describe_shards([str(path)]), known) != is_noticed
        check_shards([str(path)], [f"a, {size} bytes"])  # as earlier versions described it
    with pytest.raises(DataError, match="but the run in this folder was trained on a, "):
        check_shards([str(path)], known)
    assert not same_shards(known, [*known, "b, 4 bytes"])


def test_changed_shards_are_named(tmp_path):
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two\n")
    shards = [str(tmp_path / "a"), str(tmp_path / "b")]
    known = describe_shards(shards)
    check_shards(shards, known)
    with pytest.raises(DataError, match=r"found no file, but the run .* was trained on b, 4"):
        check_shards(shards[:1], known)
    (tmp_path / "b").write_text("three\n")
    with pytest.raises(DataError, match=r"found b, 6 bytes, .*, but .* was trained on b, 4"):
        check_shards(shards, known)
