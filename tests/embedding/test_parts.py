"""Embedding a corpus, interrupted at any point: what is left, and what it goes on to."""

import hashlib
import json
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import h5py
import pytest
from test_corpus import FILES, LINES, PART, dump, left

from bilm.data.records import Record
from bilm.embedding import corpus, part_files
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.outputs import merge_datasets
from bilm.embedding.parts import Parts
from bilm.errors import DataError

pytestmark = pytest.mark.usefixtures("one_embedder")
ROOT = Path(__file__).parents[2]


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
from bilm.embedding import part_files
from bilm.embedding.corpus import dump_bilm_embeddings
join, done = part_files.join_words, []
def join_or_die(words):
    done.append(words)
    if len(done) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return join(words)
part_files.join_words = join_or_die
dump_bilm_embeddings(None, *sys.argv[1:], part_sentences=4)
"""


def test_killed_and_given_again(text, outfile, tmp_path, monkeypatch, run_here):
    whole = tmp_path / "whole.hdf5"
    killed = start(["-c", KILLED, text, *FILES, outfile])
    flags = ["--dataset_file", text, "--outfile", whole, "--part_sentences", str(PART)]
    flags += ["--options_file", FILES[0], "--weight_file", FILES[1]]
    done = run_here("dump_embeddings.py", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {whole}: 13 sentences\n"
    assert killed.wait() == -9
    killed.communicate()
    parts = outfile.with_name("vectors.hdf5.parts")
    assert left(outfile) == [parts.name]
    names = sorted(path.name for path in parts.iterdir())
    assert len(names) == 4 and names[1:] == ["000000.hdf5", "lock", "run.json"], names
    closed = (parts / "000000.hdf5").stat().st_mtime_ns

    with pytest.raises(DataError, match=r"other layers, dtype; repeat the command"):
        dump(text, outfile, layers="top", dtype="float16")
    seen = []
    warm_up = ElmoEmbedder.warm_up
    monkeypatch.setattr(
        ElmoEmbedder,
        "warm_up",
        lambda self, s, *how: warm_up(self, (seen.append(w) or w for w in s), *how),
    )
    monkeypatch.setattr(corpus.Parts, "merge", lambda self, n, write: None)
    dump(text, outfile)
    assert (parts / "000000.hdf5").stat().st_mtime_ns == closed
    assert seen == [line.split() for line in LINES[:PART]]
    monkeypatch.undo()
    dump(text, outfile)  # merges
    assert left(outfile) == [outfile.name]
    assert content(outfile) == content(whole)


def failing_after(n_done):
    """Give a `join_words` that works so many times."""
    join, numbers = part_files.join_words, count()

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
    join = part_files.join_words
    parts = outfile.with_name("vectors.hdf5.parts")
    for n_done in (0, 5, 12):
        outfile.unlink()
        monkeypatch.setattr(part_files, "join_words", failing_after(n_done))
        with pytest.raises(OSError, match="disk full"):
            dump(text, outfile)
        assert left(outfile) == [parts.name]
        assert len(list(parts.iterdir())) == n_done // PART + 2
        monkeypatch.setattr(part_files, "join_words", join)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
            patch.setattr(h5py.h5o, "copy", Mock(side_effect=OSError("disk full")))
            dump(text, outfile)  # now the merge fails
        assert left(outfile) == [parts.name]
        assert len(list(parts.iterdir())) == 6
        dump(text, outfile)
        assert content(outfile) == whole
        assert left(outfile) == [outfile.name]


@pytest.mark.parametrize(
    ("before", "after"),
    [([["a\nb"]], [["a"], ["b"]]), ([["a", "b"]], [["a b"]]), ([[""]], [[]])],
)
def test_other_words_do_not_continue(tmp_path, outfile, monkeypatch, before, after):
    table = tmp_path / "lists.jsonl"
    monkeypatch.setattr(corpus.Parts, "merge", lambda self, n, write: None)
    for sentences in (before, after):
        table.write_text("".join(json.dumps({"words": words}) + "\n" for words in sentences))
        if sentences is before:
            dump(table, outfile, column="words")
        else:
            with pytest.raises(DataError, match="other dataset; repeat the command"):
                dump(table, outfile, column="words")


def test_the_digest_of_a_corpus_is_kept():
    """Folders of parts that other versions have left go on."""
    records = [Record(["a", "b c"], "1"), Record([], "2"), Record(["", "d"], "3")]
    found = corpus._survey(Mock(is_text=False, __iter__=lambda self: iter(records)), 9, str)
    assert found.digest == hashlib.sha256(b"a\tb c\n1\n\n2\n\td\n3\n").hexdigest()


KILLED_AT = """
import os, signal, sys
import numpy as np
from bilm.files import replacing
from bilm.storage.hdf5 import NewHDF5
from bilm.embedding.outputs import merge_datasets
from bilm.embedding.parts import Parts

outfile, folder = sys.argv[1], os.path.dirname(sys.argv[1])

def dump(kill_at=0):
    n_seen = 0
    def hook(event, arguments):
        nonlocal n_seen
        if event.split(".")[0] in ("open", "os", "fcntl"):
            n_seen += 1
            if n_seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    with Parts(outfile, {"a": 1}) as parts:
        for part in range(parts.n_closed(), 2):
            with replacing(parts.path(part)) as temporary, NewHDF5(temporary) as file:
                file[str(part)] = np.full(3, part)
        parts.merge(2, merge_datasets)

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
    assert open(outfile, "rb").read() == whole
    kill_at += 1
assert status == 0
print(n_kills)
"""


def test_a_kill_at_any_system_call(outfile):
    process = start(["-c", KILLED_AT, outfile])
    output, log = process.communicate()
    assert process.returncode == 0, log.decode()
    assert int(output) > 80


def test_two_processes_do_not_write_the_same_output(text, outfile):
    with Parts(outfile, {}) as parts:
        with pytest.raises(DataError, match=r"parts: another process is writing .*vectors\.hdf5"):
            dump(text, outfile)
        assert sorted(os.listdir(parts.folder)) == ["lock", "run.json"]
    with pytest.raises(DataError, match=r"other dataset, options"):
        dump(text, outfile)
    (parts.folder / "run.json").write_text("[1]")
    with pytest.raises(DataError, match=r"run\.json: damaged"):
        dump(text, outfile)


def test_a_damaged_part_is_named(outfile):
    with Parts(outfile, {}) as parts:
        parts.path(0).write_bytes(b"half")
        with pytest.raises(DataError, match=r"000000\.hdf5: damaged .* remove it"):
            parts.merge(1, merge_datasets)


def test_a_link_and_a_name_of_255_bytes(text, tmp_path):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.hdf5", tmp_path / "there" / ("x" * 250 + ".hdf5")
    link.symlink_to(target)
    assert dump(text, link) == len(LINES)
    assert link.is_symlink() and left(target) == [target.name]


FULL = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_full_disk_is_one_line(text, outfile):
    flags = ["--dataset_file", text, "--outfile", outfile, "--part_sentences", "4"]
    flags += ["--options_file", FILES[0], "--weight_file", FILES[1]]
    command = [sys.executable, "-c", FULL, "5000", ROOT / "bin/dump_embeddings.py", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"dump_embeddings\.py: error: .*/000000\.hdf5: File too large\n",
        done.stderr,
    )
    assert sorted(os.listdir(f"{outfile}.parts")) == ["lock", "run.json"]
