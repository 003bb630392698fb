"""The text and the model of commands that score sentences."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bilm.commands import options as opt
from bilm.commands.output import Column
from bilm.data.text import STANDARD_INPUT

if TYPE_CHECKING:
    from bilm.data.readers import Corpus
    from bilm.scoring.scorer import Scorer

Place = list[str | int]  # of a sentence: file and id, if there are any, and number
Result = TypeVar("Result")
PLACE_NOTE = """
The first columns state the place of a row, with the same numbers in "bilm score" and "bilm
surprisal":
  file                 name of the file, if --input matches several
  id                   id of the sentence, if there are ids (--id_column or FASTA)
  sentence             number of the sentence, line or row in its file, from 0. Sentences without
                       words, such as blank lines, are numbered, but skipped
"""
TABLE_NOTE = """
Rows are written to standard output, separated by tabs, or to --output as .csv, .tsv or .parquet.
Fields are quoted where necessary. So that pandas does not read the word NA as a missing value, use
pandas.read_csv(FILE, keep_default_na=False, na_values=[""]), and sep="\\t" for tabs.
"""
NOTES = [TABLE_NOTE, opt.input_forms_help, opt.SOFTMAX_NOTE, opt.MODEL_FORMS]


# --- models ---


class Files(NamedTuple):
    """The files of a model with its softmax."""

    model: str
    weights: str | None
    vocab: str | None
    softmax: str | None

    def open(self) -> Scorer:
        """Load the scorer. Raises: BilmError."""
        from bilm.scoring.scorer import load_scorer

        weights, softmax = self.weights, self.softmax
        return load_scorer(self.model, self.vocab, weight_file=weights, softmax_file=softmax)


model_options = opt.gathered("files", Files, opt.model_options(
    opt.option("--softmax", opt.FETCHED, "HDF5 softmax of an exported model.",
               "<stem>_softmax.hdf5 beside the weights"),
    help="Stored model with its softmax.",
))  # fmt: skip

memory_option = opt.option("--memory", opt.FETCHED, 'File of "bilm memory".', "no memory")


# --- text ---


class Text:
    """Sentences to score, from the values of the options. Raises: DataError.

    Attributes: `files`, the files that `input_` matches; `columns`, those of a sentence's place.
    """

    def __init__(
        self, input_: str, column: str | None, id_column: str | None, on_bad_utf8: str,
        tokenize: str | None
    ):  # fmt: skip
        from bilm.data.readers import Corpus
        from bilm.data.signs import TextSigns
        from bilm.data.text import matching_files

        self.name, self._signs = input_, TextSigns(input_)
        self.files = [input_] if input_ == STANDARD_INPUT else matching_files(input_)
        self._corpora = [
            Corpus(path, column, id_column, None, tokenize, on_bad_utf8, signs=self._signs)
            for path in self.files
        ]
        self._has_files = len(self.files) > 1
        self._has_ids = any(corpus.has_ids for corpus in self._corpora)
        self.columns = [Column("sentence", int)]
        if self._has_ids:
            self.columns.insert(0, Column("id", str))
        if self._has_files:
            self.columns.insert(0, Column("file", str))

    def scored(
        self, scorer: Scorer, score: Callable[[Iterator[list[str]]], Iterable[Result]],
        apart: bool = False,
    ) -> Iterator[tuple[Place, Result]]:  # fmt: skip
        """Yield the place and the result of each sentence with words, in order, in bounded memory.

        Args:
            scorer: the language model, whose words show whether the text is tokenized alike.
            score: function from sentences to their results, called once or, if `apart`, per file.
        """
        places: deque[Place] = deque()  # of the sentences read, but not yet scored

        def sentences(corpora: list[Corpus]) -> Iterator[list[str]]:
            for place, words in self._placed_sentences(corpora):
                places.append(place)
                yield words

        self._signs.known = frozenset(scorer.words)
        groups = [[corpus] for corpus in self._corpora] if apart else [self._corpora]
        for corpora in groups:
            for result in score(sentences(corpora)):
                yield places.popleft(), result

    def _placed_sentences(self, corpora: list[Corpus]) -> Iterator[tuple[Place, list[str]]]:
        """Yield the place, the values of `columns`, and the words of each sentence with words."""
        for corpus in corpora:
            for number, record in enumerate(corpus):
                place: Place = [number]
                if self._has_ids:
                    place.insert(0, record.id or "")
                if self._has_files:
                    place.insert(0, corpus.path)
                if record.words:
                    yield place, record.words


text_options = opt.gathered("text", Text, opt.group(
    "Text",
    opt.text_input("Text: a file or a quoted pattern.", required=False, default="-"),
    opt.column_option,
    opt.id_column_option,
    opt.bad_utf8_option,
    opt.tokenize_option,
))  # fmt: skip
