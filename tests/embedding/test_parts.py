"""Embedding a corpus that is interrupted, or that changes while it is read."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from test_corpus import FILES, LINES, PART, dump, left

from bilm.data.readers import Record
from bilm.embedding import corpus, outputs
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.outputs import Parts, digest_of, open_parts
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
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.embedder import ElmoEmbedder
embed, done = ElmoEmbedder.embed_as_completed, []
def embed_or_die(*arguments):
    for found in embed(*arguments):
        done.append(found)
        if len(done) == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        yield found
ElmoEmbedder.embed_as_completed = embed_or_die
dump_bilm_embeddings(None, *sys.argv[1:], part_sentences=4)
"""


def test_hdf5_after_sigkill_equals_undisturbed_run(text, outfile, tmp_path, monkeypatch, run_here):
    whole = tmp_path / "whole.hdf5"
    killed = start(["-c", KILLED, text, *FILES, outfile])
    flags = ["--input", text, "--output", whole, "--part_sentences", str(PART)]
    flags += ["--model", FILES[0], "--weights", FILES[1]]
    done = run_here("bilm embed", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {whole}: 13 sentences\n"
    assert killed.wait() == -9
    killed.communicate()
    folder = outfile.with_name("vectors.hdf5.parts")
    assert left(outfile) == [folder.name]
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 4 and names[1:] == ["000000.rows", "lock", "run.json"], names
    closed = (folder / "000000.rows").stat().st_mtime_ns

    with pytest.raises(DataError, match="in layers, dtype; repeat"):
        dump(text, outfile, layers="top", dtype="float16")
    seen = []
    warm_up = ElmoEmbedder.warm_up
    monkeypatch.setattr(
        ElmoEmbedder,
        "warm_up",
        lambda self, s, *how: warm_up(self, (seen.append(w) or w for w in s), *how),
    )
    monkeypatch.setattr(Parts, "merge", lambda self, n, write: None)
    dump(text, outfile)
    assert (folder / "000000.rows").stat().st_mtime_ns == closed
    assert seen == [line.split() for line in LINES[:PART]]
    monkeypatch.undo()
    dump(text, outfile)  # merges
    assert left(outfile) == [outfile.name]
    assert content(outfile) == content(whole)


def failing_after(n_done):
    """Return an `embed_as_completed` that yields so many sentences in all."""
    embed, numbers = ElmoEmbedder.embed_as_completed, count()

    def embed_or_fail(*arguments):
        for found in embed(*arguments):
            if next(numbers) == n_done:
                raise OSError("disk full")
            yield found

    return embed_or_fail


@pytest.mark.parametrize("warm_parts", [2, 16])
def test_failed_part_or_merge_continues_to_equal_file(text, outfile, monkeypatch, warm_parts):
    monkeypatch.setattr(corpus, "WARM_PARTS", warm_parts)
    dump(text, outfile)
    whole = content(outfile)
    folder = outfile.with_name("vectors.hdf5.parts")
    for n_done in (0, 5, 12):
        outfile.unlink()
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
            patch.setattr(ElmoEmbedder, "embed_as_completed", failing_after(n_done))
            dump(text, outfile)
        assert left(outfile) == [folder.name]
        assert len(list(folder.iterdir())) == n_done // PART + 2
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
            patch.setattr(h5py.File, "create_dataset", Mock(side_effect=OSError("disk full")))
            dump(text, outfile)  # now the merge fails
        assert left(outfile) == [folder.name]
        assert len(list(folder.iterdir())) == 6
        dump(text, outfile)
        assert content(outfile) == whole
        assert left(outfile) == [outfile.name]


@pytest.mark.parametrize("name", ["vectors.hdf5", "vectors.npz"])
@pytest.mark.parametrize("pool", ["none", "mean"])
def test_parts_with_changed_vectors_are_refused(text, outfile, monkeypatch, name, pool):
    monkeypatch.setattr(outputs, "GROUP_BYTES", 3000)  # several groups per part
    outfile = outfile.with_name(name)
    dump(text, outfile, pool=pool)
    whole = outfile.read_bytes()
    outfile.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "merge", lambda self, n, write: None)
        dump(text, outfile, pool=pool)
    part = outfile.with_name(f"{name}.parts") / "000001.rows"
    stored = part.read_bytes()
    changed = bytearray(stored)
    changed[len(stored) // 3] ^= 4
    part.write_bytes(changed)
    with pytest.raises(
        DataError, match=r"000001\.rows: damaged \(its vectors have changed\); remove"
    ):
        dump(text, outfile, pool=pool)
    assert left(outfile) == [part.parent.name]
    part.unlink()
    dump(text, outfile, pool=pool)
    assert outfile.read_bytes() == whole


@pytest.mark.parametrize(
    ("before", "after"),
    [([["a\nb"]], [["a"], ["b"]]), ([["a", "b"]], [["a b"]]), ([[""]], [[]])],
)
def test_corpus_with_other_words_is_not_continued(tmp_path, outfile, monkeypatch, before, after):
    table = tmp_path / "lists.jsonl"
    monkeypatch.setattr(Parts, "merge", lambda self, n, write: None)
    for sentences in (before, after):
        table.write_text("".join(json.dumps({"words": words}) + "\n" for words in sentences))
        if sentences is before:
            dump(table, outfile, column="words")
        else:
            with pytest.raises(DataError, match="in dataset; repeat"):
                dump(table, outfile, column="words")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([Record(["a"], "b\nc\nd")], [Record(["a"], "b"), Record(["c"], "d")]),
        ([Record(["a"], "b")], [Record(["a"], None), Record(["b"], None)]),
        ([Record([""], None)], [Record([], None)]),
        ([Record(["a\tb"], None)], [Record(["a", "b"], None)]),
    ],
)
def test_digests_of_other_words_or_ids_differ(one, other):
    assert digest_of(one) != digest_of(other)


