"""Dividing corpora into shares: together the shares are the corpus, in order."""

import gzip

import pytest

from bilm.embedding.corpus import Corpora
from bilm.embedding.forms import Share
from bilm.errors import DataError, OptionsError

LINES = [f"line {i} " + "w " * (i % 7) for i in range(53)] + ["", "  ", "Где ты 😀 ?", "end ."]


def write_text(path):
    path.write_text("\n".join(LINES), encoding="utf-8")


@pytest.mark.parametrize("n", [1, 3, 5])
def test_shares_of_a_pattern_are_the_files_in_the_order_of_names(n, tmp_path):
    for name in ("b.txt", "a.txt", "c.txt.gz", "empty.txt"):
        (tmp_path / name).write_bytes(b"")
    write_text(tmp_path / "b.txt")
    (tmp_path / "a.txt").write_text("first\nsecond\n")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    pattern = tmp_path / "*.txt*"
    expected = list(Corpora(pattern))
    assert expected[0].words == ["first"] and len(expected) == 2 * len(LINES) + 2
    shares = [list(Corpora(pattern, share=Share(i, n))) for i in range(n)]
    assert [record for share in shares for record in share] == expected
    assert all(len(share) > len(expected) // (n + 1) for share in shares)


def test_share_is_read_from_its_text_and_names_its_output():
    assert Share.parse("3/12") == (3, 12)
    assert Share(3, 12).file_name("out.d/a.b.npz") == "out.d/a.b-00003-of-00012.npz"
    for text in ("4/4", "-1/4", "1", "1/0", "a/b", "0/1000000", ""):
        with pytest.raises(OptionsError, match="expected i/n"):
            Share.parse(text)


def test_files_of_which_only_some_have_ids_are_refused(tmp_path):
    (tmp_path / "a.fasta").write_text(">p\nGAT\n")
    write_text(tmp_path / "b.txt")
    with pytest.raises(DataError, match=r"b\.txt: its sentences have no ids"):
        Corpora(tmp_path / "*")
