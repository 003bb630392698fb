"""Compressed text: read by its first bytes, written by the ending of its name."""

import bz2
import gzip
import lzma
import sys
import tempfile
from pathlib import Path

import pytest
from command_runs import assert_fails
from hypothesis import given
from hypothesis import strategies as st

from bilm.data.compression import COMPRESSIONS, unpacked_name
from bilm.data.readers import Corpus
from bilm.data.shards import Shards, resolve_shards
from bilm.data.text import lines_at, placed_lines, read_lines, writing_text
from bilm.data.vocabulary import Vocabulary
from bilm.errors import BilmError, DataError

LINES = [f"sentence {i} of the text" for i in range(20_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def zstd(content: bytes) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    into = arrow.BufferOutputStream()
    with arrow.CompressedOutputStream(into, "zstd") as file:
        file.write(content)
    return into.getvalue().to_pybytes()


PACK = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zstd": zstd}
NAMES = [pytest.param(name, marks=[pytest.mark.clients] if name == "zstd" else []) for name in PACK]


@pytest.fixture(params=NAMES)
def packed(request, tmp_path):
    """The name of a compression, and a file compressed with it, whose name has no ending."""
    path = tmp_path / "text"
    path.write_bytes(PACK[request.param](TEXT))
    return request.param, path


def lines_of(path):
    return [text for _, text in read_lines(path)]


def test_compressed_text_is_recognized_by_its_first_bytes(packed):
    assert lines_of(packed[1]) == LINES
    assert list(resolve_shards(packed[1]).texts()) == LINES


def test_compressed_text_of_several_streams_is_read_whole(packed):
    name, path = packed
    path.write_bytes(PACK[name](TEXT[:1000]) + PACK[name](TEXT[1000:]))
    assert lines_of(path) == LINES


def test_positions_of_compressed_text_refer_to_the_content(packed):
    placed = list(placed_lines(packed[1], "strict"))
    number, start, _, text = placed[12_345]
    assert next(placed_lines(packed[1], "strict", start, number - 1)) == placed[12_345]
    starts = [placed[i][1] for i in (3, 4, 19_000)]
    assert list(lines_at(packed[1], "strict", starts)) == [LINES[i] for i in (3, 4, 19_000)]
    assert text == LINES[12_345]


def test_truncated_compressed_text_names_the_compression(packed):
    name, path = packed
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=f"text: truncated {name} file, after line "):
        lines_of(path)


def test_damaged_compressed_text_is_an_error_in_one_line(packed):
    _, path = packed
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 50] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"^[^\n]*text[^\n]*$"):
        lines_of(path)


def test_empty_compressed_text_has_no_lines(packed):
    name, path = packed
    path.write_bytes(PACK[name](b""))
    assert lines_of(path) == []


def test_vocabulary_may_be_compressed(packed):
    name, path = packed
    path.write_bytes(PACK[name](b"<S>\n</S>\n<UNK>\nthe\n"))
    assert Vocabulary(path).word_to_id("the") == 3


@pytest.mark.parametrize("text", ["BZh", "BZh9 is a word", "(\u00b5 text", "BZ"])
def test_plain_text_that_resembles_a_compression_is_plain(tmp_path, text):
    (tmp_path / "text").write_text(f"{text}\n")
    assert lines_of(tmp_path / "text") == [text]


@pytest.mark.parametrize("name", NAMES)
def test_text_written_with_an_ending_is_compressed_and_reproducible(tmp_path, name):
    ending = next(found.ending for found in COMPRESSIONS if found.name == name)
    PACK[name](b"")  # skips the test if a package is missing
    paths = [tmp_path / f"{k}.txt{ending}" for k in range(2)]
    for path in paths:
        with writing_text(path) as file:
            file.writelines(f"{line}\n" for line in LINES)
    assert lines_of(paths[0]) == LINES
    assert paths[0].stat().st_size < len(TEXT) / 3
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_form_of_a_compressed_table_is_known_by_its_ending(tmp_path, name):
    ending = next(found.ending for found in COMPRESSIONS if found.name == name)
    path = tmp_path / f"table.CSV{ending}"
    path.write_bytes(PACK[name](b"id,text\n7,a b\n"))
    (record,) = Corpus(path, column="text", id_column="id")
    assert record == (["a", "b"], "7")


def test_name_without_compression():
    assert unpacked_name("/a.gz/Text.JSONL.xz") == "text.jsonl"
    assert unpacked_name("https://host/a/Text.csv.bz2?key=1#part") == "text.csv"
    assert unpacked_name("s3://bucket/a?b.zst") == "a?b"


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]))))
def test_any_lines_survive_compression(lines):
    content = "".join(f"{line}\n" for line in lines).encode()
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "text")
            path.write_bytes(pack(content))
            bare = [line.strip() for line in lines]
            if bare and bare[0].startswith("\ufeff"):
                bare[0] = lines[0].removeprefix("\ufeff").strip()
            assert [text for *_, text in Shards([path]).lines()] == bare


def test_zstd_without_pyarrow_names_the_extra(tmp_path, run_here, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "text.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    with pytest.raises(BilmError, match=r"zstd requires pyarrow.*'\.\[parquet\]'"):
        lines_of(tmp_path / "text.zst")
    done = run_here("bilm vocab", "--input", tmp_path / "text.zst", "--output", tmp_path / "v")
    assert_fails(done, "zstd requires pyarrow")
