"""Data sets in the layout of DWUG (Schlechtweg et al. 2021, arXiv:2104.08540).

A data set is a folder with a file `data/<lemma>/uses.csv` per word, separated by tabs, without
quotes. `context` is text of one or more sentences; indexes_target_token and indexes_target_sentence
are ranges of its characters, such as `10:14`.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from absl import logging

from bilm.data import read_lines, tokenizer
from bilm.errors import DataError
from bilm.studies.usages.finding import SAMPLE, FoundUsages, Samples
from bilm.studies.usages.usages import Grouping, Usage

# Letters beside each other, of scripts that put blanks around words without clitics
LETTER = r"[^\W\u0590-\u06ff\u0e00-\u109f\u1780-\u17ff\u3000-\u9fff\uac00-\ud7a3\uff00-\uffef]"
LETTERS = re.compile(rf"{LETTER}(?:{LETTER}|[\u0300-\u036f])")
OPTIONAL = ("pos", "date", "description")  # blank if there is no value
RANGE = re.compile(r"\s*(?P<begin>\d*):(?P<end>\d*)\s*")
REQUIRED = ("lemma", "grouping", "identifier", "context", "indexes_target_token")


def read_dwug(
    folder: str | Path,
    words: Sequence[str] | None = None,
    tokenize: str | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
) -> FoundUsages:
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
    files = sorted(top.glob("data/*/uses.csv")) or sorted(top.glob("*/uses.csv"))
    if not files:
        raise DataError(f"{top}: contains no data/<lemma>/uses.csv; expected a data set like DWUG")
    split = tokenizer(tokenize)
    samples = Samples(sample, seed)
    present: dict[str, None] = {}  # words, in the order of the files
    groupings: dict[str, Grouping] = {}
    for path in files:
        for usage in _read_uses(path, split):
            if words is None or usage.word in words:
                samples.add(usage)
                present[usage.word] = None
                grouping = groupings.setdefault(usage.grouping, Grouping(usage.grouping, []))
                if usage.text not in grouping.texts:
                    grouping.texts = [*grouping.texts, usage.text]
                grouping.sentences += 1
                grouping.tokens += len(usage.words)
    for word in words or ():
        if word not in present:
            raise DataError(f"{top}: contains no usages of {word!r}")
    return samples.result(present, [groupings[name] for name in sorted(groupings)])


def _read_uses(path: Path, split: Callable[[str], list[str]]) -> Iterator[Usage]:
    """Yield the usages of a file; warn if most do not begin like their lemma."""
    lines = (line for _, line in read_lines(str(path)))
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")
    names = rows.fieldnames or []
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise DataError(
            f"{path}: the column {missing[0]} is missing; expected {', '.join(REQUIRED)}, "
            "separated by tabs"
        )
    others: list[str] = []  # targets that do not begin like the lemma
    n_usages = 0
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        if None in row:  # fields without a name
            raise DataError(
                f"{where}: more columns than the {len(names)} of the header; fields must not "
                "contain tabs or line ends"
            )
        words, position = _words(row, split, where)
        lemma = row["lemma"]
        n_usages += 1
        if words[position][:1].casefold() != lemma[:1].casefold():
            others.append(words[position])
        optional = [row.get(name, "").strip() or None for name in OPTIONAL]
        yield Usage(
            lemma, row["grouping"], row["identifier"], str(path), rows.line_num, position,
            words, lemma, *optional
        )  # fmt: skip
    if len(others) > n_usages / 2:
        logging.warning(
            "%s: %d of the %d targets, such as %r, do not begin like the lemma; "
            "indexes_target_token may count something else than the characters of the context",
            path, len(others), n_usages, others[0],
        )  # fmt: skip


def _words(
    row: dict[str, str], split: Callable[[str], list[str]], where: str
) -> tuple[list[str], int]:
    """Return the words of the target sentence and the target's index."""
    context = row["context"]
    begin, end = _range(row, "indexes_target_token", where)
    first, last = 0, len(context)
    if row.get("indexes_target_sentence"):
        first, last = _range(row, "indexes_target_sentence", where)
    if not first <= begin < end <= last:
        raise DataError(
            f"{where}: the target {begin}:{end} is not inside the sentence {first}:{last}"
        )
    before = split(context[first:begin])
    target = split(context[begin:end])
    after = split(context[end:last])
    if not target:
        raise DataError(f"{where}: the target {begin}:{end} contains no word")
    return [*before, *target, *after], len(before)


def _range(row: dict[str, str], name: str, where: str) -> tuple[int, int]:
    """Return a range of characters; as in Python, its start and its end may be left out."""
    text, context, length = row[name], row["context"], len(row["context"])
    begin, end = 0, -1
    if match := RANGE.fullmatch(text):
        begin, end = int(match["begin"] or 0), int(match["end"] or length)
    cuts_word = any(LETTERS.match(context, place - 1) for place in (begin, end) if place > 0)
    if cuts_word or not begin <= end <= length:
        raise DataError(
            f"{where}: {name} is {text!r}, {context[begin:end][:40]!r}; expected a range of whole "
            f"words, such as 10:14, within the {length} characters of the context, not bytes"
        )
    return begin, end
