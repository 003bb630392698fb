"""Damaged corpora through `bilm embed`: tables, CoNLL-U and FASTA, plain or gzip. The kind parquet
requires pyarrow.
"""

import functools
import gzip
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from fuzzing import OUTCOMES, VALUES, Unexpected, damaged, expect
from tiny_runs import GOLDEN

from bilm.commands.embed import embed
from bilm.commands.main import run
from bilm.errors import DataError

TEXTS = ["a sentence of words .", "", "  ", "of , words", 'a "quoted" one', "café \u2028 x", "a\tb"]
CELLS = ["a b .", "", "  ", "café \u2028 x", "of words"]
OUTPUTS = ["hdf5", "npz", *(["parquet"] if find_spec("pyarrow") else [])]
PROGRAM = "bilm embed"
CASE = GOLDEN / "inference" / "tanh_nohighway_noskip_1layer"


def csv_file(rng: random.Random) -> bytes:
    quoted = ['"a ""quoted"" one"', '"two\nlines"', '"a, b"']
    odd = ['"open', '""x', "x" * 200_000, "a,b", "a\0b", 'a "quoted, one']
    headers = [*["id,text"] * 9, "id,Text", "text,text", "", "id", '"id","text"']
    return delimited(",", headers, [*CELLS, *quoted], odd, rng)


def tsv_file(rng: random.Random) -> bytes:
    headers = [*["id\ttext"] * 9, "id\tText", "text\ttext", "", "id", '"id"\t"text"']
    odd = ["a\tb", "a\0b", "", "\t", "x" * 200_000]
    return delimited("\t", headers, [*CELLS, 'a "quoted one'], odd, rng)


def delimited(mark: str, headers: list, good: list, odd: list, rng: random.Random) -> bytes:
    rows = [f"{i}{mark}{rng.choice(good)}" for i in range(6)]
    if rng.random() < 0.2:
        rows[rng.randrange(6)] = f"7{mark}{rng.choice(odd)}"
    return rng.choice(["\n", "\r\n", "\n\n", "\r"]).join([rng.choice(headers), *rows]).encode()


def jsonl_file(rng: random.Random) -> bytes:
    def row(i: int) -> str:
        if rng.random() < 0.95:
            return json.dumps({"id": i, "text": rng.choice([*TEXTS, None, ["of", "words"], []])})
        values = rng.choice(
            [{"id": rng.choice(VALUES), "text": rng.choice(VALUES)}, rng.choice(VALUES)]
        )
        text = json.dumps(values)
        return rng.choice([text, text[:-1], f"{text} {text}", "[" * 100_000, '{"text": 1e999}'])

    return "\n".join(map(row, range(8))).encode()


def conllu_file(rng: random.Random) -> bytes:
    lines = ["# text = a", "1\ta\t_", "2-3\tdon't\t_", "2\tdo\t_", "2.1\tx\t_", "", "1\tb c\t_", ""]
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        odd = ["x\ty", "1", "1 a", "1\t", "1\t\t", "-\ta", "1\t \t_", "\t\t", "², \ta"]
        odd.append("9" * 5000 + "\ta")
        lines.insert(rng.randrange(len(lines)), rng.choice(odd))
    return "\n".join(lines * 2).encode()


def fasta_file(rng: random.Random) -> bytes:
    lines = [">s1|A|one a", "MKV", "lag*", ">s2|B", "; comment", "GG A", ">s3|C x", "X" * 100]
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        odd = [
            ">",
            ">s1|A|one",
            "*",
            "M-K",
            "MéK",
            ">" + "i" * 2000,
            "M*K",
            "1",
            "> x",
            ">é/ü",
            ">.",
        ]
        lines.insert(rng.randrange(len(lines)), rng.choice(odd))
    return "\n".join(lines).encode()


