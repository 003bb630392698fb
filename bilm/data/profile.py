"""What the first words of a text consist of: signs that it is not one tokenized sentence per line,
and other traits, which differ between texts. Warns of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from unicodedata import name as name_of
from unicodedata import normalize

from absl import logging

from bilm.data import marks

Item = TypeVar("Item")
SAMPLE_WORDS = 100_000
GROWTH = 1.5  # of the number of words, after which warnings are looked for again
MIN_ALIKE = 5  # different sentences that start alike
N_EXAMPLES, MAX_EXAMPLE = 3, 40  # number of examples in a warning, and characters of one
# A share of words differs from that in a model's text if one is so many times the other and they
# differ by so much, in a text of enough words. A sign so many times as frequent is not unusual.
RATIOS = (3, 0.05), (20, 0.02), (100, 0.005)  # the last one, if the model's share is the smaller
MIN_WORDS, MIN_WITH_TRAIT, N_DIFFERENCES = 50, 20, 3
USUAL = 2
LENGTH_RATIO = 2.5
COMPARED = "words", "sentences"
UNITS = *COMPARED, "characters", "lines"


class Sign(NamedTuple):
    """A row of `signs.tsv`."""

    kind: str  # what has the pattern: a word, a line, a part of a word (a trait), or ""
    group: str  # of signs of which only the first frequent one is reported, or ""
    unit: str  # what is counted: see `UNITS`
    least: int  # least number that is unusual without a model
    share: float  # least share that is unusual without a model, infinite for traits
    what: str  # what a warning says about the units
    remedy: str  # what to do
    pattern: str


def _read_signs() -> dict[str, Sign]:
    rows = Path(__file__).with_name("signs.tsv").read_text(encoding="utf-8").splitlines()[1:]
    signs = {}
    for row in rows:
        name, kind, group, unit, least, share, *texts = row.split("\t")
        signs[name] = Sign(kind, group, unit, int(least), float(share), *texts)
    return signs


def _any_of(kind: str) -> re.Pattern[str]:
    """Return a pattern with a group for each sign of a kind."""
    signs = (f"(?P<{name}>{sign.pattern})" for name, sign in SIGNS.items() if sign.kind == kind)
    return re.compile("|".join(signs).replace("LOST_WORD", marks.LOST_WORD), re.S)


SIGNS = _read_signs()
NORMAL_FORMS: tuple[Literal["NFC", "NFD", "NFKC"], ...] = ("NFC", "NFD", "NFKC")
ADDED = "open", "curly", "combining"  # profiles without the first, as of novels-en, lack them all
NOT_KNOWN = "end", "missing"  # signs also if the vocabulary contains them
PLAIN = re.compile("(?!(?:unk|xxx)$)[a-z]{2,30}")  # words without signs
WORD, LINE = _any_of("word"), _any_of("line")
# A word at the end of a sentence, with a full stop; elsewhere, abbreviations have one.
STOP = re.compile(r"[^.]*[^\W_][\"'”’“«»›」)\]}]*\.[\"'”’“«»›」)\]}]*")
IN_WORDS = {name: re.compile(sign.pattern) for name, sign in SIGNS.items() if sign.kind == "trait"}
LAST = (".", "!", "?", "…")  # words at the end of a sentence
LABEL = re.compile(r"[>*•|+#]|^\d|[\W_]\w*\d")  # in marks of lists, numbers and ids
LETTERS = re.compile(r"\w+")
CODE_PAGES = {"cp1252": 1, "cp1250": 1, "cp1254": 1, "cp1251": 2, "cp1253": 2, "cp1256": 2}


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
        lines = lines or [" ".join(words) for words in sentences]
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word, n in words.items():
            for name in _signs_of_word(word, known, vocabulary):
                found[name][word] += n * len(word) if name == "long" else n
        for line in map(str.strip, lines):
            if match := LINE.fullmatch(line):
                found[str(match.lastgroup)][line] += 1
        usual = vocabulary or {word for word, n in words.items() if n > 1}
        for words_of_sentence in sentences:
            for name, unit in _signs_of_sentence(words_of_sentence, known, usual):
                found[name][unit] += 1
        found["alike"].update(_alike(sentences))
        found["header"].update(_header(sentences, found["open"].total()))
        found["single"].update(words[0] for words in sentences if len(words) == 1)
        found["once"].update(word for word, n in words.items() if n == 1)
        found["frequent"].update(dict(found["unknown"].most_common(1)))

        totals = {
            "words": words.total(),
            "sentences": len(sentences),
            "characters": sum(len(word) * n for word, n in words.items()),
            "lines": len(lines),
        }
        counts = {name: n.total() for name, n in found.items() if n or name == ADDED[0]}
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
        """Return the share of units with a sign or trait. In a text that was not compared with a
        vocabulary, words that occur once may as well be unknown."""
        counted = "once" if name == "unknown" and name not in self.counts else name
        return self.counts.get(counted, 0) / max(self.totals[_sign(name).unit], 1)

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
            usual = USUAL * model.share(name) * total if model else 0
            is_explained = sign.group in {SIGNS[warned].group for warned in warnings} - {""}
            if n >= max(1, sign.least, sign.share * total, usual) and not is_explained:
                warnings[name] = f"{self._described(name, model)}; {sign.remedy}"
        if model and self.totals["words"] >= MIN_WORDS:
            largest = sorted(self._differences(model, warnings), reverse=True)[:N_DIFFERENCES]
            if largest:
                texts = [text for _, text in largest]
                warnings["model"] = "; ".join([*texts, SIGNS["unknown"].remedy])
        return warnings

    def _differences(self, model: Profile, warned: Iterable[str]) -> Iterator[tuple[float, str]]:
        """Yield how large each difference from a model's text is, and the difference in words."""
        not_counted = () if ADDED[0] in model.counts else ADDED
        for name in {*self.counts, *model.counts}.difference(warned, not_counted):
            sign = _sign(name)
            low, high = sorted((self.share(name), model.share(name)))
            ratios = RATIOS if high == self.share(name) else RATIOS[:-1]
            is_large = any(high > ratio * low and high - low > least for ratio, least in ratios)
            is_sure = high * self.totals[sign.unit] >= MIN_WITH_TRAIT
            if is_large and is_sure and sign.unit in COMPARED and not sign.group:
                yield high - low, self._described(name, model)
        usual = model.lengths()
        for name, mean in self.lengths().items():
            if mean > LENGTH_RATIO * usual[name]:  # short sentences and words are as good
                yield 0, f"{mean:.3g} {name}, {usual[name]:.3g} in the text of the model"

    def _described(self, name: str, model: Profile | None = None) -> str:
        """Return how frequent a sign or trait is, with examples."""
        sign = _sign(name)
        n, total = self.counts.get(name, 0), self.totals[sign.unit]
        text = f"{n:,} of the first {total:,} {sign.unit} {sign.what}"
        if model:
            usual = _percent(model.share(name))
            text += f" ({_percent(self.share(name))} %, {usual} % in the text of the model)"
        if self.examples.get(name):
            text += f", such as {', '.join(map(repr, self.examples[name]))}"
        return text


