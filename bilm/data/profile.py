"""What the first words of a text consist of: signs that it is not one tokenized sentence per line,
and other traits, which differ between texts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple
from unicodedata import name as name_of
from unicodedata import normalize

from bilm.data import marks
from bilm.options import model_options

Found = Iterator[tuple[str, str]]  # a sign or trait, and where it was found
MAX_COLUMNS = 10  # words of a sentence that are compared as columns, or shown
MAX_SEPARATE = 0.25  # separate punctuation marks of a kind, per word that contains such a mark
MARKS_AS_COLUMNS = 0.02, 0.5  # shares of punctuation marks among words in columns
MIN_ALIKE = 5  # different sentences that start alike
N_EXAMPLES, MAX_EXAMPLE = 3, 40  # number of examples in a warning, and characters of one
# A share of words differs from that in a model's text if one is so many times the other and they
# differ by so much, in a text of enough words. A sign so many times as frequent is not unusual.
RATIOS = (3, 0.05), (20, 0.02)
MIN_WORDS, MIN_WITH_TRAIT, N_DIFFERENCES = 50, 20, 3
USUAL = 2
LENGTHS = {"letters of a word": ("characters", "words"),
           "words of a sentence": ("words", "sentences")}  # fmt: skip
LENGTH_RATIO = 2.5
UNITS = "words", "sentences", "characters", "lines"
ANY = 2.0  # a share that no text exceeds
PREPARE = "prepare the text as that of the model"


class Sign(NamedTuple):
    """What is counted, what to do, and the least number and share of units for a warning."""

    what: str
    remedy: str = "correct or remove them: a model reads such a word as another one"
    least: int = 1
    share: float = 0.001
    unit: str = "words"


NORMAL_FORMS: tuple[Literal["NFC", "NFD", "NFKC"], ...] = ("NFC", "NFD", "NFKC")
SPLIT = "bilm text --tokenize LANG does this"
SIGNS: dict[str, Sign] = {
    "end": Sign("are the marks of a sentence's ends", "remove them: a model adds its own", share=0),
    "foreign": Sign("are marks of other programs",
        "remove marks of ends, padding and missing values, and write <UNK> for unknown words"),
    "escape": Sign("contain escapes of Moses, HTML or programs",
        "replace them with the characters, as Moses's deescape-special-chars.perl does"),
    "subword": Sign("are marked as pieces of words",
        "use the text from before it was split: a model reads whole words", 2, 0.05),
    "blank": Sign("are whitespace", "remove them: a model reads them as words", share=0),
    "space": Sign("contain U+200B, which separates words", "replace it with a blank"),
    "encoding": Sign("look like text that was read in another encoding",
        "read the original file in its own encoding, mostly UTF-8", 2),
    "markup": Sign("are markup, or times of subtitles", "keep the sentences only", 2, 0.005),
    "fasta": Sign("are headers, as in FASTA",
        "let the name of the file end with .fasta; bilm text converts it to text", share=0.01),
    "json": Sign("are JSON", "let the name of the file end with .jsonl, with an object per line; "
        "bilm text converts it to text", 2, 0.3, "lines"),
    "csv": Sign("have fields with quotation marks, as in CSV", "let the name of the file end with "
        ".csv, with commas and a header; bilm text converts it to text", 3, 0.5, "lines"),
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
    "returns": Sign("contain ends that are not \\n",
        "convert them, such as with tr '\\r' '\\n' < OLD > NEW", share=0.1, unit="lines"),
    "columns": Sign("are columns of a word and its tags, as in CoNLL or IOB files",
        "write the words of a sentence on one line; the names of CoNLL-U files end with .conllu",
        5, 0.6, "sentences"),
    "tabs": Sign("are columns, such as a number, a label and a sentence",
        "keep the sentences only, such as with cut -f 2 OLD > NEW for the second column",
        3, 0.5, "lines"),
    "alike": Sign("start alike, such as with a number, a time or a mark of a list",
        "remove the start: a model reads it as words", 5, 0.8, "sentences"),
    "joined": Sign("have a capitalized word after . ! or ?, as if joined",
        f"write one sentence on a line; with --split_sentences, {SPLIT}", 1, 0.4, "sentences"),
    "header": Sign("are one line without a mark at its end", "remove the headers of pages",
        5, 0.02, "sentences"),
    "single": Sign("have only one word",
        "write the words of a sentence on one line or in one row of a table, separated by blanks",
        5, 0.9, "sentences"),
    # Traits
    "invisible": Sign("contain invisible characters, such as soft hyphens"),
    "controls": Sign("contain control characters, or those of one font"),
    "lost": Sign("contain ? or U+FFFD for lost letters", least=2, share=0.002),
    "reversed": Sign("begin with a letter that only ends words", least=2, share=0.01),
    "mixed": Sign("mix scripts that look alike", least=2, share=0.005),
    "styled": Sign("contain ligatures, or letters that are wide or in a style", share=0.005),
    "optical": Sign("contain digits between letters", least=5, share=0.03),
    "spaced": Sign("are single letters", "join the letters of each word", 20, 0.75),
    "address": Sign("are addresses", least=5, share=0.1),
    "unknown": Sign("are not in the vocabulary", PREPARE, 20, 0.25),
    "digits": Sign("contain digits", share=ANY),
    "separate": Sign("are punctuation", share=ANY),
    "inside": Sign("contain an apostrophe or hyphen", share=ANY),
    "punctuated": Sign("begin or end with punctuation", share=ANY),
    "capitalized": Sign("begin with a capital", share=ANY),
    "capitals": Sign("are in capitals", share=ANY),
    "accents": Sign("contain accents", share=ANY),
    "decomposed": Sign("are not in Unicode's normal form NFC", share=ANY),
    "once": Sign("occur once", share=ANY),
}  # fmt: skip
# Only the first of these signs that is frequent is reported, because it explains the others.
FORMS = {"fasta", "json", "csv", "long", "returns", "columns", "tabs", "alike", "joined", "single"}
NOT_KNOWN = "end", "missing"  # signs also if the vocabulary contains them
# They depend on the size or the lines of a text, too.
NOT_COMPARED = FORMS | {"header", "hyphens", "once", "unknown"}

# More characters than words have in Chinese and Japanese; in Thai, Lao, Tibetan, Burmese and Khmer;
# and in other languages.
LONG = r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{6}|[\u0e00-\u109f\u1780-\u17ff]{16}|\S{31}"
# Kinds of punctuation, and words that contain it at their start or end. A full stop counts only at
# the end of a sentence, where a blank follows, because abbreviations have one.
KINDS = {"mark": ",;:!?…،؛؟。、，；：！？।", "stop": ".", "quote": '"„“”«»‹›「」()'}
LETTER, CLOSING, QUOTE = r"[^\W_]", "[\"'”’“«»›」)\\]}]*", f"[{KINDS['quote']}]"
CYRILLIC, LATIN = "[\u0400-\u052f]", "[A-Za-z\u00c0-\u024f]"
PATTERNS = {  # of words, by signs and kinds of punctuation
    "end": "|".join((marks.BOS, marks.EOS, model_options.BOS, model_options.EOS)),
    "foreign": r"(?!<UNK>)(?i:</?s>|<(?:[be]os|sos|start|end|pad|unk|oov|cls|sep)>|<\|\w+\|>|"
        r"\[(?:[be]os|pad|unk|cls|sep)\]|@@(?:unknown|padding)@@|__label__\S+|-[lr][rcs]b-)|\\N",
    "escape": r".*&(?:#\d+|#x[\da-fA-F]+|[a-z]+\d*);.*|@[^\w\s]@|.*(?:\\u[\da-f]{4}|"
        r"\\x[\da-f]{2}|(?:%[\dA-F]{2}){2}|[^\W\d]%20[^\W\d]).*",
    "subword": r".+@@|##\w.*|▁.*|Ġ[A-Za-z]{1,3}|.+</w>|￭.*|.+￭|.+￨.+",
    "blank": r"\s+",
    "space": ".*\u200b.*",
    # UTF-8 read as Latin-1, Mac Roman and DOS, and other text read as Latin-1 or KOI8-R
    "encoding": f".*(?:[ÂÃ][\u0080-\u00bf]|â€|[\u00a1-\u00ff]{{4}}|√[^\\s\\d]|{LETTER}[─-▟]|"
        f"[─-▟]{LETTER}).*|[а-яё][А-ЯЁ]{{2,}}",
    "markup": r".*(?:</[A-Za-z][\w:-]*>?|<(?:br|p|hr|img|ref)\b|\]\(https?:).*|\\[a-z]+\{.*|"
        r"[\w:-]+=\"[^\"]*\"?/?>?|(?:\d+:)?\d\d:\d\d[,.]\d{3}|\{\d+\}\{\d+\}.*|"
        r"[\"'(]*(?:\[\[|\{\{|={2,}|'{3})\w.*|.*\w(?:\]\]|\}\}).*|={2,}|"  # of wikis
        r"[\"'(]*\*\*\w.*\*\*.*",
    "gap": rf"(?i:{marks.LOST_WORD})|(?=.*[^\W_]).*[\[\]⟦⟧〚〛].*|[\[⟦〚].+[\]⟧〛]|[.…]{{7,}}",
    "fasta": r">\w.*",
    "missing": "_",
    "long": f".*(?:{LONG}).*",
    "tagged": r".+[/_|](?:-?[A-Za-z][\w$+*:=|-]{0,20}|[^\w\s]+)",
    "mark": f".*{LETTER}{CLOSING}[{KINDS['mark']}]{CLOSING}",
    "quote": f"(?=.*{LETTER})(?:{QUOTE}.*|.*{QUOTE})",
}  # fmt: skip
STOP = re.compile(rf"[^.]*{LETTER}{CLOSING}\.{CLOSING}")
LINES = {  # patterns of lines
    "json": r"""[\[{]*\s*['"]\w+['"]\s*:\s*(?:["'\[{\d-]|true|false|null).*|[\[\]{}]+""",
    "csv": r"(?:\"[^\"]*\"|[^\s,;\"]*)[,;]\".*|.*\"[,;][\"\w].*",
    "tabs": r".*(?:\t.* | .*\t).*",
    "hyphens": r".*[^\W\d_][-‐¬⸗]",
}
TRAITS = {  # patterns of traits, anywhere in a word
    "invisible": "[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]|"
        f"(?:{CYRILLIC}|{LATIN})[\u200c\u200d]|[^\\W\\d]\ufe0f",
    "controls": "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ue000-\uf8ff]",
    "lost": "\ufffd|^[^\\W\\d_]+\\?[^\\W\\d_]+$",
    "reversed": r"^[ךםןףץة]\w",
    "mixed": f"{CYRILLIC}{LATIN}|{LATIN}{CYRILLIC}",
    "styled": "[\ufb00-\ufb06\uff41-\uff5a\U0001d400-\U0001d7ff]",
    "optical": r"[a-z]\d+[a-z]",
    "spaced": "^[a-zа-я]$",
    "address": r"^\W*(?i:https?://|www\.)",
    "digits": r"\d",
    "separate": r"^[^\w\s]+$",
    "inside": r"\w['’‐-]\w",
    "punctuated": r"\w[^\w\s'’-]+$|^[^\w\s'’-]+\w",
}  # fmt: skip
WORD = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items()), re.S)
LINE = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in LINES.items()), re.S)
PLAIN = re.compile("[a-z]{2,30}")
IN_WORDS = {name: re.compile(pattern) for name, pattern in TRAITS.items()}
LAST = (".", "!", "?", "…")  # words at the end of a sentence
LINE_ENDS = re.compile(r"[\r\v\x85\u2028\u2029]")
START = re.compile(r"[>*•|+]|[\d:./-]*\d[\d:./-]*[)\]]?")  # a word that is no sentence's first one
TAG = re.compile(r"O|_|[BIESLUM]-\S+|-?[A-Z]+[\dA-Z]*[$|-]?|[A-Z]+[:=|]\S+|[^\w\s]+")
CODE_PAGES = {"cp1252": 1, "cp1250": 1, "cp1254": 1, "cp1251": 2, "cp1253": 2, "cp1256": 2}
# What a character of UTF-8 but its first byte is read as
CONTINUED = {chr for page in CODE_PAGES for chr in bytes(range(0x80, 0xC0)).decode(page, "ignore")}


