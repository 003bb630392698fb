"""Embedding a corpus, interrupted at any point: what is left, and what it goes on to."""

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import h5py
import pytest
from test_corpus import FILES, LINES, PART, dump, left

from bilm import corpus
from bilm.embedding import ElmoEmbedder
from bilm.errors import DataError

ROOT = Path(__file__).parent.parent


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def outfile(tmp_path):
    return tmp_path / "out" / "vectors.hdf5"


def content(path):
    with h5py.File(path) as file:
        return {
            name: (dict(item.attrs), item.dtype, item.shape, item[...].tobytes())
            for name, item in file.items()
        }


def start(command):
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


KILLED = """
import os, signal, sys
from bilm import corpus
join, done = corpus._join, []
def join_or_die(words):
    done.append(words)
    if len(done) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return join(words)
corpus._join = join_or_die
corpus.dump_bilm_embeddings(None, *sys.argv[1:], part_sentences=4)
"""


def test_killed_and_given_again(text, outfile, tmp_path, monkeypatch):
    whole = tmp_path / "whole.hdf5"
    killed = start(["-c", KILLED, text, *FILES, outfile])
    flags = ["--dataset_file", text, "--outfile", whole, "--part_sentences", str(PART)]
    flags += ["--options_file", FILES[0], "--weight_file", FILES[1]]
    command = start([ROOT / "bin/dump_embeddings.py", *flags])
    output, log = command.communicate()
    assert command.returncode == 0, log
    assert output.decode() == f"wrote {whole}: 13 sentences\n"
    assert killed.wait() == -9
    killed.communicate()
    parts = outfile.with_name("vectors.hdf5.parts")
    assert left(outfile) == [parts.name]
    names = sorted(path.name for path in parts.iterdir())
    assert len(names) == 3 and names[1:] == ["000000.hdf5", "run.json"], names
    closed = (parts / "000000.hdf5").stat().st_mtime_ns

    with pytest.raises(DataError, match=r"other layers, dtype: repeat that"):
        dump(text, outfile, layers="top", dtype="float16")
    seen = []
    warm_up = ElmoEmbedder.warm_up
    monkeypatch.setattr(
        ElmoEmbedder, "warm_up", lambda self, s: warm_up(self, (seen.append(w) or w for w in s))
    )
    monkeypatch.setattr(corpus.Parts, "merge", lambda self, n: None)
    dump(text, outfile)
    assert (parts / "000000.hdf5").stat().st_mtime_ns == closed
    assert seen == [line.split() for line in LINES[:PART]]
    monkeypatch.undo()
    dump(text, outfile)  # merges
    assert left(outfile) == [outfile.name]
    assert content(outfile) == content(whole)


def failing_after(n_done):
    """Give a `_join` that works so many times."""
    join, numbers = corpus._join, count()

    def join_or_fail(words):
        if next(numbers) == n_done:
            raise OSError("disk full")
        return join(words)

    return join_or_fail


@pytest.mark.parametrize("warm_parts", [2, 16])
def test_interrupted_anywhere(text, outfile, monkeypatch, warm_parts):
    monkeypatch.setattr(corpus, "WARM_PARTS", warm_parts)
    dump(text, outfile)
    whole = content(outfile)
    join = corpus._join
    parts = outfile.with_name("vectors.hdf5.parts")
    for n_done in (0, 3, 5, 12):
        outfile.unlink()
        monkeypatch.setattr(corpus, "_join", failing_after(n_done))
        with pytest.raises(OSError, match="disk full"):
            dump(text, outfile)
        assert left(outfile) == [parts.name]
        assert len(list(parts.iterdir())) == n_done // PART + 1
        monkeypatch.setattr(corpus, "_join", join)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
            patch.setattr(h5py.h5o, "copy", Mock(side_effect=OSError("disk full")))
            dump(text, outfile)  # now the merge fails
        assert left(outfile) == [parts.name]
        assert len(list(parts.iterdir())) == 5
        dump(text, outfile)
        assert content(outfile) == whole
        assert left(outfile) == [outfile.name]
