"""What the first words of a text consist of: signs that it is not one tokenized sentence per line,
and other traits, which differ between texts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unicodedata import name as name_of
from unicodedata import normalize

from bilm.data import marks

Found = Iterator[tuple[str, str]]  # a sign or trait, and where it was found
MAX_SHOWN = 10  # words of a sentence in a warning
MAX_SEPARATE = 0.25  # separate punctuation marks of a kind, per word that contains such a mark
MIN_ALIKE = 5  # different sentences that start alike
N_EXAMPLES, MAX_EXAMPLE = 3, 40  # number of examples in a warning, and characters of one
# A share of words differs from that in a model's text if one is so many times the other and they
# differ by so much, in a text of enough words. A sign so many times as frequent is not unusual.
RATIOS = (3, 0.05), (20, 0.02)
MIN_WORDS, MIN_WITH_TRAIT, N_DIFFERENCES = 50, 20, 3
USUAL = 2
LENGTH_RATIO = 2.5
UNITS = "words", "sentences", "characters", "lines"


class Sign(NamedTuple):
    """A row of `signs.tsv`: what has its pattern (a word, a line, a trait somewhere in a word, or
    ""); what is counted, in which unit; the least number and share that are unusual without a
    model; what to do."""

    kind: str
    unit: str
    least: int
    share: float
    what: str
    remedy: str
    pattern: str


def _read_signs() -> dict[str, Sign]:
    rows = Path(__file__).with_name("signs.tsv").read_text(encoding="utf-8").splitlines()[1:]
    signs = {}
    for row in rows:
        name, kind, unit, least, share, *texts = row.split("\t")
        signs[name] = Sign(kind, unit, int(least), float(share), *texts)
    return signs


def _any_of(kind: str) -> re.Pattern[str]:
    """Return a pattern with a group for each sign of a kind."""
    signs = (f"(?P<{name}>{sign.pattern})" for name, sign in SIGNS.items() if sign.kind == kind)
    return re.compile("|".join(signs).replace("LOST_WORD", marks.LOST_WORD), re.S)


PREPARE = "prepare the text as that of the model"
SIGNS = _read_signs()
NORMAL_FORMS: tuple[Literal["NFC", "NFD", "NFKC"], ...] = ("NFC", "NFD", "NFKC")
# Only the first of these signs that is frequent is reported, because it explains the others.
FORMS = {
    "pointer", "fasta", "json", "csv", "long", "returns", "columns", "tabs", "alike", "wrapped",
    "joined", "single",
}  # fmt: skip
# They depend on the size or the lines of a text, too.
NOT_COMPARED = FORMS | {"header", "hyphens", "once", "unknown"}
NOT_KNOWN = "end", "missing"  # signs also if the vocabulary contains them

# Separate marks of the kinds of attached punctuation. A full stop counts only at the end of a
# sentence, because abbreviations have one.
KINDS = {"mark": ",;:!?…،؛؟。、，；：！？।", "stop": ".", "quote": '"„“”«»‹›「」()'}
WORD, LINE, STOP = _any_of("word"), _any_of("line"), re.compile(SIGNS["stop"].pattern)
IN_WORDS = {name: re.compile(sign.pattern) for name, sign in SIGNS.items() if sign.kind == "trait"}
PLAIN = re.compile("[a-z]{2,30}")
LONG = re.compile(SIGNS["long"].pattern)
NUMBER = re.compile(r"\d+")
LAST = (".", "!", "?", "…")  # words at the end of a sentence
LINE_ENDS = re.compile(r"[\r\v\x85\u2028\u2029]")
START = re.compile(r"[>*•|+]|#+|(?=\D?\d)[\d:./-]+[)\]]?")  # marks of lists, and numbers
CODE_PAGES = {"cp1252": 1, "cp1250": 1, "cp1254": 1, "cp1251": 2, "cp1253": 2, "cp1256": 2}
# The characters as which code pages read the later bytes of a character of UTF-8.
CONTINUED = {chr for page in CODE_PAGES for chr in bytes(range(0x80, 0xC0)).decode(page, "ignore")}


class Profile(NamedTuple):
    """What the first words of a text consist of. A model stores the profile of its text."""

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
            for name in _signs_of_word(word, known, vocabulary):
                found[name][word] += n * len(word) if name == "long" else n
        for word, n in Counter(words[-1] for words in sentences).items():
            if STOP.fullmatch(word) and word not in known:
                found["stop"][word] += n
        signs = chain(
            chain.from_iterable(map(_signs_of_line, lines)),
            chain.from_iterable(map(_signs_of_sentence, sentences)),
            _alike(sentences),
            _header(sentences),
        )
        for name, unit in signs:
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
        """Return a profile that was stored, without examples; None for another value."""
        with suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            counts = {str(name): int(n) for name, n in record["counts"].items()}
            return cls({unit: int(record["totals"][unit]) for unit in UNITS}, counts)
        return None

    def table(self) -> dict[str, str]:
        """Return the numbers in words, the largest shares first."""
        rows = {name: f"{mean:.3g}" for name, mean in self.lengths().items()}
        for name in sorted(self.counts, key=self.share, reverse=True):
            rows[self._described(name)] = f"{_percent(self.share(name))} %"
        return rows

    def share(self, name: str) -> float:
        """Return the share of units with a sign or trait."""
        total = self.totals[_sign(name).unit]
        return self.counts.get(name, 0) / max(total, 1)

    def lengths(self) -> dict[str, float]:
        """Return the mean lengths of words and sentences, by what they are."""
        n_words = self.totals["words"]
        return {
            "letters of a word": self.totals["characters"] / max(n_words, 1),
            "words of a sentence": n_words / max(self.totals["sentences"], 1),
        }

    def warnings(self, model: Profile | None = None) -> dict[str, str]:
        """Return a warning for each sign that is frequent, compared with the text of a model, by
        its name; and one for the largest differences of other traits."""
        warnings: dict[str, str] = {}
        for name, sign in SIGNS.items():
            n = self.counts.get(name, 0)
            total = self.totals[sign.unit]
            usual = USUAL * _usual(model, name) * total if model else 0
            is_explained = name in FORMS and not FORMS.isdisjoint(warnings)
            if n >= max(1, sign.least, sign.share * total, usual) and not is_explained:
                warnings[name] = f"{self._described(name, model)}; {sign.remedy}"
        if model and self.totals["words"] >= MIN_WORDS:
            differences = self._differences(model, warnings)
            largest = sorted(differences, key=differences.__getitem__, reverse=True)
            if largest:
                warnings["model"] = f"{'; '.join(largest[:N_DIFFERENCES])}; {PREPARE}"
        return warnings

    def _differences(self, model: Profile, warned: Container[str]) -> dict[str, float]:
        """Return the differences from a model's text, in words, and how large they are."""
        differences: dict[str, float] = {}
        for name in sorted({*self.counts, *model.counts} - NOT_COMPARED):
            low, high = sorted((self.share(name), model.share(name)))
            is_large = any(high > ratio * low and high - low > least for ratio, least in RATIOS)
            is_sure = high * self.totals[_sign(name).unit] >= MIN_WITH_TRAIT
            if is_large and is_sure and name not in warned:
                differences[self._described(name, model)] = high - low
        usual = model.lengths()
        for name, mean in self.lengths().items():
            if mean > LENGTH_RATIO * usual[name]:  # short sentences and words are as good
                text = f"{mean:.3g} {name}, {usual[name]:.3g} in the text of the model"
                differences[text] = 0
        return differences

    def _described(self, name: str, model: Profile | None = None) -> str:
        """Return how frequent a sign or trait is, with examples."""
        sign = _sign(name)
        n, total = self.counts.get(name, 0), self.totals[sign.unit]
        text = f"{n:,} of the first {total:,} {sign.unit} {sign.what}"
        if model:
            share, usual = _percent(self.share(name)), _percent(_usual(model, name))
            text += f" ({share} %, {usual} % in the text of the model)"
        if name in self.examples:
            text += f", such as {', '.join(map(repr, self.examples[name]))}"
        return text


