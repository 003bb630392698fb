"""Input forms: text, tables, CoNLL-U and FASTA as records, and errors that name the line."""

import csv
import gzip
from dataclasses import replace

import pytest

from bilm.commands.output import write_table
from bilm.data.profile import Profile, TextSigns
from bilm.data.readers import Corpus, Reading, Record
from bilm.data.shards import resolve_shards
from bilm.errors import DataError

pytestmark = pytest.mark.clients

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
def test_tables_give_equal_records(tmp_path, name, is_packed):
    content = TABLES[name].encode("utf-8-sig")
    path = tmp_path / (name.upper() + ".gz" * is_packed)
    path.write_bytes(gzip.compress(content) if is_packed else content)
    corpus = Corpus(path, Reading(column="text", id_column="id"))
    for _ in range(2):  # a corpus can be read repeatedly
        assert list(corpus) == list(map(Record, WORDS, "123"))
    assert [record.id for record in Corpus(path, Reading(column="text"))] == [None] * 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", r"line 1: column 'text' is missing; found none"),
        ("t.csv", "a,b\n", r"line 1: column 'text' is missing; found 'a', 'b'"),
        ("t.csv", "id;text\n", r"line 1: .* found 'id;text'; the delimiter seems to be ';'"),
        ("t.csv", "sep=;\nid;text\n", r"line 1: .* found 'sep=;'; the delimiter seems to be ';'"),
        ("t.tsv", "id,text\n", r"line 1: .* found 'id,text'; the delimiter seems to be ','"),
        ("t.csv", '1,"a, b"\n', r"line 1: column 'text' is missing; found '1', 'a, b'$"),
        ("t.csv", "text,text\n", r"line 1: column 'text' occurs twice"),
        ("t.csv", "id,text\n1,a\n2\n", r"line 3: found 1 columns, expected the 2 of the header"),
        ("t.csv", b"text\n\xff\n", r"line 2: not UTF-8"),
        ("t.jsonl", "[1]", r"line 1: found '\[1\]', expected a JSON object"),
        ("t.jsonl", '{"text": "a"}\n{"text": 1}', r"line 2: 'text' is 1, expected text or a list"),
        ("t.jsonl", '{"text": ["a", 1]}', r"line 1: 'text' is \['a', 1\], expected"),
        ("t.jsonl", '{"a": 1}', r"line 1: column 'text' is missing; found 'a'"),
        ("t.jsonl", '{"text": ', r"line 1: invalid JSON"),
        ("t.jsonl", "[" * 100_000, r"line 1: invalid JSON"),
        ("t.jsonl", '{"text": "a", "text": "b"}', r"line 1: .* key 'text' 2 times"),
        ("t.jsonl", '{"text": "\\ud83d"}', r"line 1: .* surrogates not allowed"),
        ("t.csv", "id,text\n1,a\nid,text\n", r"line 3: the header again"),
    ],
)
def test_invalid_tables_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=rf"t\.\w+, {message}"):
        list(Corpus(path, Reading(column="text")))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_field_of_any_length_that_a_line_may_have_is_read(tmp_path, name):
    (tmp_path / name).write_text("text\n" + "word " * 40_000 + "\n")
    (record,) = Corpus(tmp_path / name, Reading(column="text"))
    assert record.words == ["word"] * 40_000


def test_conllu_row_without_a_word_is_refused(tmp_path):
    for content in ("# a\n1\t \tc\n", "# a\n1\ta\r2\tb\n", "\n# a\r1\ta\r", "\n0\ta\n1\tb\n"):
        (tmp_path / "a.conllu").write_text(content)
        with pytest.raises(DataError, match=r"a\.conllu, line 2: .*expected the columns of CoN"):
            list(Corpus(tmp_path / "a.conllu"))


def test_columns_of_conllu_plus_in_another_order_are_refused(tmp_path):
    (tmp_path / "a.conllu").write_text("# global.columns = ID LEMMA FORM\n1\ta\tb\n")
    with pytest.raises(DataError, match=r"line 1: .*expected the columns ID and FORM first"):
        list(Corpus(tmp_path / "a.conllu"))