# --- a corpus that changes ---


def rows_of(n, start=0):
    """Rows that are longer than the buffers of a reader, so that it sees edits."""
    return [f"id{i},row {i} of the table,{'x' * 100_000}\n" for i in range(start, start + n)]


def write_csv(path, rows):
    path.write_text("".join(["id,text,other\n", *rows]))


CHANGES = {
    "reordered": lambda rows: [*rows[:PART], *rows[:PART:-1], rows[PART]],
    "appended": lambda rows: rows + rows_of(2, 100),
    "appended_part": lambda rows: rows + rows_of(PART, 100),
    "shortened": lambda rows: rows[:-1],
    "shortened_part": lambda rows: rows[: -len(rows) % PART or -PART],
    "word": lambda rows: [*rows[:-1], rows[-1].replace("table", "chair")],
    "id": lambda rows: [*rows[:-1], rows[-1].replace("id", "no")],
    "ids_swapped": lambda rows: [
        *rows[:-2],
        rows[-2].replace("id8", "id9"),
        rows[-1].replace("id9", "id8"),
    ],
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    write_csv(path, rows_of(10))  # parts of 4, 4 and 2
    return path


def dump_table(table, outfile, **how):
    return dump(table, outfile, column="text", id_column="id", layers="top", **how)


def after_part(part, action, monkeypatch):
    """Call `action` once when a part has been written."""
    n_done, replacing = count(), outputs.replacing

    @contextmanager
    def acting(path):
        with replacing(path) as temporary:
            yield temporary
        if path.suffix == ".rows" and next(n_done) == part:
            action()

    monkeypatch.setattr(outputs, "replacing", acting)


@pytest.mark.parametrize("name", ["v.hdf5", "v.npz"])
@pytest.mark.parametrize("change", CHANGES)
def test_edit_during_a_run_is_noticed(table, tmp_path, name, change, monkeypatch):
    outfile = tmp_path / "out" / name
    edited = CHANGES[change](rows_of(10))
    after_part(0, lambda: write_csv(table, edited), monkeypatch)
    with pytest.raises(DataError, match=r"table\.csv: changed while it was read, at sentence"):
        dump_table(table, outfile)
    monkeypatch.undo()
    assert not outfile.exists()
    # The edited corpus is not continued; the original is, to the vectors of an undisturbed run.
    with pytest.raises(DataError, match="in dataset; repeat"):
        dump_table(table, outfile)
    write_csv(table, rows_of(10))
    dump_table(table, outfile)
    dump_table(table, tmp_path / "whole" / name)
    assert ids_and_vectors(outfile) == ids_and_vectors(tmp_path / "whole" / name)


@pytest.mark.parametrize("name", ["v.hdf5", "v.npz"])
def test_edit_undone_before_continuing_is_noticed(table, tmp_path, name, monkeypatch):
    """A part with other text than the corpus is refused, however it came about."""
    outfile = tmp_path / "out" / name
    after_part(1, Mock(side_effect=OSError("disk full")), monkeypatch)
    with pytest.raises(OSError, match="disk full"):
        dump_table(table, outfile)
    monkeypatch.undo()
    other = tmp_path / "other.csv"
    write_csv(other, [*rows_of(PART), *rows_of(6, 20)])
    after_part(1, Mock(side_effect=OSError("disk full")), monkeypatch)
    with pytest.raises(OSError, match="disk full"):
        dump_table(other, tmp_path / "other" / name)
    monkeypatch.undo()
    wrong = tmp_path / "other" / f"{name}.parts" / "000001.rows"
    wrong.replace(outfile.with_name(f"{name}.parts") / wrong.name)
    with pytest.raises(DataError, match=r"000001\.rows: contains other sentences than"):
        dump_table(table, outfile)


def test_embed_merge_does_not_read_an_edited_corpus(table, tmp_path, monkeypatch):
    """Parts contain words and ids, so that merging does not read the corpus."""
    for name in ("v.npz", "v.hdf5", "p.hdf5"):
        how = {"pool": "mean"} if name == "p.hdf5" else {}
        dump_table(table, tmp_path / "whole" / name, **how)
        with monkeypatch.context() as patched:
            after_part(2, table.unlink, patched)
            dump_table(table, tmp_path / name, **how)
        write_csv(table, rows_of(10))
        assert (tmp_path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def ids_and_vectors(path):
    if path.suffix == ".hdf5":
        return content(path)
    with np.load(path) as file:
        return [(name, file[name].tolist()) for name in sorted(file)]


def test_parts_of_another_version_are_refused(text, outfile):
    with open_parts(outfile, {}) as opened:
        run = opened.folder / "run.json"
    run.write_text(json.dumps({"dataset": "0"}))
    with pytest.raises(DataError, match=r"parts: its parts were written by another version"):
        dump(text, outfile)


# --- killed ---


KILLED_AT = """
import os, signal, sys
from bilm.embedding.outputs import open_parts
from bilm.support.files import replacing

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
    with open_parts(outfile, {"a": 1}) as parts:
        for part in range(parts.n_closed(), 2):
            with replacing(parts.path(part)) as temporary:
                temporary.write_bytes(bytes([part]))
        parts.merge(2, merge)

def merge(merged, paths):
    merged.write_bytes(b"".join(path.read_bytes() for path in paths))

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


def test_sigkill_at_any_system_call_leaves_a_continuable_folder(outfile):
    process = start(["-c", KILLED_AT, outfile])
    output, log = process.communicate()
    assert process.returncode == 0, log.decode()
    assert int(output) > 80


def test_two_processes_do_not_write_the_same_output(text, outfile):
    with open_parts(outfile, {}) as opened:
        with pytest.raises(DataError, match=r"parts: another process is writing .*vectors\.hdf5"):
            dump(text, outfile)
        assert sorted(os.listdir(opened.folder)) == ["lock", "run.json"]
    with pytest.raises(DataError, match="in model, precision, dataset, "):
        dump(text, outfile)
    (opened.folder / "run.json").write_text("[1]")
    with pytest.raises(DataError, match=r"run\.json: damaged"):
        dump(text, outfile)


def test_output_link(text, tmp_path):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.hdf5", tmp_path / "there" / "x.hdf5"
    link.symlink_to(target)
    assert dump(text, link) == len(LINES)
    assert link.is_symlink() and left(target) == [target.name]


FULL = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv[1:2] = []
runpy.run_module("bilm", run_name="__main__", alter_sys=True)
"""


def test_full_disk_gives_one_line_and_keeps_parts(text, outfile):
    flags = ["--input", text, "--output", outfile, "--part_sentences", "4"]
    flags += ["--model", FILES[0], "--weights", FILES[1]]
    command = [sys.executable, "-c", FULL, "5000", "embed", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]  # the log may contain a line of progress before it
    assert re.fullmatch(r"bilm embed: error: .*/000000\.rows: File too large", last)
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(f"{outfile}.parts")) == ["lock", "run.json"]
