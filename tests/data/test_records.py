"""Corpora of each form as records: what is read, and what is refused with its place."""

import gzip

import pytest

from bilm.data.records import Corpus, Record
from bilm.data.tokenizers import tokenizer
from bilm.errors import BilmError, DataError

WORDS = [["a", '"b"', "c"], [], ["x"]]
TABLES = {
    "t.csv": 'id,text\n1,"a ""b""\nc"\n2,\n\n3,x\n',
    "t.tsv": 'id\ttext\n1\ta "b" c\n2\t\n3\tx\n',
    "t.jsonl": '{"id": 1, "text": ["a", "\\"b\\"", "c"]}\n\n{"id": "2", "text": null}\n'
    '{"id": 3, "text": "x"}\n',
    "t.ndjson": '{"text": "a \\"b\\" c", "id": 1}\n{"text": "", "id": 2}\n{"text": "x", "id": 3}\n',
}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_tables(tmp_path, name, is_packed):
    content = TABLES[name].encode("utf-8-sig")
    path = tmp_path / (name.upper() + ".gz" * is_packed)
    path.write_bytes(gzip.compress(content) if is_packed else content)
    corpus = Corpus(path, column="text", id_column="id")
    for _ in range(2):  # as often as needed
        assert list(corpus) == list(map(Record, WORDS, "123"))
    assert [record.id for record in Corpus(path, column="text")] == [None] * 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", r"line 1: column 'text' is not there; found none"),
        ("t.csv", "a,b\n", r"line 1: column 'text' is not there; found 'a', 'b'"),
        ("t.csv", "text,text\n", r"line 1: column 'text' is there twice"),
        ("t.csv", "id,text\n1,a\n2\n", r"line 3: 1 columns, expected the 2 of the header"),
        ("t.csv", 'id,text\n1,"a\n', r"line 2: unexpected end of data"),
        ("t.csv", 'id,text\n1,"a"b\n', r"line 2: .* expected after"),
        ("t.csv", f"text\n{'a' * 200_000}\n", r"line 2: field larger than field limit"),
        ("t.csv", b"text\n\xff\n", r"line 2: not UTF-8"),
        ("t.jsonl", "[1]", r"line 1: '\[1\]'; expected a JSON object"),
        ("t.jsonl", '{"text": "a"}\n{"text": 1}', r"line 2: 'text' is 1, expected text or a list"),
        ("t.jsonl", '{"text": ["a", 1]}', r"line 1: 'text' is \['a', 1\], expected"),
        ("t.jsonl", '{"a": 1}', r"line 1: column 'text' is not there; found 'a'"),
        (
            "t.jsonl",
            '{"text": "a"}\n{"text": "a", "text": "b"}',
            r"line 2: .* 'text' is there twice",
        ),
        ("t.jsonl", '{"text": {"a": 1}}', r"line 1: 'text' is .*, expected text or a list"),
        ("t.jsonl", '{"text": "\\ud800"}', r"line 1: .* holds half a character"),
        ("t.jsonl", '{"text": ', r"line 1: not JSON"),
        ("t.jsonl", "[" * 100_000, r"line 1: not JSON"),
    ],
)
def test_tables_that_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=rf"t\.\w+, {message}"):
        list(Corpus(path, column="text"))


def test_ids_that_are_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    for id_, message in [("1.5", "'id' is 1.5, expected text"), ('""', "an id of 0 characters")]:
        path.write_text(f'{{"text": "a", "id": {id_}}}')
        with pytest.raises(DataError, match=message):
            list(Corpus(path, column="text", id_column="id"))


def test_arguments_that_do_not_fit_the_form(tmp_path):
    for name, arguments, message in [
        ("t.txt", {"column": "a"}, "--column is for tables"),
        ("t.fasta", {"id_column": "a"}, "--id_column is for tables"),
        ("t.csv", {"column": "a", "id_field": 0}, "--id_field is for FASTA"),
        ("t.conllu", {"tokenize": "en"}, "--tokenize is for text that is not split"),
        ("t.csv", {}, r"t\.csv: a table; name the column that holds the text"),
    ]:
        with pytest.raises(DataError, match=message):
            Corpus(tmp_path / name, **arguments)


def test_a_package_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "spacy", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BilmError, match=r"spacy.*pip install 'bilm-keras\[spacy\]'"):
        Corpus(tmp_path / "t.txt", tokenize="en")
    with pytest.raises(BilmError, match=r"pyarrow.*pip install 'bilm-keras\[parquet\]'"):
        list(Corpus(tmp_path / "t.parquet", column="a"))


# --- FASTA ---

FASTA = ">sp|P1|X_HUMAN of a kind\nMKV\nllt*\n\n; a comment\n>b/2\r\nAC GT\r\n"


def test_fasta(tmp_path):
    for name in ("p.fasta", "p.FA.gz"):
        content = FASTA.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if "gz" in name else content)
        found = list(Corpus(tmp_path / name))
        assert found == [Record(list("MKVLLT"), "sp|P1|X_HUMAN"), Record(list("ACGT"), "b/2")]
    (tmp_path / "one.faa").write_text(">sp|P1|X_HUMAN of a kind\nA\n")
    for field, id_ in enumerate(["sp", "P1", "X_HUMAN", "of", "a", "kind"]):
        assert next(iter(Corpus(tmp_path / "one.faa", id_field=field))).id == id_


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\n", "line 1: 'text'; expected > and an id"),
        (">\nA\n", "line 1: '>' has no id in field 0"),
        (">a\n>b\nA\n", "line 1: a has no residues"),
        (">a\nA\n>b\n*\n", "line 3: b has no residues"),
        (">a\nA-C\n", "line 2: 'A-C'; expected the letters of residues, without gaps"),
        (">a\nA*\nC\n", r"line 1: a has a \* inside"),
    ],
)
def test_fasta_that_is_refused(tmp_path, content, message):
    (tmp_path / "p.fna").write_text(content)
    with pytest.raises(DataError, match=rf"p\.fna, {message}"):
        list(Corpus(tmp_path / "p.fna"))
    (tmp_path / "p.fna").write_text(">a\nA\n")
    with pytest.raises(DataError, match="has no id in field 3"):
        list(Corpus(tmp_path / "p.fna", id_field=3))


# --- tokenizing ---


def test_words_by_the_rules_of_a_language(tmp_path):
    pytest.importorskip("spacy", reason="make test-clients has spaCy")
    (tmp_path / "t.txt").write_text("I don't  know.\n\n")
    found = [record.words for record in Corpus(tmp_path / "t.txt", tokenize="en")]
    assert found == [["I", "do", "n't", "know", "."], []]
    with pytest.raises(DataError, match="--tokenize=zz: spaCy has no tokenizer"):
        tokenizer("zz")
    with pytest.raises(DataError, match="spaCy cannot split it"):
        tokenizer("en")("a" * 1_000_001)