def test_conllu_without_blank_lines_is_refused(tmp_path):
    (tmp_path / "a.conllu").write_text("1\ta\n2\tb\n1\tc\n")
    message = r"a\.conllu, line 3: word 1 after word 2; expected a blank line between two sentences"
    with pytest.raises(DataError, match=message):
        list(Corpus(tmp_path / "a.conllu"))


TSV = "id\ttext\n"
ODD_WORDS = [
    [*("He", "said"), '"no"', ",", "NA"], ['"', "Hello", ".", '"'], ['"'], ['""'], ["a\tb"], ["'"],
    ["a\nb", '"c'], ['"a', "b"], ["a,b"], ["\\", '\\"'], ['"', "\n", '"\t'],
]  # fmt: skip


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_tables_of_bilm_and_pandas_are_read_back(tmp_path, name):
    rows = [(str(i), " ".join(words)) for i, words in enumerate(ODD_WORDS)]
    expected = [Record(text.split(), id_) for id_, text in rows]
    write_table(str(tmp_path / name), {"id": str, "text": str}, rows)
    assert list(Corpus(tmp_path / name, Reading("text", "id"))) == expected
    pandas = pytest.importorskip("pandas", reason="make test-clients has pandas")
    delimiter = "\t" if name.endswith("tsv") else ","
    frame = pandas.DataFrame(rows, columns=["id", "text"])
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        frame.to_csv(tmp_path / name, sep=delimiter, index=False, quoting=quoting)
        assert list(Corpus(tmp_path / name, Reading("text", "id"))) == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (TSV + '1\ta "b" c\n2\tit"s "\n', [["a", '"b"', "c"], ['it"s', '"']]),
        (TSV + '1\t"a ""b"""\n', [["a", '"b"']]),
        (TSV + '1\t"a\tb"\n2\t"c\nd"\n', [["a", "b"], ["c", "d"]]),
        ('id\t"text"\n1\t"a b"\n', [["a", "b"]]),
        ('text\n"a ""b"""\n""\n', [["a", '"b"'], []]),
    ],
)
def test_quotes_in_tsv(tmp_path, content, words):
    (tmp_path / "t.tsv").write_text(content)
    assert [record.words for record in Corpus(tmp_path / "t.tsv", Reading("text"))] == words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('1\ta\n2\t"a" b\n', r"line 3: .* expected after .*--quoting none"),
        ('1\t"a\n2\tb\n', r"line 2: unexpected end of data"),
        ('1\ta\n\n2\t"b\n\n3\tc\n4\td"\n', r"line 4: a field contains line ends.*--quoting none"),
        ("1\ta\r2\tb\n", r"line 2: .*lines must end with"),
    ],
)
def test_stray_quotes_in_tsv_are_refused(tmp_path, content, message):
    (tmp_path / "t.tsv").write_text(TSV + content)
    with pytest.raises(DataError, match=rf"t\.tsv, {message}"):
        list(Corpus(tmp_path / "t.tsv", Reading("text")))