def _sign(name: str) -> Sign:
    """Return a sign, or the trait of a script's name."""
    what = f"contain letters of the script {name}"
    return SIGNS.get(name) or SIGNS["digits"]._replace(what=what)


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}"  # 100 instead of 1e+02


def _usual(model: Profile, name: str) -> float:
    """Return the share in a model's text; words that occur once there may as well be unknown."""
    return model.share("once" if name == "unknown" else name)


def _signs_of_word(word: str, known: Container[str], vocabulary: Container[str]) -> Iterator[str]:
    """Yield the signs and traits of a word, a kind of attached punctuation, and a normal form in
    which only the vocabulary has it."""
    if vocabulary and word not in vocabulary and word not in marks.MARKS:
        yield "unknown"
        yield from [form for form in NORMAL_FORMS if normalize(form, word) in vocabulary][:1]
    letter = next(filter(str.isalpha, word), "")
    if letter:
        yield _script(letter)
    if PLAIN.fullmatch(word):
        return

    match = WORD.fullmatch(word)
    sign = str(match.lastgroup) if match else ""
    if sign in ("", "mark", "quote") and _is_misread(word):
        sign = "encoding"
    if sign and (sign in NOT_KNOWN or word not in known):
        yield sign
    for name, pattern in IN_WORDS.items():
        if pattern.search(word):
            yield name
    if word[:1].isupper() and word[1:].islower():
        yield "capitalized"
    if len(word) > 1 and word.isupper():
        yield "capitals"
    composed = normalize("NFC", word)
    if composed != word:
        yield "decomposed"
    if normalize("NFD", word) != composed:
        yield "accents"


