"""Reading and writing usages in the layout of DWUG (Schlechtweg et al. 2021, arXiv:2104.08540).

A data set is a folder with a file `data/<lemma>/uses.csv` per word, separated by tabs, without
quotes. Columns: lemma, pos, date, grouping, identifier, description, context,
indexes_target_token and indexes_target_sentence. `context` is text of one or more sentences; the
last two columns are ranges of its characters, such as `10:14`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bilm.analysis.collecting import SAMPLE, Found, Reservoir
from bilm.analysis.usages import Description, Grouping, Usage, Usages, as_sentence
from bilm.data.text import read_lines
from bilm.data.tokenization import tokenizer
from bilm.errors import DataError
from bilm.support.files import expanded, replacing_folder

COLUMNS = (
    "lemma", "pos", "date", "grouping", "identifier", "description", "context",
    "indexes_target_token", "indexes_target_sentence",
)  # fmt: skip
OPTIONAL = ("pos", "date", "description")  # a blank or nothing if there is no value
REQUIRED = ("lemma", "grouping", "identifier", "context", "indexes_target_token")
DATA, USES = "data", "uses.csv"


def read_dwug(
    folder: str | Path,
    words: Sequence[str] | None = None,
    tokenize: str | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
) -> Found:
    """Read the usages of a data set in DWUG's layout.

    The sentence of a usage is its target sentence; the rest of the context is not used. The text
    before the target, the target and the text after it are split into words one by one, so the
    target is always a separate word. If it contains several words, the first one is used.

    Args:
        folder: contains `data/<lemma>/uses.csv`, or is the folder `data` itself.
        words: lemmas to read; None for all.
        tokenize: language whose spaCy rules split the text; None splits at blanks.
        sample, seed: see `find_usages`.
    Raises: DataError, naming file and line, if files, columns or ranges are missing or wrong.
    """
    top = Path(folder).expanduser()
    files = sorted(top.glob(f"{DATA}/*/{USES}")) or sorted(top.glob(f"*/{USES}"))
    if not files:
        raise DataError(f"{top}: contains no data/<lemma>/{USES}; expected a data set like DWUG")
    split = tokenizer(tokenize)
    kept: dict[tuple[str, str], Reservoir] = {}
    sizes: dict[str, list[int]] = {}
    texts: dict[str, dict[str, None]] = {}
    for path in files:
        for usage in _read_uses(path, split):
            if words is not None and usage.word not in words:
                continue
            key = usage.word, usage.grouping
            if key not in kept:
                kept[key] = Reservoir(sample, f"{seed}\0{usage.word}\0{usage.grouping}")
            kept[key].add(usage)
            size = sizes.setdefault(usage.grouping, [0, 0])
            size[0] += 1
            size[1] += len(usage.words)
            texts.setdefault(usage.grouping, {})[str(path)] = None
    found = dict.fromkeys(word for word, _ in kept)
    missing = [word for word in words or () if word not in found]
    if missing:
        raise DataError(f"{top}: contains no usages of {missing[0]!r}")
    names = sorted(sizes)
    groupings = tuple(Grouping(name, tuple(texts[name]), *sizes[name]) for name in names)
    counts = {
        word: {name: kept[word, name].n_seen if (word, name) in kept else 0 for name in names}
        for word in found
    }
    usages = [
        usage
        for word in found
        for name in names
        if (word, name) in kept
        for usage in kept[word, name].sorted()
    ]
    return Found(usages, Description(groupings, counts, sample=sample, seed=seed))


def _read_uses(path: Path, split: Callable[[str], list[str]]) -> Iterator[Usage]:
    lines = read_lines(str(path))
    _, header = next(lines, (0, ""))
    names = header.split("\t")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise DataError(
            f"{path}: the column {missing[0]} is missing; expected {', '.join(REQUIRED)}, "
            "separated by tabs"
        )
    for number, line in lines:
        if not line:
            continue
        values = line.split("\t")
        where = f"{path}, line {number}"
        if len(values) > len(names):
            raise DataError(
                f"{where}: {len(values)} columns, but the header has {len(names)}; fields must not "
                "contain tabs or line ends"
            )
        values += [""] * (len(names) - len(values))  # empty fields at the end of a line
        row = dict(zip(names, values, strict=True))
        words, position = _words(row, split, where)
        yield Usage(
            row["lemma"], row["grouping"], row["identifier"], str(path), number, position,
            as_sentence(words), row["lemma"], *(_value(row, name) for name in OPTIONAL),
        )  # fmt: skip


def _value(row: dict[str, str], name: str) -> str | None:
    return row.get(name, "").strip() or None


def _words(
    row: dict[str, str], split: Callable[[str], list[str]], where: str
) -> tuple[list[str], int]:
    """Return the words of the target sentence and the target's index."""
    context = row["context"]
    begin, end = _range(row["indexes_target_token"], len(context), where, "indexes_target_token")
    first, last = 0, len(context)
    if sentence := row.get("indexes_target_sentence"):
        first, last = _range(sentence, len(context), where, "indexes_target_sentence")
    if not first <= begin < end <= last:
        raise DataError(
            f"{where}: the target {begin}:{end} is not inside the sentence {first}:{last}"
        )
    before, after = split(context[first:begin]), split(context[end:last])
    target = split(context[begin:end])
    if not target:
        raise DataError(f"{where}: the target {begin}:{end} contains no word")
    return [*before, *target, *after], len(before)


