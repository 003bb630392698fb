"""Whole corpora: what is read, what is written and in what order."""

import gzip
import json
import os
import shutil
from logging import LogRecord
from pathlib import Path

import h5py
import pytest
from stored_files import FILES

from bilm.data.readers import Corpus
from bilm.embedding import corpus
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.embedding_file import read_embeddings
from bilm.errors import DataError, OptionsError, WeightsError
from bilm.model import dump_token_embeddings

pytestmark = pytest.mark.usefixtures("one_embedder")
LINES = [f"line {i} of the text" for i in range(9)] + ["", "  \t ", "Где ты 😀 ?", "the end ."]
PART = 4  # 13 lines: parts of 4, 4, 4 and 1

CONLLU = """\
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_
1\tvamos\tir
2\tnos\tnosotros
3-4\tal\t_
3\ta\ta
4\tel\tel
5\tmar\tmar
5.1\tempty\tempty

# only a comment

# newdoc
1\t20 000\t20 000
2\teuros\teuro
"""
CONLLU_SENTENCES = [["vamos", "nos", "a", "el", "mar"], ["20 000", "euros"]]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in" / "text.txt"
    path.parent.mkdir()
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def outfile(tmp_path):
    return tmp_path / "out" / "vectors.hdf5"


def dump(text, outfile, **kwargs):
    how = {"part_sentences": PART} | kwargs
    return dump_bilm_embeddings(None, text, *FILES, outfile, **how)


def left(outfile):
    return sorted(path.name for path in outfile.parent.iterdir())


def test_corpus_of_conllu_and_gzip(tmp_path, outfile):
    for name in ("a.conllu", "b.CONLLU.gz"):
        opened = gzip.open if name.endswith("gz") else open
        with opened(tmp_path / name, "wt", encoding="utf-8") as file:
            file.write(CONLLU)
        assert [record.words for record in Corpus(tmp_path / name)] == CONLLU_SENTENCES
    assert dump(tmp_path / "b.CONLLU.gz", outfile) == 2
    assert [words for _, words, _ in read_embeddings(outfile)] == CONLLU_SENTENCES


def test_words_of_conllu_are_stored_unchanged(tmp_path, outfile):
    """Spaces inside a FORM, a lone one too; a line of over 64 KiB."""
    sentences = [["20 000"], ["a b", "c"], ["long" * 100 + str(i) for i in range(200)]]
    path = tmp_path / "words.conllu"
    lines = ["".join(f"{i}\t{w}\n" for i, w in enumerate(words, 1)) for words in sentences]
    path.write_text("\n".join(lines))
    dump(path, outfile, layers="top", dtype="float16")
    assert [words for _, words, _ in read_embeddings(outfile)] == sentences


def write_lists(path, sentences):
    path.write_text("".join(json.dumps({"words": words}) + "\n" for words in sentences))
    return path


@pytest.mark.parametrize("words", [["a\tb", "c"], ["c", "a\tb"], ["a\tb"], ["\t"]])
@pytest.mark.parametrize("name", ["vectors.hdf5", "vectors.npz"])
def test_words_with_tabs_are_refused(tmp_path, words, name):
    table = write_lists(tmp_path / "lists.jsonl", [["a", "b"], [], words])
    with pytest.raises(DataError, match=r"record 3: the word '.*\\t.*' contains a tab"):
        dump(table, tmp_path / "out" / name, column="words")
    assert not (tmp_path / "out").exists()


def test_words_of_lists_are_stored_unchanged_except_nul(tmp_path, outfile):
    """HDF5 cannot store NUL."""
    sentences = [["a\nb", "c"], ["", "a"], [""], [], ["a b", ""], ["\n"]]  # "" is padding
    table = write_lists(tmp_path / "lists.jsonl", [*sentences, ["x\0y"]])
    dump(table, outfile, column="words")
    found = [words for _, words, _ in read_embeddings(outfile)]
    assert found == [*sentences, ["x\u2400y"]]


def test_refused_arguments_leave_no_files(text, outfile, tmp_path):
    files = {"options_file": FILES[0], "weight_file": FILES[1], "dataset_file": text}
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for changes, error, message in [
        ({"dataset_file": tmp_path / "missing"}, DataError, "missing"),
        ({"dataset_file": bad}, DataError, "line 2: not UTF-8"),
        ({"dataset_file": pipe}, DataError, "pipe: not a regular file"),
        ({"layers": "bottom"}, OptionsError, "bottom"),
        ({"dtype": "float64"}, ValueError, "float64"),
        ({"weight_file": tmp_path / "none.hdf5"}, WeightsError, r"none\.hdf5"),
    ]:
        arguments = files | {"vocab_file": None, "outfile": outfile} | changes
        with pytest.raises(error, match=message):
            dump_bilm_embeddings(**arguments)
    assert not outfile.parent.exists()


def test_untokenized_corpus_gives_one_warning(tmp_path, caplog):
    raw = "Das Haus ist, wie er sagte, groß. Wer weiß? Niemand!"
    with gzip.open(tmp_path / "a.gz", "wt", encoding="utf-8") as file:
        file.write(f"{raw}\n" * 100)
    dump(tmp_path / "a.gz", tmp_path / "o.npz", layers="top")
    (message,) = [m for m in map(LogRecord.getMessage, caplog.records) if "punctuation" in m]
    assert "a.gz: 400 of the first 1,000 words contain punctuation" in message


@pytest.mark.parametrize("name", ["text.npz", "weights.hdf5", "link.hdf5"])
def test_inputs_are_not_overwritten(tmp_path, name):
    for source, copy in zip(FILES, ("options.json", "weights.hdf5"), strict=True):
        shutil.copy(source, tmp_path / copy)
    (tmp_path / "text.npz").write_text("a b\n")
    (tmp_path / "words").write_text("<S>\n</S>\n<UNK>\n")
    (tmp_path / "link.hdf5").symlink_to("weights.hdf5")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    files = tmp_path / "options.json", tmp_path / "weights.hdf5"
    refused = "is also an input or another output"
    with pytest.raises(DataError, match=refused):
        dump_bilm_embeddings(None, tmp_path / "text.npz", *files, tmp_path / name)
    if name != "text.npz":
        with pytest.raises(DataError, match=refused):
            dump_token_embeddings(tmp_path / "words", *files, tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_model_replaced_while_it_is_read_is_refused(tmp_path, monkeypatch):
    model = Path(shutil.copytree(FILES[0].parent, tmp_path / "model"))
    (tmp_path / "text.txt").write_text("a b\nc\n")
    build = corpus.ElmoEmbedder

    def build_and_replace(*arguments, **settings):
        with h5py.File(model / "new", "w") as new, h5py.File(model / "weights.hdf5") as old:
            for name in old:
                old.copy(name, new)
            new["char_embed"][...] *= 2
        embedder = build(*arguments, **settings)
        os.replace(model / "new", model / "weights.hdf5")
        return embedder

    monkeypatch.setattr(corpus, "ElmoEmbedder", build_and_replace)
    with pytest.raises(WeightsError, match="replaced or removed while the model was read"):
        dump_bilm_embeddings(None, tmp_path / "text.txt", model, None, tmp_path / "out.hdf5")
    assert not (tmp_path / "out.hdf5").exists()
