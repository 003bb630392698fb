"""Dividing corpora into shares: together the shares are the corpus, in order."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.data.readers import Corpus, Share, open_corpus
from bilm.errors import DataError, OptionsError

LINES = [f"line {i} " + "w " * (i % 7) for i in range(53)] + ["", "  ", "Где ты 😀 ?", "end ."]


def write_text(path):
    path.write_text("\n".join(LINES), encoding="utf-8")
    return {}


def write_gzip(path):
    path.write_bytes(gzip.compress("\n".join(LINES).encode()))
    return {}


def write_jsonl(path):
    rows = [json.dumps({"text": line, "id": i}, ensure_ascii=False) for i, line in enumerate(LINES)]
    path.write_text("\n\n".join(rows), encoding="utf-8")
    return {"column": "text", "id_column": "id"}


def write_csv(path):
    rows = [f'{i},"{line}\nsecond line"' for i, line in enumerate(LINES)]
    path.write_text("id,text\n" + "\n".join(rows), encoding="utf-8")
    return {"column": "text", "id_column": "id"}


def write_conllu(path):
    blocks = ["".join(f"{k}\t{w}\n" for k, w in enumerate(line.split(), 1)) for line in LINES]
    path.write_text("\n".join(filter(None, blocks)), encoding="utf-8")
    return {}


def write_fasta(path):
    path.write_text("".join(f">p{i}\nGATTACA\n" + "GAT\n" * (i % 3) for i in range(31)))
    return {}


def write_parquet(path):
    pyarrow = pytest.importorskip("pyarrow", reason="make test-clients has pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": LINES, "id": list(range(len(LINES)))})
    parquet.write_table(table, path, row_group_size=5)
    return {"column": "text", "id_column": "id"}


FORMS = {
    "a.txt": write_text,
    "a.txt.gz": write_gzip,
    "a.jsonl": write_jsonl,
    "a.csv": write_csv,
    "a.conllu": write_conllu,
    "a.fasta": write_fasta,
    "a.parquet": write_parquet,
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 100])
def test_shares_of_a_file_are_the_file_in_order(name, n, tmp_path):
    path = tmp_path / name
    reading = FORMS[name](path)
    expected = list(Corpus(path, **reading))
    shares = [list(open_corpus(path, Share(i, n), **reading)) for i in range(n)]
    assert [record for share in shares for record in share] == expected
    if n == 2:
        assert all(len(share) > len(expected) // 4 for share in shares)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_shares_of_a_pattern_are_the_files_in_the_order_of_names(n, tmp_path):
    for name in ("b.txt", "a.txt", "c.txt.gz", "empty.txt"):
        (tmp_path / name).write_bytes(b"")
    write_text(tmp_path / "b.txt")
    (tmp_path / "a.txt").write_text("first\nsecond\n")
    write_gzip(tmp_path / "c.txt.gz")
    pattern = tmp_path / "*.txt*"
    expected = list(open_corpus(pattern))
    assert expected[0].words == ["first"] and len(expected) == 2 * len(LINES) + 2
    found = [record for i in range(n) for record in open_corpus(pattern, Share(i, n))]
    assert found == expected


@given(
    st.lists(st.text("ab é😀", max_size=9), max_size=12),
    st.integers(1, 9),
    st.sampled_from(["\n", "\r\n"]),
)
def test_shares_of_any_text_are_the_text(tmp_path_factory, lines, n, end):
    path = tmp_path_factory.mktemp("shares") / "text.txt"
    path.write_bytes(end.join(lines).encode())
    found = [record for i in range(n) for record in open_corpus(path, Share(i, n))]
    assert found == list(Corpus(path))


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
        open_corpus(tmp_path / "*")