def _sign(name: str) -> Sign:
    """Return a sign, or the trait of a script's name."""
    what = f"contain letters of the script {name}"
    return SIGNS.get(name) or SIGNS["digits"]._replace(what=what)


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}"  # 100 instead of 1e+02


def _signs_of_word(word: str, known: Container[str], vocabulary: Container[str]) -> Iterator[str]:
    """Yield the signs of a word, and its normal form if only that is in the vocabulary."""
    if vocabulary and word not in vocabulary and word not in marks.MARKS:
        yield "unknown"
        yield from [form for form in NORMAL_FORMS if normalize(form, word) in vocabulary][:1]
    if letter := next(filter(str.isalpha, word), ""):
        yield re.split("[ -]", name_of(letter, "unnamed"))[0].capitalize()  # such as Latin
    if PLAIN.fullmatch(word):
        return

    match = WORD.fullmatch(word)
    sign = str(match.lastgroup) if match else ""
    if sign in ("", "attached") and _is_misread(word):
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
    if normalize("NFD", word) != normalize("NFC", word):
        yield "accents"


def _is_misread(word: str) -> bool:
    """Return whether a word is UTF-8 that was read in a code page. Words in capitals, such as RÓŻA,
    only look so by chance."""
    if word.isupper() or word.isascii():
        return False
    for code_page, least in CODE_PAGES.items():
        with suppress(UnicodeError):
            if len(word) - len(word.encode(code_page).decode()) >= least:
                return True
    return False


