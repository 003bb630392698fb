"""The text and the model of commands that score sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import chain, groupby, tee
from typing import TYPE_CHECKING, Any, TypeVar

from bilm.commands import options as opt
from bilm.commands.main import start_tensorflow
from bilm.data.profile import TextSigns
from bilm.data.readers import Corpus, Reading
from bilm.data.text import STANDARD_INPUT, matching_files
from bilm.errors import DataError, OptionsError

if TYPE_CHECKING:
    from bilm.scoring.scorer import Scorer

Place = dict[str, str | int]  # of a sentence: file and id, if there are any, and number
Sentence = tuple[Place, list[str]]
Result = TypeVar("Result")
PLACE_NOTE = """
The first columns state the place of a row, with the same numbers in "bilm score" and "bilm
surprisal":
  file                 name of the file, if --input matches several
  id                   id of the sentence, if there are ids (--id_column or FASTA)
  columns of --keep    as in the table
  sentence             number of the sentence, line or row in its file, from 0. Sentences without
                       words, such as blank lines, are numbered, but skipped
"""
TABLE_NOTE = """
Rows are written to standard output, separated by tabs, or to --output as .csv, .tsv or .parquet.
Fields are quoted where necessary. So that pandas does not read the word NA as a missing value, use
pandas.read_csv(FILE, keep_default_na=False, na_values=[""]), and sep="\\t" for tabs.
"""
NOTES = [TABLE_NOTE, opt.INPUT_FORMS, opt.SOFTMAX_NOTE, opt.MODEL_FORMS]


class Model:
    """The model of `model_options`, whose weights are not read yet, its vocabulary, and `memory`, a
    `SecondModel` or None. No output must replace its `files`. Raises: BilmError."""

    def __init__(
        self, model: str, weights: str | None, vocab: str | None, softmax: str | None,
        memory: str | None = None,
    ):  # fmt: skip
        from bilm.scoring.perplexity import load_second_model
        from bilm.storage.stored_model import open_model

        self.files = [model, weights, vocab, softmax, memory]
        self.stored = open_model(model, weights, softmax)
        if self.stored.needs_tensorflow:
            start_tensorflow()
        self.stored.require_softmax()
        self.vocabulary = self.stored.vocabulary(vocab)
        self.memory: Any = None
        if memory is not None:
            self.memory = load_second_model(memory, self.stored, self.vocabulary.words)

    def backend(self, n_tokens: int) -> str:
        """Return the backend that scores a number of tokens sooner, with its start."""
        from bilm.inference.backend import chosen_backend

        return chosen_backend(self.stored, n_tokens)

    def scorer(self, n_tokens: int, warns_of_signs: bool = False) -> Scorer:
        """Load the model into the backend that scores a number of tokens sooner."""
        name = self.backend(n_tokens)
        if name == "keras":
            start_tensorflow()
        from bilm.inference.backend import open_backend
        from bilm.scoring.scorer import Scorer

        backend = open_backend(self.stored, name, has_softmax=True)
        scorer = Scorer(backend, self.vocabulary.words)
        scorer.signs.of_model = self.stored.profile
        scorer.signs.done = not warns_of_signs
        return scorer


def model_options(function: Callable) -> Callable:
    """Declare options of a model, which the function receives as one argument, `model`."""

    @wraps(function)
    def call(**values: Any) -> Any:
        names = {"model", "weights", "vocab", "softmax", "memory"} & values.keys()
        return function(model=Model(**{name: values.pop(name) for name in names}), **values)

    softmax = opt.option(
        "--softmax", opt.FETCHED, "HDF5 softmax of an exported model.",
        "<stem>_softmax.hdf5 beside the weights",
    )  # fmt: skip
    return opt.model_options(softmax, help="Stored model with its softmax.")(call)


memory_option = opt.option("--memory", opt.FETCHED, 'File of "bilm memory".', "no memory")


def n_predictions(words: Sequence[str]) -> int:
    """Return the number of predictions of a sentence in a direction: of its words and its end."""
    return len(words) + 1


class Text:
    """Sentences to score by the values of `text_options`, whose `files` are opened when they are
    read, and the `columns` of a sentence's place. `marks`: words that are not split; `are_gaps`:
    whether the command fills them as gaps. Raises: DataError."""

    def __init__(
        self, input_: str, keep: tuple[str, ...] | None, marks: re.Pattern[str] | None = None,
        are_gaps: bool = False, **reading: Any,
    ):  # fmt: skip
        self.name = input_
        self._signs = TextSigns(input_)
        if are_gaps:
            self._signs.reported.add("gap")
        self.files = [input_] if input_ == STANDARD_INPUT else matching_files(input_)
        self._keep = keep or ()
        how = Reading(keep=self._keep, marks=marks, **reading)
        self._corpora = [Corpus(path, how, self._signs) for path in self.files]
        self._sentences = self._read()
        self.columns: dict[str, type] = {"file": str} if len(self.files) > 1 else {}
        if any(corpus.has_ids for corpus in self._corpora):
            self.columns["id"] = str
        self._taken = {*self.columns, "sentence"}  # names of other columns
        self.columns |= dict.fromkeys(self._keep, str)
        self.columns["sentence"] = int

    def with_columns(self, columns: dict[str, type]) -> dict[str, type]:
        """Return the columns of places, except those that others replace, and the others. Raises:
        OptionsError if a column of --keep is also one of the result."""
        for name in self._keep:
            if name in columns or name in self._taken:
                raise OptionsError(f"--keep {name}: the result has another column of this name")
        places = {name: type for name, type in self.columns.items() if name not in columns}
        return places | columns

    def scorer(
        self, model: Model, n_computed: Callable[[list[str]], int] = n_predictions
    ) -> Scorer:
        """Load a model into the backend that scores the text sooner. `n_computed`: function from
        the words of a sentence to the number of predictions that are computed for it."""
        from bilm.inference.backend import most_tokens

        self._signs.known = model.vocabulary
        self._signs.of_model = model.stored.profile
        most = most_tokens(model.stored.options)
        n_tokens = 0
        beginning: list[Sentence] = []
        for place, words in self._sentences:
            beginning.append((place, words))
            n_tokens += n_computed(words)
            if n_tokens > most:
                break
        self._sentences = chain(beginning, self._sentences)
        return model.scorer(n_tokens)

    def scored(
        self,
        score: Callable[[Iterator[list[str]]], Iterable[Result]],
        together: Sequence[str] = (),
        logs_progress: bool = False,
        with_empty: bool = False,
        refuses_empty: bool = False,
    ) -> Iterator[tuple[Place, Result]]:
        """Yield the place and the result of each sentence with words, or of all if `with_empty`, in
        order, in bounded memory. `score`: from sentences to results, called once, or for each group
        of neighbours that are equal in the columns `together`. Raises: DataError for a sentence
        without words if `refuses_empty`."""
        from bilm.support.progress import Progress

        def kept(sentences: Iterable[Sentence]) -> Iterator[Sentence]:
            for place, words in sentences:
                if refuses_empty and not words:
                    where = f"{self.name}, sentence {place['sentence']}"
                    raise DataError(f"{where}: no words; complete its item, or remove the item")
                if words or with_empty:
                    yield place, words

        def group_of(sentence: Sentence) -> tuple[str | int, ...]:
            place, _ = sentence
            return tuple(place[name] for name in together)

        groups = set()
        bar = Progress("scoring", "sentences")
        for group, sentences in groupby(self._sentences, group_of):
            if group in groups:
                listed = ", ".join(map(str, group))
                raise DataError(f"{self.name}: other rows are between those of {listed}")
            groups.add(group)
            to_score, to_place = tee(kept(sentences))
            results = score(words for _, words in to_score)
            for (place, _), result in zip(to_place, results, strict=True):
                yield place, result
                if logs_progress:
                    bar.add(1)

    def _read(self) -> Iterator[Sentence]:
        for corpus in self._corpora:
            for number, record in enumerate(corpus):
                place: Place = {"file": corpus.path, "id": record.id or "", "sentence": number}
                place |= record.kept
                yield {name: place[name] for name in self.columns}, record.words


text_options = opt.group(
    "Text",
    opt.text_input("Text: a file or a quoted pattern.", required=False, default="-"),
    *opt.reading_options,
    opt.id_column_option,
    opt.reading_option("keep", opt.List(opt.TEXT), unset="none", metavar="NAME,..."),
)
