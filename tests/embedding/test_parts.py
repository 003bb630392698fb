"""Embedding a corpus that is interrupted, repeated with other settings, or edited."""

import os
from itertools import count
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from command_runs import output_of
from disk_faults import flip_bit
from test_corpus import LINES, PART, dump, left

from bilm.embedding import corpus, writers
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.writers import Content, NpzWriter
from bilm.errors import DataError

pytestmark = pytest.mark.usefixtures("one_embedder")
NAMES = [
    "vectors.hdf5",
    "vectors.npz",
    pytest.param("vectors.parquet", marks=[pytest.mark.clients, pytest.mark.short]),
]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def outfile(tmp_path):
    return tmp_path / "out" / "vectors.hdf5"


def content(path):
    """Return everything in an output, to compare bits; the order of datasets may differ."""
    if path.suffix != ".hdf5":
        return path.read_bytes()
    with h5py.File(path) as file:
        return {
            name: (dict(item.attrs), item.dtype, item.shape, item[...].tolist())
            for name, item in file.items()
        }


def failing_after(n_done):
    """Return an `embed_as_completed` that yields so many sentences in all."""
    embed, numbers = ElmoEmbedder.embed_as_completed, count()

    def embed_or_fail(*arguments):
        for found in embed(*arguments):
            if next(numbers) == n_done:
                raise OSError("disk full")
            yield found

    return embed_or_fail


def interrupted(monkeypatch, n_done, *arguments, **how):
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(ElmoEmbedder, "embed_as_completed", failing_after(n_done))
        dump(*arguments, **how)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warm_parts", [2])
def test_failed_part_or_merge_continues_to_equal_file(text, outfile, monkeypatch, warm_parts, name):
    outfile = outfile.with_name(name)
    monkeypatch.setattr(corpus, "WARM_PARTS", warm_parts)
    dump(text, outfile)
    whole = content(outfile)
    folder = outfile.with_name(f"{name}.parts")
    for n_done in (5, 12):
        outfile.unlink()
        interrupted(monkeypatch, n_done, text, outfile)
        assert left(outfile) == [folder.name]
        assert len(list(folder.glob("0*"))) == n_done // PART
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
            patch.setattr(writers.Writer, "append", Mock(side_effect=OSError("disk full")))
            dump(text, outfile)  # now the merge fails
        assert left(outfile) == [folder.name]
        assert len(list(folder.glob("0*"))) == 4
        dump(text, outfile)
        assert content(outfile) == whole
        assert left(outfile) == [outfile.name]


@pytest.mark.parametrize(
    "other",
    [{"layers": "top"}, {"dtype": "float16"}, {"pool": "mean"}, {"backend": "numpy"}]
    + [{"precision": "bfloat16"}, {"part_sentences": 3}],
    ids=str,
)
def test_parts_of_other_settings_are_not_used(text, outfile, monkeypatch, other):
    interrupted(monkeypatch, 5, text, outfile)
    dump(text, outfile.with_name("whole.hdf5"), **other)
    dump(text, outfile, **other)
    assert left(outfile) == ["vectors.hdf5", "whole.hdf5"]
    assert content(outfile) == content(outfile.with_name("whole.hdf5"))


@pytest.mark.parametrize("name", NAMES)
def test_edited_corpus_is_embedded_anew_from_the_edit_on(text, outfile, monkeypatch, name):
    outfile = outfile.with_name(name)
    interrupted(monkeypatch, 9, text, outfile)  # two parts
    edited = [*LINES[:PART], "another", *LINES[PART + 1 :]]
    text.write_text("\n".join(edited), encoding="utf-8")
    embed, seen = ElmoEmbedder.embed_as_completed, []

    def noted(self, sentences, *how):
        return embed(self, (seen.append(words) or words for words in sentences), *how)

    with monkeypatch.context() as patch:
        patch.setattr(ElmoEmbedder, "embed_as_completed", noted)
        dump(text, outfile)
    assert seen[0] == ["another"] and len(seen) == len(LINES) - PART
    whole = outfile.with_name(f"whole{outfile.suffix}")
    dump(text, whole)
    assert content(outfile) == content(whole)


def test_corpus_edited_while_it_is_read_gives_a_consistent_output(text, outfile, monkeypatch):
    read_first = corpus.read_first

    def read_and_edit(*arguments):
        found = read_first(*arguments)
        text.write_text("one two\nthree\n")
        return found

    monkeypatch.setattr(corpus, "read_first", read_and_edit)
    outfile = outfile.with_name("vectors.npz")
    assert dump(text, outfile) == 2
    with np.load(outfile) as file:
        assert file["offsets"].tolist() == [0, 2, 3] and len(file["vectors"]) == 3


