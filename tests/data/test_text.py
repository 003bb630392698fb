import gzip
import os

import pytest

from bilm.data import text
from bilm.data.shards import Shards, count_tokens, resolve_shards
from bilm.data.text import input_files, lines_at, read_lines
from bilm.errors import DataError


def test_shards_are_sorted(tmp_path):
    for name in ("b.txt", "a.txt", "c.txt", "d.log"):
        (tmp_path / name).write_text("x\n")
    expected = [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.txt")]
    assert resolve_shards(tmp_path / "*.txt").paths == expected
    (tmp_path / "e/f").mkdir(parents=True)
    (tmp_path / "e/f/g.txt").write_text("x\n")
    expected.append(str(tmp_path / "e/f/g.txt"))
    assert resolve_shards(tmp_path / "**/*.txt").paths == expected


def test_a_name_that_looks_like_a_pattern_is_found(tmp_path):
    (tmp_path / "a[1].txt").write_text("x\n")
    assert resolve_shards(f"{tmp_path}/a[1].txt").paths == [f"{tmp_path}/a[1].txt"]


def test_a_text_that_is_there_plain_and_compressed_is_refused(tmp_path):
    for name in ("a.txt", "b.txt.gz", "b.txt"):
        (tmp_path / name).write_text("x\n")
    assert len(resolve_shards(tmp_path / "*.txt").paths) == 2
    with pytest.raises(DataError, match=r"\*: matches .*/b.txt 2 times, plain or compressed"):
        resolve_shards(tmp_path / "*")


def test_lines_end_with_line_feeds_only(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeff a\u2028b \r\n\nc\x0bd\x85e\rf\n\ufefflast".encode())
    expected = [(1, "a\u2028b"), (2, ""), (3, "c\x0bd\x85e\rf"), (4, "\ufefflast")]
    assert list(read_lines(path)) == expected
    words = [line.split() for _, line in expected if line]
    assert list(Shards([path]).sentences()) == words


def test_unreadable_text_is_named_with_its_line(tmp_path):
    path = tmp_path / "text"
    with pytest.raises(DataError, match="text: cannot be read: No such file"):
        list(read_lines(path))
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        list(read_lines(*input_files(tmp_path)))


def test_shards_sentences_and_count_tokens_skip_blank_lines(tmp_path):
    (tmp_path / "a").write_text(" a  b\tc \n \n\nd\n")
    (tmp_path / "b").write_text("e f")
    shards = Shards([tmp_path / "a", tmp_path / "b"])
    assert list(shards.sentences()) == [["a", "b", "c"], ["d"], ["e", "f"]]
    counts = count_tokens(shards)
    assert (counts.n_sentences, counts.n_tokens, counts.n_predictions) == (3, 6, 9)


def test_invalid_utf8_can_be_replaced(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfa \xff\nfine\n\xed\xa0\x80 b\n"))
    expected = ["a \ufffd", "fine", "\ufffd\ufffd\ufffd b"]
    replaced = Shards([path], "replace")
    assert [" ".join(words) for words in replaced.sentences()] == expected
    counts = count_tokens(replaced)
    assert counts.n_tokens == 5
    with pytest.raises(DataError, match=r"gz, line 1: not UTF-8 .* --on_bad_utf8=replace"):
        count_tokens(Shards([path]))


def test_a_line_over_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 100)
    path = tmp_path / "text"
    path.write_bytes(b"a" * 99 + b"\n" + b"b" * 100)  # the longest that are read
    assert [len(line) for _, line in read_lines(path)] == [99, 100]
    path.write_bytes(b"fine\n" + b"\0" * 1000)
    with pytest.raises(DataError, match="text, line 2: longer than 100 bytes"):
        list(read_lines(path))


@pytest.mark.parametrize("content", ["The\n".encode("utf-16-le"), b"fine\n" + b"a \0" + b"b\n"])
def test_nul_is_refused(tmp_path, content):
    (tmp_path / "text").write_bytes(content)
    line = 1 + content.count(b"fine")
    with pytest.raises(DataError, match=rf"text, line {line}: contains NUL.*probably UTF-16"):
        list(Shards([tmp_path / "text"]).sentences())


def test_missing_text_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone: cannot be read at byte 0: .*No such file"):
        list(lines_at(tmp_path / "gone", "error", [5]))


def test_input_files_refuses_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    assert input_files(tmp_path / "f*") == [str(tmp_path / "file")]
    for find in (input_files, resolve_shards):
        with pytest.raises(DataError, match="pipe: not a regular file, but the text is read more"):
            find(tmp_path / "*")
    assert len(resolve_shards(tmp_path / "*", reads_once=True).paths) == 2