def test_quoting_of_tables(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('text\n"a\nb ""c"""\n"d\ne"\n')
    for quoting, texts in (("csv", ['a b "c"', "d e"]), ("none", ['"a', 'b ""c"""', '"d', 'e"'])):
        records = Corpus(path, Reading("text", quoting=quoting))
        assert [" ".join(record.words) for record in records] == texts


def test_invalid_ids_are_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    for id_, message in [
        ("1.5", "'id' is 1.5, expected text"),
        ('""', "the id '' has 0 characters, expected 1 to 1,000"),
        (r'"a\u0000b"', r"the id 'a\\x00b' has 3 characters, .* without NUL"),
    ]:
        path.write_text(f'{{"text": "a", "id": {id_}}}')
        with pytest.raises(DataError, match=message):
            list(Corpus(path, Reading(column="text", id_column="id")))


FASTA = ">sp|P1|X_HUMAN of a kind\nMKV\nllt*\n\n; a comment\n>b/2\r\nAC GT\r\n"


def test_fasta_records_and_ids(tmp_path):
    for name in ("p.fasta", "p.FA.gz"):
        content = FASTA.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if "gz" in name else content)
        found = list(Corpus(tmp_path / name))
        assert found == [Record(list("MKVLLT"), "sp|P1|X_HUMAN"), Record(list("ACGT"), "b/2")]
    (tmp_path / "one.faa").write_text(">sp|P1|X_HUMAN of a kind\nA\n")
    for field, id_ in enumerate(["sp", "P1", "X_HUMAN", "of", "a", "kind"]):
        assert next(iter(Corpus(tmp_path / "one.faa", Reading(id_field=field)))).id == id_


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\n", "line 1: 'text'; expected > and an id"),
        (">\nA\n", "line 1: '>' has no id in field 0"),
        (">a\n>b\nA\n", "line 1: a has no residues"),
        (">a\nA\n>b\n*\n", "line 3: b has no residues"),
        (">a\rA\r>b\rC\r", r"line 1: a has no residues; .* lines that end with \\n"),
        (">a\nA-C\n", "line 2: 'A-C'; expected the letters of residues, without gaps"),
        (">a\nA*\nC\n", r"line 1: a has a \* inside"),
    ],
)
def test_invalid_fasta_is_refused(tmp_path, content, message):
    (tmp_path / "p.fna").write_text(content)
    with pytest.raises(DataError, match=rf"p\.fna, {message}"):
        list(Corpus(tmp_path / "p.fna"))
    (tmp_path / "p.fna").write_text(">a\nA\n")
    with pytest.raises(DataError, match="has no id in field 3"):
        list(Corpus(tmp_path / "p.fna", Reading(id_field=3)))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.jsonl", "a.conllu", "a.fasta"])
def test_training_text_must_not_be_a_table(tmp_path, name):
    content = b">id,text\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (tmp_path / "b.txt").write_text("a b\n")
    with pytest.raises(DataError, match=rf"{name}: the ending .* convert the file with bilm text"):
        resolve_shards(tmp_path / "*")


def test_split_sentences_of_wrapped_paragraphs(tmp_path):
    pytest.importorskip("spacy", reason="make test-clients has spaCy")
    (tmp_path / "t.txt").write_text("It was\nthe worst.\n\n\nNo end here\n\nEnd.\n")
    reading = Reading(tokenize="en", split_sentences=True)
    found = [record.words for record in Corpus(tmp_path / "t.txt", reading)]
    assert list(map(" ".join, found)) == ["It was the worst .", "No end here", "End ."]
    (tmp_path / "t.csv").write_text('text\n"One. Two\nthree."\n\n,\n'.replace("\n,", ""))
    table = Corpus(tmp_path / "t.csv", replace(reading, column="text", quoting="csv"))
    assert [r.words for r in table] == [["One", "."], ["Two", "three", "."]]


def test_tokenized_words_of_a_corpus(tmp_path):
    pytest.importorskip("spacy", reason="make test-clients has spaCy")
    (tmp_path / "t.txt").write_text("I don't  know.\n\n")
    found = [record.words for record in Corpus(tmp_path / "t.txt", Reading(tokenize="en"))]
    assert found == [["I", "do", "n't", "know", "."], []]


def test_sequences_are_only_compared_with_the_text_of_a_model(tmp_path, caplog):
    (tmp_path / "p.fasta").write_text("".join(f">{i}\nMKVAC\n" for i in range(40)))
    for sentence in (None, ["M", "K", "A"], ["The", "man", "went", "."]):
        signs = TextSigns("p", of_model=sentence and Profile.of([sentence] * 40))
        assert len(list(Corpus(tmp_path / "p.fasta", signs=signs))) == 40
    (message,) = caplog.messages
    assert "0 of the first 200 words are punctuation (0 %, 25 % in the text of" in message
