"""Compressed text: read and written by the ending of its name."""

import bz2
import gzip
import lzma
import sys

import pytest

from bilm.data.shards import resolve_shards
from bilm.data.text import lines_at, placed_lines, read_lines, unpacked_name, writing_text
from bilm.errors import BilmError, DataError

LINES = [f"sentence {i} of the text" for i in range(20_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def zstd(content: bytes) -> bytes:
    return pytest.importorskip("backports.zstd").compress(content)


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


@pytest.fixture(params=PACK)
def packed(request, tmp_path):
    """A function that compresses, and a compressed file."""
    path = tmp_path / f"text{request.param}"
    path.write_bytes(PACK[request.param](TEXT))
    return PACK[request.param], path


def overwritten(content):
    middle = len(content) // 2
    return content[:middle] + bytes(50) + content[middle + 50 :]


def lines_of(path):
    return [text for _, text in read_lines(path)]


def test_compressed_text_of_several_streams_is_read_whole(packed):
    pack, path = packed
    assert [" ".join(words) for words in resolve_shards(path).sentences()] == LINES
    path.write_bytes(pack(TEXT[:1000]) + pack(TEXT[1000:]))
    assert lines_of(path) == LINES


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_padding_between_and_after_streams_is_skipped(tmp_path, ending):
    path = tmp_path / f"text{ending}"
    pack = PACK[ending]
    path.write_bytes(pack(TEXT[:1000]) + bytes(8) + pack(TEXT[1000:]) + bytes(200_000))
    assert lines_of(path) == LINES


def test_zstd_with_a_long_window_is_read(tmp_path):
    zstd_module = pytest.importorskip("backports.zstd")
    options = {zstd_module.CompressionParameter.window_log: 30}
    (tmp_path / "text.zst").write_bytes(zstd_module.compress(TEXT, options=options))
    assert lines_of(tmp_path / "text.zst") == LINES


def test_positions_of_compressed_text_refer_to_the_content(packed):
    placed = list(placed_lines(packed[1], "error"))
    number, start, _, text = placed[12_345]
    assert next(placed_lines(packed[1], "error", start, number - 1)) == placed[12_345]
    starts = [placed[i][1] for i in (3, 4, 19_000)]
    assert list(lines_at(packed[1], "error", starts)) == [LINES[i] for i in (3, 4, 19_000)]
    assert text == LINES[12_345] + "\n"


def test_truncated_or_damaged_compressed_text_is_an_error_in_one_line(packed):
    pack, path = packed
    content, first, second = path.read_bytes(), pack(TEXT[:1000]), pack(TEXT[1000:])
    for damaged in (content[:-20], overwritten(content), first + overwritten(second)):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"^[^\n]*text\.[^\n]*cannot be read[^\n]*$"):
            lines_of(path)


def test_written_text_is_compressed_and_reproducible(packed):
    _, path = packed
    paths = [path.with_name(f"{k}.txt{path.suffix}") for k in range(2)]
    for path in paths:
        with writing_text(path) as file:
            file.writelines(f"{line}\n" for line in LINES)
    assert lines_of(paths[0]) == LINES
    assert paths[0].stat().st_size < len(TEXT) / 3
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_compressed_text_without_an_ending_is_an_error(tmp_path):
    (tmp_path / "text").write_bytes(gzip.compress(TEXT))
    with pytest.raises(DataError, match="text, line 1: "):
        lines_of(tmp_path / "text")


def test_name_without_compression():
    assert unpacked_name("/a.gz/Text.JSONL.xz") == "text.jsonl"
    assert unpacked_name("https://host/a/Text.csv.bz2?key=1#part") == "text.csv"
    assert unpacked_name("s3://bucket/a?b.zst") == "a?b"


def test_zstd_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    (tmp_path / "text.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    with pytest.raises(BilmError, match=r"zstd requires backports.zstd.*'\.\[zstd\]'"):
        lines_of(tmp_path / "text.zst")