def _is_misread(word: str) -> bool:
    """Return whether a word is UTF-8 that was read in a code page. Words in capitals, such as RÓŻA,
    only look so by chance."""
    if word.isupper() or CONTINUED.isdisjoint(word):
        return False
    for code_page, least in CODE_PAGES.items():
        with suppress(UnicodeError):
            if len(word) - len(word.encode(code_page).decode()) >= least:
                return True
    return False


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


def _signs_of_sentence(words: Sequence[str]) -> Found:
    if any(end in LAST and word[:1].isupper() for end, word in pairwise(words)):
        start = " ".join(words[:MAX_SHOWN])
        yield "joined", start
        if words[-1].isalnum():
            yield "wrapped", start
    if len(words) == 1 and not LONG.fullmatch(words[0]):
        yield "single", words[0]


def _alike(sentences: Sequence[Sequence[str]]) -> Found:
    """Yield the largest group of sentences that start alike, if many of them differ after that."""
    groups: defaultdict[str, list[str]] = defaultdict(list)  # by mark of a list, or first words
    for words in sentences:
        first = NUMBER.sub("0", words[0])
        if not START.fullmatch(first):
            has_mark = len(words) > 1 and not any(map(str.isalnum, words[1]))
            first = " ".join(words[:2] if has_mark else words[:3])
        groups[first].append(" ".join(words[:MAX_SHOWN]))
    largest = max(groups.values(), key=len, default=[])
    if len(set(largest)) >= MIN_ALIKE:
        yield from (("alike", start) for start in largest)


def _header(sentences: Sequence[Sequence[str]]) -> Found:
    """Yield all copies of a line that is repeated much more often than others and, unlike most
    sentences, has no mark at its end."""
    copies = Counter(NUMBER.sub("0", " ".join(words)) for words in sentences)
    n_open = sum(words[-1][-1:].isalnum() for words in sentences)  # without a mark at the end
    (line, n), (_, n_next) = [*copies.most_common(2), ("", 0), ("", 0)][:2]
    is_rare = 2 * n <= len(sentences) and 2 * n_open < len(sentences) + n
    if is_rare and n > 3 * n_next and " " in line and line[-1].isalnum():
        yield from [("header", line)] * n