def parquet_file(rng: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    n = rng.choice([0, 1, 5, 3000])
    texts = pa.array([rng.choice([*TEXTS, None]) for _ in range(n)], pa.string())
    if rng.random() < 0.4:
        numbers = pa.array(range(n), pa.int64())
        texts = rng.choice(
            [
                numbers,
                pa.array([["of", "words"]] * n, pa.list_(pa.string())),
                pa.array([["of", None]] * n, pa.list_(pa.string())),
                pa.array([[[1]]] * n, pa.list_(pa.list_(pa.int8()))),
                pa.array([b"\xff"] * n, pa.binary()),
                pa.array([{"text": "a"}] * n, pa.struct([("text", pa.string())])),
                pa.array([2**62] * n, pa.timestamp("s")),
                pa.array([2**62] * n, pa.duration("us")),
                pa.nulls(n),
                texts.dictionary_encode(),
                texts.cast(pa.large_string()),
                pa.array([1e308] * n, pa.float64()),
            ]
        )
    names = rng.choice([*[["id", "text"]] * 6, ["id", "Text"], ["text", "text"]])
    ids = rng.choice([*[pa.array(range(n))] * 4, pa.array(["a"] * n), pa.nulls(n)])
    file, table = io.BytesIO(), pa.Table.from_arrays([ids, texts], names)
    pa.parquet.write_table(table, file, compression=rng.choice(["none", "snappy", "zstd"]))
    return file.getvalue()


def run_embed(words: list[str], corpus: Path) -> None:
    """Run `bilm embed`. Raises: DataError with what it says is wrong, if that is one clear line."""
    said, printed = io.StringIO(), io.StringIO()
    with redirect_stderr(said), redirect_stdout(printed):
        status = run(embed, PROGRAM, words)
    # A quoted field of a TSV file may also be text without quoting: one warning.
    lines = [x for x in said.getvalue().splitlines() if "read as quotes of the field" not in x]
    if status == 0 and not lines and "wrote" in printed.getvalue():
        return
    start = f"{PROGRAM}: error: "
    is_clear = len(lines) == 1 and lines[0].startswith(start) and corpus.name in lines[0]
    if status != 1 or not is_clear:
        raise RuntimeError(f"status {status}, said {said.getvalue()[:2000]!r}")
    raise DataError(lines[0])


def try_corpus(content: Callable, ending: str, path: Path, rng: random.Random) -> None:
    folder = path.with_suffix(".corpora")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    data = content(rng)
    if rng.random() < 0.5:
        data = damaged(data, rng)
    is_packed = ending != "parquet" and rng.random() < 0.2
    corpus = folder / f"in.{ending}{'.gz' if is_packed else ''}"
    packed = gzip.compress(data) if is_packed else data
    corpus.write_bytes(damaged(packed, rng) if is_packed and rng.random() < 0.5 else packed)
    output = folder / f"out.{rng.choice(OUTPUTS)}"
    words = ["--quiet", "--input", str(corpus), "--output", str(output), "--layers=average"]
    words += ["--model", str(CASE), f"--pool={rng.choice(['none', 'mean'])}"]
    if ending not in ("conllu", "fasta"):
        words += ["--column=text", *(["--id_column=id"] if rng.random() < 0.3 else [])]
    elif ending == "fasta" and rng.random() < 0.3:
        words += ["--id_field=1"]
    before = OUTCOMES["success"]
    expect(run_embed, words, corpus)
    written = {output.name} if OUTCOMES["success"] > before else set()
    if (left := {p.name for p in folder.iterdir()} - {corpus.name}) != written:
        raise Unexpected(f"left {sorted(left)}, expected {sorted(written)}")
    if output.suffix == ".npz" and written:
        expect(lambda: np.load(output)["vectors"].sum())


def prepare() -> None:
    """Do once, with good corpora, what takes longer and more memory the first time."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "in.txt"
        corpus.write_text("a sentence of words .\n")
        for output in OUTPUTS:
            words = ["--quiet", "--input", str(corpus), "--output", f"{folder}/out.{output}"]
            run_embed([*words, "--model", str(CASE)], corpus)


CONTENTS = {"csv": csv_file, "tsv": tsv_file, "jsonl": jsonl_file}
CONTENTS |= {"conllu": conllu_file, "fasta": fasta_file}
if "parquet" in OUTPUTS:
    CONTENTS["parquet"] = parquet_file
KINDS = {name: functools.partial(try_corpus, make, name) for name, make in CONTENTS.items()}