def _signs_of_sentence(
    words: Sequence[str], known: Container[str], usual: Container[str]
) -> Iterator[tuple[str, str]]:
    """Yield signs of a sentence and their places; `usual`: words that may have been split."""
    last = words[-1]
    is_joined = False
    for word, following in pairwise(words):
        is_joined |= word in LAST and following[:1].isupper()
        start = word.rstrip("-")
        is_part = start != word or word not in usual or following not in usual
        if start and is_part and start + following in usual:
            yield "split", f"{word} {following}"
    is_open = last[-1:].isalnum()
    if is_open:
        yield "open", last
    elif STOP.fullmatch(last) and last not in known:
        yield "attached", last
    if is_joined:
        yield "joined", " ".join(words)
        if is_open:
            yield "wrapped", " ".join(words)


def _alike(sentences: Sequence[Sequence[str]]) -> list[str]:
    """Return the largest group of sentences that start or end alike, if many of them differ."""
    groups: defaultdict[str, list[str]] = defaultdict(list)  # by a label, or two words
    for words in sentences:
        start = LETTERS.sub("0", words[0]) if LABEL.search(words[0]) else " ".join(words[:2])
        groups[start].append(" ".join(words))
        if LABEL.search(words[-1]):
            groups["... " + LETTERS.sub("0", words[-1])].append(words[-1])
    largest = max(groups.values(), key=len, default=[])
    return largest if len(set(largest)) >= MIN_ALIKE else []


def _header(sentences: Sequence[Sequence[str]], n_open: int) -> list[str]:
    """Return all copies of a line that is repeated much more often than all but one other and,
    unlike most sentences, has no mark at its end, as `n_open` have."""
    copies = Counter(re.sub(r"\d+", "0", " ".join(words)) for words in sentences)
    (line, n), _, (_, n_third), *_ = [*copies.most_common(3), *[("", 0)] * 3]
    is_rare = 2 * n <= len(sentences) and 2 * n_open < len(sentences) + n
    return [line] * n if is_rare and n > 3 * n_third and " " in line and line[-1].isalnum() else []


class TextSigns:
    """Keeps the first words of the text `name` and logs a warning for each sign in them.

    Attributes: `known`, words that are not signs, such as a model's vocabulary; `vocabulary`, by
        default the same, with which words are compared; `of_model`, the profile of a model's text;
        `done`, whether further sentences are ignored; `reported`, signs that need no report.
    """

    def __init__(
        self,
        name: object,
        known: Container[str] = (),
        vocabulary: Container[str] = (),
        of_model: Profile | None = None,
    ):
        self._name = name
        self.known = known
        self.vocabulary = vocabulary
        self.of_model = of_model
        self.done = False
        self.reported: set[str] = set()
        self._lines: list[str] = []
        self._sentences: list[Sequence[str]] = []
        self._n_words = 0
        self._n_examined = 0

    def watch(self, items: Iterable[Item], words_of: Callable[..., list[str]]) -> Iterator[Item]:
        """Yield the items unchanged; warn after `SAMPLE_WORDS` words or the last item."""
        for item in items:
            self.add(words_of(item))
            yield item
        self.warn()

    def add_line(self, line: str) -> str:
        """Keep a line as it is before it is split into words, and return it."""
        if not self.done and line.strip():
            self._lines.append(line)
        return line

    def add(self, words: Sequence[str]) -> None:
        """Keep a sentence. After `SAMPLE_WORDS` words, warn and ignore the rest."""
        if self.done or not words:
            return
        self._sentences.append(words[:SAMPLE_WORDS])  # one may be a whole genome
        self._n_words += len(words)
        if self._n_words >= SAMPLE_WORDS:
            self.warn()
            self.done = True

    def profile(self) -> Profile:
        """Return the profile of the first words, which other threads may add to."""
        vocabulary = self.vocabulary or self.known
        return Profile.of(self._sentences[:], self._lines[:], self.known, vocabulary)

    def warn(self) -> None:
        """Warn of each new sign, unless there were nearly as many words at the last call."""
        if self.done or self._n_words < GROWTH * self._n_examined:
            return
        self._n_examined = self._n_words
        for name, warning in self.profile().warnings(self.of_model).items():
            if name not in self.reported:
                self.reported.add(name)
                logging.warning("%s: %s", self._name, warning)