@pytest.mark.parametrize("name", NAMES)
def test_damaged_parts_are_named(text, outfile, monkeypatch, name):
    outfile = outfile.with_name(name)
    interrupted(monkeypatch, 9, text, outfile)
    (part,) = outfile.with_name(f"{name}.parts").glob("000001-*")
    part.write_bytes(part.read_bytes()[:-99])
    with pytest.raises(DataError, match=r"000001-.*: damaged .*; remove it and repeat"):
        dump(text, outfile)
    part.unlink()
    dump(text, outfile)
    assert left(outfile) == [name]


def test_changed_vectors_in_a_part_of_npz_are_noticed(text, outfile, monkeypatch):
    outfile = outfile.with_name("vectors.npz")
    interrupted(monkeypatch, 9, text, outfile)
    (part,) = outfile.with_name("vectors.npz.parts").glob("000001-*")
    flip_bit(part)
    with pytest.raises(DataError, match=r"000001-.*: damaged \(Bad CRC-32 for file 'vectors.npy'"):
        dump(text, outfile)


KILLED_AT = """
import os, signal, sys
from bilm.data.readers import Record
from bilm.embedding.corpus import open_parts
from bilm.embedding.writers import Content
import numpy as np

outfile, folder = sys.argv[1], os.path.dirname(sys.argv[1])
content = Content((2,), "float32", False, [])

def dump(kill_at=0):
    n_seen = 0
    def hook(event, arguments):
        nonlocal n_seen
        if event.split(".")[0] in ("open", "os", "fcntl"):
            n_seen += 1
            if n_seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    with open_parts(outfile, content, [1]) as parts:
        for part in range(2):
            records = [Record(["a", str(part)])]
            path = parts.next_path(records)
            if not path.exists():
                with parts.writing(path, records) as out:
                    out.add(part, records[0], np.ones((2, 2)))
            parts.add(path, records)
        parts.merge()

def in_a_child(kill_at=0):
    if not (child := os.fork()):
        dump(kill_at)
        os._exit(0)
    return os.waitpid(child, 0)[1]

assert in_a_child() == 0
whole = open(outfile, "rb").read()
kill_at, n_kills, status = 1, 0, 9
while status == 9:
    os.unlink(outfile)
    status = in_a_child(kill_at)
    n_kills += status == 9
    assert in_a_child() == 0
    assert os.listdir(folder) == [os.path.basename(outfile)], (kill_at, os.listdir(folder))
    assert len(open(outfile, "rb").read()) == len(whole)
    kill_at += 1
assert status == 0
print(n_kills)
"""


@pytest.mark.slow
def test_sigkill_at_any_system_call_leaves_a_continuable_folder(outfile):
    assert int(output_of(KILLED_AT, outfile.with_name("vectors.npz"))) > 80


def test_two_processes_do_not_write_the_same_output(text, outfile):
    content = Content((2,), "float32", False, [])
    with (
        corpus.open_parts(outfile, content, []) as opened,
        pytest.raises(DataError, match=r"parts: another process is writing .*vectors\.hdf5"),
    ):
        dump(text, outfile)
    assert os.listdir(opened.folder) == ["lock"]


def test_folder_of_parts_with_other_files_is_kept(text, outfile):
    parts = outfile.with_name("vectors.hdf5.parts")
    parts.mkdir(parents=True)
    (parts / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match=r"contains 'mine.txt', expected parts of vectors\.hdf5"):
        dump(text, outfile)
    assert [path.name for path in parts.iterdir()] == ["mine.txt"]


def test_vectors_are_written_in_order_whatever_the_order_of_completion(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "GROUP_BYTES", 1)
    records = [corpus.Record([str(i)] * i) for i in range(6)]
    expected = [np.full((i, 2), i, np.float32) for i in range(6)]
    content = Content((2,), "float32", False, [])
    out = NpzWriter(tmp_path / "x.npz", content, first=0, n_rows=sum(range(6)))
    for i in np.random.default_rng(0).permutation(6).tolist():
        out.add(i, records[i], expected[i])
    out.close()
    with np.load(tmp_path / "x.npz") as file:
        np.testing.assert_array_equal(file["vectors"], np.concatenate(expected))