def _range(text: str, length: int, where: str, name: str) -> tuple[int, int]:
    """Return a range of characters; as in Python, its start and its end may be left out."""
    found = re.fullmatch(r"\s*(\d*):(\d*)\s*", text)
    begin, end = (int(found[1] or 0), int(found[2] or length)) if found else (0, -1)
    if not begin <= end <= length:
        raise DataError(
            f"{where}: {name} is {text!r}; expected a range such as 10:14 within the {length} "
            "characters of the context"
        )
    return begin, end


def write_dwug(usages: Usages, folder: str | Path) -> list[Path]:
    """Write usages in DWUG's layout, one file per word.

    `read_dwug` reads the same words, groupings, identifiers, sentences and positions from the
    files. The context of a usage is its sentence with blanks between the words.

    Args:
        usages: the usages; their vectors are not written.
        folder: a folder that does not exist or is empty. It gets its name when all files are
            complete.
    Returns: the files.
    Raises: DataError if the folder contains files, or if a word cannot be the name of a folder.
    """
    top = Path(expanded(folder))
    if top.is_dir() and any(top.iterdir()):
        raise DataError(f"{folder}: is not empty; expected a new folder")
    paths = []
    with replacing_folder(top, DATA, ()) as new:
        for word, part in usages.frame.groupby("word", sort=False):
            name = str(word)
            if "/" in name or name in (".", ".."):
                raise DataError(
                    f"{name!r} cannot be the name of a folder; name the entry in the list of "
                    "words, such as cell: /cells?/"
                )
            path = Path(DATA, name, USES)
            (new / path).parent.mkdir(parents=True)
            with open(new / path, "w", encoding="utf-8", newline="\n") as file:
                file.write("\t".join(COLUMNS) + "\n")
                file.writelines(_line(row) for row in part.to_dict("records"))
            paths.append(top / path)
    return paths


def _line(row: dict[str, Any]) -> str:
    words = row["sentence"].split(" ")
    begin = sum(len(word) + 1 for word in words[: row["position"]])
    end = begin + len(words[row["position"]])
    values = (
        row["word"], row["tag"], row["date"], row["grouping"], row["identifier"],
        row["description"], row["sentence"], f"{begin}:{end}", f"0:{len(row['sentence'])}",
    )  # fmt: skip
    # DURel's description of the format requires a blank for a missing value.
    texts = [value if isinstance(value, str) else " " for value in values]
    # DWUG's files have neither quotes nor escapes.
    return "\t".join(re.sub(r"[\t\r\n]+", " ", text) for text in texts) + "\n"
