"""Signs, in the first words of a text, that it is not one tokenized sentence per line."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar
from unicodedata import normalize

from absl import logging

from bilm.data import marks
from bilm.options import model_options

Item = TypeVar("Item")
SAMPLE_WORDS = 100_000
SAMPLE_ROWS, MAX_COLUMNS = 2_000, 10  # sentences that are compared as rows of columns
MAX_SEPARATE = 0.25  # separate punctuation marks of a kind, per word that contains such a mark
MARKS_AS_COLUMNS = 0.02, 0.5  # shares of punctuation marks among words in columns
MAX_PLAIN = 30  # ASCII letters and digits of a word that cannot be a sign
N_EXAMPLES, MAX_EXAMPLE = 3, 40  # number of examples in a warning, and characters of one


class Sign(NamedTuple):
    """What is counted, what to do, and the least number and share of units for a warning."""

    what: str
    remedy: str
    least: int = 1
    share: float = 0.001
    unit: str = "words"


NORMAL_FORMS: tuple[Literal["NFC", "NFD", "NFKC"], ...] = ("NFC", "NFD", "NFKC")
SPLIT = "bilm text --tokenize LANG does this"
SIGNS: dict[str, Sign] = {
    "end": Sign("are the marks of a sentence's ends", "remove them: a model adds its own", share=0),
    "foreign": Sign("are marks of other programs",
        "remove marks of ends and padding, and write <UNK> for unknown words"),
    "escape": Sign("contain escapes of Moses or HTML",
        "replace them with the characters, as Moses's deescape-special-chars.perl does"),
    "subword": Sign("are marked as pieces of words",
        "use the text from before it was split: a model reads whole words", 2, 0.05),
    "blank": Sign("are whitespace", "remove them: a model reads them as words", share=0),
    "invisible": Sign("contain invisible characters, such as soft hyphens",
        "remove them: a model reads such a word as another one"),
    "encoding": Sign("look like UTF-8 that was read in another encoding",
        "read the original file as UTF-8"),
    "markup": Sign("are markup, or times of subtitles", "keep the sentences only", 2, 0.005),
    "fasta": Sign("are headers, as in FASTA",
        "let the name of the file end with .fasta; bilm text converts it to text", share=0.01),
    "gap": Sign("contain marks of gaps, or square brackets",
        "remove the brackets, or sentences with gaps, which only bilm fill fills: a model reads "
        "marks as words or letters", share=0.002),
    "hyphens": Sign("end with a part of a word", "join it with the rest on the next line",
        3, 0.02, "lines"),
    "missing": Sign("are _, as in CoNLL-U files whose words are left out",
        "insert the words, as the description of the treebank explains", 2, 0.5),
    "long": Sign("are in very long words, as in text without blanks",
        f"separate the words with blanks; {SPLIT}", share=0.5, unit="characters"),
    "tagged": Sign("end with a tag after / _ or |",
        "remove the tags: a model reads a word with its tag as another word", 4, 0.8),
    "attached": Sign("contain punctuation, so the text is probably not tokenized",
        f"separate it with blanks, as in the text that the model was trained on; {SPLIT}", 5, 0.02),
    **{form: Sign(f"are in the vocabulary only in Unicode's normal form {form}",
        "convert the text: python -c \"import sys, unicodedata; [print(unicodedata.normalize("
        f"'{form}', line), end='') for line in sys.stdin]\" < OLD > NEW", share=0.01)
       for form in NORMAL_FORMS},
    "returns": Sign("are not \\n, at which lines end",
        "convert them, such as with tr '\\r' '\\n' < OLD > NEW", share=0.1, unit="line ends"),
    "columns": Sign("are columns of a word and its tags, as in CoNLL or IOB files",
        "write the words of a sentence on one line; the names of CoNLL-U files end with .conllu",
        5, 0.8, "rows"),
    "tabs": Sign("are columns, such as a number, a label and a sentence",
        "keep the sentences only, such as with cut -f 2 OLD > NEW for the second column",
        3, 0.5, "lines"),
    "numbers": Sign("start with the number of the line",
        "remove it: a model reads it as a word", 5, 0.8, "sentences"),
    "joined": Sign("have a capitalized word after . ! or ?, as if joined",
        f"write one sentence on a line; with --split_sentences, {SPLIT}", 1, 0.4, "sentences"),
    "single": Sign("have only one word",
        "write the words of a sentence on one line or in one row of a table, separated by blanks",
        5, 0.9, "sentences"),
}  # fmt: skip
# Only the first of these signs that is frequent is reported, because it explains the others.
FORMS = {"fasta", "long", "returns", "columns", "tabs", "numbers", "joined", "single"}
NOT_KNOWN = "end", "missing"  # signs also if the vocabulary contains them

# More characters than words have in Chinese and Japanese; in Thai, Lao, Tibetan, Burmese and Khmer;
# and in other languages.
LONG = r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{6}|[\u0e00-\u109f\u1780-\u17ff]{16}|\S{31}"
# Kinds of punctuation, and words that contain it at their start or end. A full stop counts only at
# the end of a sentence, where a blank follows, because abbreviations have one.
KINDS = {"mark": ",;:!?…،؛؟。、，；：！？।", "stop": ".", "quote": '"„“”«»‹›「」()'}
LETTER, CLOSING, QUOTE = r"[^\W_]", "[\"'”’“«»›」)\\]}]*", f"[{KINDS['quote']}]"
PATTERNS = {  # of words, by signs and kinds of punctuation
    "end": "|".join((marks.BOS, marks.EOS, model_options.BOS, model_options.EOS)),
    "foreign": r"(?!<UNK>)(?i:</?s>|<(?:[be]os|sos|start|end|pad|unk|oov|cls|sep)>|<\|\w+\|>|"
        r"\[(?:[be]os|pad|unk|cls|sep)\]|@@(?:unknown|padding)@@|__label__\S+)",
    "escape": r".*&(?:#\d+|#x[\da-fA-F]+|[a-z]+\d*);.*|@[^\w\s]@",
    "subword": r".+@@|##\w.*|▁.*|Ġ[A-Za-z]{1,3}|.+</w>|￭.*|.+￭|.+￨.+",
    "blank": r"\s+",
    "invisible": ".*[\u00ad\u200b\u2060\ufeff].*",
    "encoding": ".*(?:[ÂÃ][\u0080-\u00bf]|â€).*",
    "markup": r".*(?:</[A-Za-z][\w:-]*>?|<(?:br|p|hr|img|ref)\b|\]\(https?:).*|\\[a-z]+\{.*|"
        r"[\w:-]+=\"[^\"]*\"?/?>?|(?:\d+:)?\d\d:\d\d[,.]\d{3}|\{\d+\}\{\d+\}.*|"
        r"[\"'(]*(?:\[\[|\{\{|={2,}|'{3})\w.*|.*\w(?:\]\]|\}\}).*|={2,}",  # of wikis
    "gap": rf"(?i:{marks.LOST_WORD})|(?=.*[^\W_]).*[\[\]⟦⟧〚〛].*|[\[⟦〚].+[\]⟧〛]|[.…]{{7,}}",
    "fasta": r">\w.*",
    "missing": "_",
    "long": f".*(?:{LONG}).*",
    "tagged": r".+[/_|](?:-?[A-Za-z][\w$+*:=|-]{0,20}|[^\w\s]+)",
    "mark": f".*{LETTER}{CLOSING}[{KINDS['mark']}]{CLOSING}",
    "stop": rf"[^.]*{LETTER}{CLOSING}\.{CLOSING}(?= )",
    "quote": f"(?=.*{LETTER})(?:{QUOTE}.*|.*{QUOTE})",
}  # fmt: skip
GROUPS = "|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items())
WORD = re.compile(f"(?:{GROUPS}) ?")
LAST = (".", "!", "?", "…")  # words at the end of a sentence
LINE_ENDS = re.compile(r"[\r\v\x85\u2028\u2029]+")
DIVIDED = re.compile(r"[^\W\d_][-‐¬⸗]$")  # the end of a line
LINE_NUMBER = re.compile(r"(\d{1,18})[.:)]?")
TAG = re.compile(r"O|_|[BIESLUM]-\S+|-?[A-Z]+[\dA-Z]*[$|-]?|[A-Z]+[:=|]\S+|[^\w\s]+")


class TextSigns:
    """Counts the signs in the first words of the text `name` and logs one warning for each.

    Attributes: `known`, words that are not signs, such as a model's vocabulary; `vocabulary`, words
        that are searched for other normal forms, if not `known`; `done`, whether further sentences
        are ignored; `unreported`, the signs to report.
    """

    def __init__(self, name: object, known: Container[str] = (), vocabulary: Container[str] = ()):
        self._name = name
        self.known = known
        self.vocabulary = vocabulary
        self.done = False
        self._totals: Counter[str] = Counter()  # of the units, and of separate marks by kind
        self._examples = {name: Counter[str]() for name in (*SIGNS, *KINDS)}  # counted words
        self._rows: list[tuple[int, Sequence[str]]] = []  # length and first words of sentences
        self._number = 0  # at the start of the last sentence
        self.unreported = dict(SIGNS)

    def watch(self, items: Iterable[Item], words_of: Callable[..., list[str]]) -> Iterator[Item]:
        """Yield the items unchanged; warn after `SAMPLE_WORDS` words or the last item."""
        for item in items:
            self.add(words_of(item))
            yield item
        self.warn()

    def add_line(self, line: str) -> str:
        """Count the signs that a line has before it is split into words, and return it."""
        text = line.strip()
        if self.done or not text:
            return line
        ends = LINE_ENDS.findall(text)
        self._totals.update({"lines": 1, "line ends": 1 + len(ends)})
        if ends:
            self._examples["returns"][text[:MAX_EXAMPLE]] += len(ends)
        if "\t" in text and " " in text:
            self._examples["tabs"][text[:MAX_EXAMPLE]] += 1
        if DIVIDED.search(text):
            self._examples["hyphens"][text[-MAX_EXAMPLE:]] += 1
        return line

    def add(self, words: Sequence[str]) -> None:
        """Count the signs of a sentence. After `SAMPLE_WORDS` words, warn and ignore the rest."""
        if self.done or not words:
            return
        self._totals.update(sentences=1, words=len(words), characters=sum(map(len, words)))

        if len(self._rows) < SAMPLE_ROWS and not words[0].startswith("#"):  # CoNLL-U's comments
            self._rows.append((len(words), words[:MAX_COLUMNS]))
        if any(end in LAST and word[:1].isupper() for end, word in pairwise(words)):
            self._examples["joined"][" ".join(words[:MAX_COLUMNS])] += 1
        number = LINE_NUMBER.fullmatch(words[0])
        before = self._number
        self._number = int(number[1]) if number else 0
        if self._number > before:
            self._examples["numbers"][" ".join(words[:MAX_COLUMNS])] += 1
        if len(words) == 1 and not re.search(LONG, words[0]):
            self._examples["single"][words[0]] += 1

        for i, word in enumerate(words, 1):
            self._add_word(word, i == len(words))
        if self._totals["words"] >= SAMPLE_WORDS:
            self.warn()
            self.done = True

    def _add_word(self, word: str, is_last: bool) -> None:
        """Count the sign that a word is; or a separate punctuation mark."""
        if word.isascii():
            if word.isalnum() and len(word) <= MAX_PLAIN:
                return
        elif (vocabulary := self.vocabulary or self.known) and word not in vocabulary:
            for form in NORMAL_FORMS:
                if normalize(form, word) in vocabulary:
                    self._examples[form][word] += 1
                    break

        match = WORD.fullmatch(f"{word} " if is_last else word)
        if match is None:
            self._totals.update(kind for kind, marks in KINDS.items() if word and word in marks)
        elif match.lastgroup in NOT_KNOWN or word not in self.known:
            name = str(match.lastgroup)
            self._examples[name][word] += len(word) if name == "long" else 1

    def warn(self) -> None:
        """Warn, once, of each sign that is frequent in the sentences counted so far."""
        if self.done:
            return
        # Copies, because other threads may add words.
        totals = self._totals.copy()
        rows = list(self._rows)
        examples = {name: Counter(dict(words)) for name, words in self._examples.items()}

        # Words that contain punctuation are a sign if few marks of this kind are separate words.
        for kind in KINDS:
            if totals[kind] <= MAX_SEPARATE * examples[kind].total():
                examples["attached"] += examples[kind]

        # Lines are a sign if they are columns of words and tags.
        totals["rows"] = len(rows)
        examples["columns"].update(map(" ".join, _rows_of_columns(rows)))

        for name, sign in list(self.unreported.items()):
            n = examples[name].total()
            total = totals[sign.unit]
            is_explained = name in FORMS and not self.unreported.keys() >= FORMS
            if n < max(sign.least, sign.share * total) or is_explained:
                continue
            del self.unreported[name]
            frequent = examples[name].most_common(N_EXAMPLES)
            logging.warning(
                "%s: %s of the first %s %s %s, such as %s; %s", self._name, f"{n:,}", f"{total:,}",
                sign.unit, sign.what, ", ".join(repr(word[:MAX_EXAMPLE]) for word, _ in frequent),
                sign.remedy,
            )  # fmt: skip


def _rows_of_columns(sentences: list[tuple[int, Sequence[str]]]) -> list[Sequence[str]]:
    """Return the sentences that are as long as the next one, if they are columns of words and tags,
    or of anything else beside words that include punctuation marks."""
    rows = [row for (n, row), (n_next, _) in pairwise(sentences) if n == n_next > 1]
    words, *others = ([row[k] for row in rows if len(row) > k] for k in range(MAX_COLUMNS))
    if any(_are_tags(column, len(rows)) for column in others) and not _are_tags(words, len(rows)):
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
