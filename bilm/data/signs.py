"""Signs, in the first words of a text, that it is not one tokenized sentence per line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from absl import logging

from bilm.data import marks
from bilm.options import model_options

Item = TypeVar("Item")
SAMPLE_WORDS = 100_000
SAMPLE_ROWS, MAX_COLUMNS = 2_000, 10  # sentences that are compared as rows of columns
MAX_SEPARATE = 0.25  # separate punctuation marks of a kind, per word that contains such a mark
MARKS_AS_COLUMNS = 0.02, 0.5  # shares of punctuation marks among words in columns
N_EXAMPLES, MAX_EXAMPLE = 3, 40  # number of examples in a warning, and characters of one


class Sign(NamedTuple):
    """What is counted, its minimum number and share for a warning, what it is, and what to do."""

    unit: str
    least: int
    share: float
    what: str
    remedy: str


SPLIT = "bilm text --tokenize LANG does this"
SIGNS = {
    "end": Sign("words", 1, 0, "are the marks of a sentence's ends",
        "remove them: a model adds such marks to each sentence, and reads others as words"),
    "escape": Sign("words", 1, 0.001, "contain escapes of Moses or HTML",
        "replace them with the characters, as Moses's deescape-special-chars.perl does"),
    "long": Sign("characters", 1, 0.5, "are in very long words, as in text without blanks",
        f"separate the words with blanks; {SPLIT}"),
    "attached": Sign("words", 5, 0.02, "contain punctuation, so the text is probably not tokenized",
        f"separate it with blanks, as in the text that the model was trained on; {SPLIT}"),
    "columns": Sign("lines", 5, 0.8, "are columns of a word and its tags, as in CoNLL or IOB files",
        "write the words of a sentence on one line; the names of CoNLL-U files end with .conllu"),
    "joined": Sign("sentences", 1, 0.4, "have a capitalized word after . ! or ?, as if joined",
        f"write one sentence on a line; with --split_sentences, {SPLIT}"),
    "single": Sign("sentences", 5, 0.9, "have only one word",
        "write the words of a sentence on one line or in one row of a table, separated by blanks"),
}  # fmt: skip

ENDS = (marks.BOS, marks.EOS, model_options.BOS, model_options.EOS)
# Kinds of punctuation. A full stop counts only at the end of a sentence: abbreviations have one.
KINDS = {"stop": ".", "mark": ",;:!?…،؛؟。、，；：！？।", "quote": '"„“”«»‹›「」()'}
LAST = (".", "!", "?", "…")  # words at the end of a sentence
CLOSING = "\"'”’“«»›」)]}"  # may follow the last mark of a word
ESCAPE = re.compile(r".*&(#\d+|#x[\da-fA-F]+|[a-z]+\d*);.*|@[^\w\s]@")
# More characters than words have in Chinese and Japanese; in Thai, Lao, Tibetan, Burmese and Khmer;
# and in other languages.
LONG = re.compile(
    r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{6}|[\u0e00-\u109f\u1780-\u17ff]{16}|\S{31}"
)
TAG = re.compile(r"O|_|[BIESLUM]-\S+|-?[A-Z]+[\dA-Z]*[$|-]?|[A-Z]+[:=|]\S+|[^\w\s]+")


class TextSigns:
    """Counts the signs in the first words of the text `name` and logs one warning for each.

    Attributes: `known`, words that are not signs, such as a model's vocabulary; `done`, whether
        further sentences are ignored.
    """

    def __init__(self, name: object, known: Container[str] = ()):
        self._name = name
        self.known = known
        self.done = False
        self._totals: Counter[str] = Counter()  # of the units, and of separate marks by kind
        self._examples = {name: Counter[str]() for name in (*SIGNS, *KINDS)}  # counted words
        self._rows: list[tuple[int, Sequence[str]]] = []  # length and first words of sentences
        self._unreported = dict(SIGNS)

    def watch(self, items: Iterable[Item], words_of: Callable[..., list[str]]) -> Iterator[Item]:
        """Yield the items unchanged; warn after `SAMPLE_WORDS` words or the last item."""
        for item in items:
            self.add(words_of(item))
            yield item
        self.warn()

    def add(self, words: Sequence[str]) -> None:
        """Count the signs of a sentence. After `SAMPLE_WORDS` words, warn and ignore the rest."""
        if self.done or not words:
            return
        self._totals.update(sentences=1, words=len(words), characters=sum(map(len, words)))

        # Signs of the whole sentence.
        if len(words) == 1 and not LONG.search(words[0]):
            self._examples["single"][words[0]] += 1
        if len(self._rows) < SAMPLE_ROWS and not words[0].startswith("#"):  # CoNLL-U's comments
            self._rows.append((len(words), words[:MAX_COLUMNS]))
        if any(end in LAST and word[:1].isupper() for end, word in pairwise(words)):
            self._examples["joined"][" ".join(words[:MAX_COLUMNS])] += 1

        for i, word in enumerate(words, 1):
            self._add_word(word, i == len(words))
        if self._totals["words"] >= SAMPLE_WORDS:
            self.warn()
            self.done = True

    def _add_word(self, word: str, is_last: bool) -> None:
        """Count the sign that a word is; or a separate punctuation mark."""
        if word in ENDS:
            self._examples["end"][word] += 1
        elif ESCAPE.fullmatch(word):
            self._examples["escape"][word] += 1
        elif LONG.search(word):
            self._examples["long"][word] += len(word)
        elif kind := _kind(word, is_last):
            self._examples[kind][word] += 1
        elif word:
            self._totals.update(kind for kind, marks in KINDS.items() if word in marks)

    def warn(self) -> None:
        """Warn, once, of each sign that is frequent in the sentences counted so far."""
        if self.done:
            return
        # Copies, because other threads may add words.
        totals = self._totals.copy()
        rows = list(self._rows)
        examples = {name: Counter(dict(words)) for name, words in self._examples.items()}

        # Words that contain punctuation are a sign if few marks of this kind are separate words.
        for name in ("escape", *KINDS):
            for word in list(examples[name]):
                if word in self.known:
                    del examples[name][word]
        for kind in KINDS:
            if totals[kind] <= MAX_SEPARATE * examples[kind].total():
                examples["attached"] += examples[kind]

        # Lines are a sign if they are columns of words and tags.
        totals["lines"] = len(rows)
        examples["columns"].update(map(" ".join, _rows_of_columns(rows)))

        for name, sign in list(self._unreported.items()):
            n = examples[name].total()
            total = totals[sign.unit]
            if n < max(sign.least, sign.share * total):
                continue
            del self._unreported[name]
            frequent = examples[name].most_common(N_EXAMPLES)
            logging.warning(
                "%s: %s of the first %s %s %s, such as %s; %s", self._name, f"{n:,}", f"{total:,}",
                sign.unit, sign.what, ", ".join(repr(word[:MAX_EXAMPLE]) for word, _ in frequent),
                sign.remedy,
            )  # fmt: skip


def _kind(word: str, is_last: bool) -> str:
    """Return the kind of punctuation that a word contains at its start or end; "" for none."""
    if word.isalnum() or not any(map(str.isalnum, word)):
        return ""

    # A mark that follows the letters of the word, and closing marks after it.
    core = word.rstrip(CLOSING)
    letters = core[:-1].rstrip(CLOSING)
    if letters[-1:].isalnum():
        if core[-1] in KINDS["mark"]:
            return "mark"
        if is_last and core.find(".") == len(core) - 1:  # not e.g. or U.S.
            return "stop"
    return "quote" if word[0] in KINDS["quote"] or word[-1] in KINDS["quote"] else ""


def _rows_of_columns(sentences: list[tuple[int, Sequence[str]]]) -> list[Sequence[str]]:
    """Return the sentences that are as long as the next one, if they are columns of words and tags,
    or of anything else beside words that include punctuation marks."""
    rows = [row for (n, row), (n_next, _) in pairwise(sentences) if n == n_next > 1]
    columns = [[row[k] for row in rows if len(row) > k] for k in range(MAX_COLUMNS)]
    if sum(map(str.isdecimal, columns[0])) > len(rows) / 2:  # numbers of words in a sentence
        del columns[0]
    words, *others = columns

    are_words = not _are_tags(words, len(rows))
    if are_words and any(_are_tags(column, len(rows)) for column in others):
        return rows
    least, most = MARKS_AS_COLUMNS
    n_marks = sum(1 for word in words if not any(map(str.isalnum, word)))
    return rows if least * len(rows) < n_marks < most * len(rows) else []


def _are_tags(column: list[str], n_rows: int) -> bool:
    """Return whether the values of a column of a table with `n_rows` rows are tags of words."""
    tags = [value for value in column if TAG.fullmatch(value)]
    letters = [tag for tag in tags if any(map(str.isalpha, tag))]
    if len(tags) <= 0.9 * n_rows or len(letters) <= n_rows / 2:
        return False
    are_words = all(len(tag) == 1 for tag in letters) or len(set(letters)) == 1  # such as A and I
    return not are_words