class Profile(NamedTuple):
    """What the first words of a text consist of; a model stores that of its text."""

    totals: Mapping[str, int]  # of units: see `Sign`
    counts: Mapping[str, int]  # of units with each sign and trait
    examples: Mapping[str, Sequence[str]] = {}  # the most frequent ones

    @classmethod
    def of(
        cls,
        sentences: Sequence[Sequence[str]],
        lines: Sequence[str] = (),
        known: Container[str] = (),
        vocabulary: Container[str] = (),
    ) -> Profile:
        """Return the profile of sentences, each with words. `lines`: the same as they were in a
        file; `known`: words that are not signs; `vocabulary`: words of a model, or none."""
        words = Counter(chain.from_iterable(sentences))
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word, n in words.items():
            for name in chain(_sign_of(word, known), _traits_of(word, vocabulary)):
                found[name][word] += n * len(word) if name == "long" else n
        for word, n in Counter(words[-1] for words in sentences).items():
            if STOP.fullmatch(word) and word not in known:
                found["stop"][word] += n
        for name, unit in chain(_signs_of_sentences(sentences), *map(_signs_of_line, lines)):
            found[name][unit] += 1
        found["once"].update(word for word, n in words.items() if n == 1)

        # Words that contain punctuation are a sign if few marks of this kind are separate words.
        for kind, separate in KINDS.items():
            if sum(words[mark] for mark in separate) <= MAX_SEPARATE * found[kind].total():
                found["attached"] += found[kind]
            del found[kind]
        totals = {
            "words": words.total(),
            "sentences": len(sentences),
            "characters": sum(len(word) * n for word, n in words.items()),
            "lines": len(lines),
        }
        counts = {name: units.total() for name, units in found.items() if units}
        examples = {
            name: [unit[:MAX_EXAMPLE] for unit, _ in found[name].most_common(N_EXAMPLES)]
            for name in counts
        }
        return cls(totals, counts, examples)

    @classmethod
    def from_record(cls, record: Any) -> Profile | None:
        """Return the profile of `to_record`, None for another value."""
        with suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            counts = {str(name): int(n) for name, n in record["counts"].items()}
            return cls({unit: int(record["totals"][unit]) for unit in UNITS}, counts)
        return None

    def to_record(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {"totals": self.totals, "counts": self.counts}

    def table(self) -> dict[str, str]:
        """Return the numbers in words, with examples."""
        rows = {name: f"{self.share(name):.3g}" for name in LENGTHS}
        for name in sorted(self.counts, key=self.share, reverse=True):
            sign = _sign(name)
            examples = ", ".join(map(repr, self.examples.get(name, ())))
            rows[f"{sign.unit} that {sign.what}"] = f"{100 * self.share(name):.2g} % {examples}"
        return rows

    def share(self, name: str) -> float:
        """Return the share of units with a sign or trait; of a length, the mean."""
        unit = LENGTHS[name][1] if name in LENGTHS else _sign(name).unit
        n = self.totals[LENGTHS[name][0]] if name in LENGTHS else self.counts.get(name, 0)
        return n / max(self.totals[unit], 1)

    def warnings(self, model: Profile | None = None) -> dict[str, str]:
        """Return a warning for each sign that is frequent, compared with the text of a model, by
        its name; and one for the three largest differences of other traits."""
        warnings: dict[str, str] = {}
        differences: dict[str, float] = {}
        others = {*self.counts, *(model.counts if model else ())}.difference(SIGNS)
        for name in chain(SIGNS, sorted(others)):
            sign = _sign(name)
            n, total = self.counts.get(name, 0), self.totals[sign.unit]
            share, usual, beside = self.share(name), 0.0, ""
            if model:
                usual = model.share("once" if name == "unknown" else name)
                beside = f" ({100 * share:.2g} %, {100 * usual:.2g} % in the text of the model)"
            examples = ", ".join(map(repr, self.examples.get(name, ())))
            such = f", such as {examples}" if examples else ""
            text = f"{n:,} of the first {total:,} {sign.unit} {sign.what}{beside}{such}"
            is_explained = name in FORMS and not FORMS.isdisjoint(warnings)
            least = max(1, sign.least, sign.share * total, USUAL * usual * total)
            if n >= least and not is_explained:
                warnings[name] = f"{text}; {sign.remedy}"
            elif model and name not in NOT_COMPARED and _differ(share, usual, total):
                differences[text] = abs(share - usual)
        for name in LENGTHS if model else ():
            mean, usual = self.share(name), model.share(name)
            if max(mean, usual) > LENGTH_RATIO * min(mean, usual):
                differences[f"{mean:.3g} {name}, {usual:.3g} in the text of the model"] = 0
        largest = sorted(differences, key=differences.__getitem__, reverse=True)[:N_DIFFERENCES]
        if largest and self.totals["words"] >= MIN_WORDS:
            warnings["model"] = f"{'; '.join(largest)}; {PREPARE}"
        return warnings


def _sign(name: str) -> Sign:
    """Return a sign, or the trait of a script's name."""
    return SIGNS.get(name) or Sign(f"contain letters of the script {name}", share=ANY)


def _differ(share: float, usual: float, total: int) -> bool:
    low, high = sorted((share, usual))
    is_large = any(high > ratio * low and high - low > least for ratio, least in RATIOS)
    return is_large and high * total >= MIN_WITH_TRAIT


def _sign_of(word: str, known: Container[str]) -> Iterator[str]:
    """Yield the sign, or the kind of attached punctuation, that a word has, if any."""
    if PLAIN.fullmatch(word):
        return
    match = WORD.fullmatch(word)
    name = "" if match is None else str(match.lastgroup)
    if not word.isascii() and name in ("", "mark", "quote") and _is_misread(word):
        name = "encoding"
    if name and (name in NOT_KNOWN or word not in known):
        yield name


def _is_misread(word: str) -> bool:
    """Return whether a word is UTF-8 that was read in a code page; not as RÓŻA, by chance."""
    if word.isupper() or CONTINUED.isdisjoint(word):
        return False
    for code_page, least in CODE_PAGES.items():
        with suppress(UnicodeError):
            if len(word) - len(word.encode(code_page).decode()) >= least:
                return True
    return False


def _traits_of(word: str, vocabulary: Container[str]) -> Iterator[str]:
    """Yield the traits of a word, and a normal form in which only the vocabulary has it."""
    if vocabulary and word not in vocabulary and word not in marks.MARKS:
        yield "unknown"
        yield from [form for form in NORMAL_FORMS if normalize(form, word) in vocabulary][:1]
    if letter := next(filter(str.isalpha, word), ""):
        yield _script(letter)
    if PLAIN.fullmatch(word):
        return
    yield from (name for name, pattern in IN_WORDS.items() if pattern.search(word))
    if word[0].isupper() and word[1:].islower():
        yield "capitalized"
    if len(word) > 1 and word.isupper():
        yield "capitals"
    if not word.isascii():
        composed = normalize("NFC", word)
        if composed != word:
            yield "decomposed"
        if normalize("NFD", word) != composed:
            yield "accents"


@cache
def _script(letter: str) -> str:
    """Return the script of a letter, such as "Latin"."""
    return name_of(letter, "unnamed").split()[0].split("-")[0].capitalize()


def _signs_of_line(line: str) -> Found:
    line = line.strip()
    if LINE_ENDS.search(line):
        yield "returns", line
    if match := LINE.fullmatch(line):
        yield str(match.lastgroup), line


def _signs_of_sentences(sentences: Sequence[Sequence[str]]) -> Found:
    alike: defaultdict[str, list[str]] = defaultdict(list)  # sentences by their start
    open_lines: Counter[str] = Counter()  # those without a mark at the end
    for words in sentences:
        start = " ".join(words[:MAX_COLUMNS])
        if any(end in LAST and word[:1].isupper() for end, word in pairwise(words)):
            yield "joined", start
        if len(words) == 1 and not re.search(LONG, words[0]):
            yield "single", words[0]
        n_first = 1 if START.fullmatch(words[0]) else 3
        if len(words) > n_first:
            alike[re.sub(r"\d+", "0", " ".join(words[:n_first]))].append(start)
        if len(words) > 1 and words[-1][-1:].isalnum():
            open_lines[re.sub(r"\d+", "0", start)] += 1
    most = max(alike.values(), key=len, default=[])
    if len(set(most)) >= MIN_ALIKE:
        yield from (("alike", start) for start in most)
    for line, n in open_lines.most_common(1):
        if 2 * (open_lines.total() - n) < len(sentences) - n:
            yield from [("header", line)] * n
    yield from (("columns", " ".join(row)) for row in _rows_of_columns(sentences))


def _rows_of_columns(sentences: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the sentences that are as long as the next one, if they are columns of words and tags,
    or of anything else beside words that include punctuation marks."""
    lines = [words for words in sentences if not words[0].startswith("#")]  # CoNLL-U's comments
    rows = [a[:MAX_COLUMNS] for a, b in pairwise(lines) if len(a) == len(b) > 1]
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
