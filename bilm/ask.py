"""A stored language model to ask: a run, or an export with its softmax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bilm.data.vocabulary import Vocabulary, vocabulary_of_words
from bilm.errors import OptionsError, WeightsError
from bilm.files import expanded
from bilm.language_model import BiLM
from bilm.scores import Score, Substitutes
from bilm.scoring import Scorer
from bilm.storage import names as weights
from bilm.storage.checkpoint import load_model, run_vocabulary
from bilm.storage.export_id import check_same_export
from bilm.storage.formats.checkpoint import open_run
from bilm.storage.formats.known import is_run, read_options, require_softmax
from bilm.storage.locate import resolve
from bilm.storage.softmax_file import SoftmaxFile, softmax_beside

PathLike = str | Path  # of a file or folder


def load_scorer(
    model: PathLike | None = None,
    vocab_file: PathLike | None = None,
    options_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
    save_dir: PathLike | None = None,
) -> Scorer:
    """Load a language model to ask.

    Args:
        model: what stands for it, see `bilm.storage.locate.resolve`: a run, or an export with its
            softmax. `save_dir` and `options_file` are other names of this argument.
        vocab_file: the vocabulary of a run; None for `vocab.txt` in its folder. An export has its
            own words.
        weight_file: the HDF5 weights, where `model` is an options file.
        softmax_file: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`, as `dump_weights` writes
            it; None for `<stem>_softmax.hdf5` beside the weights.
    Raises: OptionsError, also unless one model is given; WeightsError, DataError.
    """
    given = {"model": model, "save_dir": save_dir, "options_file": options_file}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        found = ", ".join(given) or "no model"
        raise OptionsError(f"given: {found}; expected one model, as load_scorer(model)")
    (one,) = given.values()
    found, vocab = load_language_model(one, vocab_file, weight_file, softmax_file)
    return Scorer(found, [vocab.id_to_word(i) for i in range(vocab.size)])


def score(
    sentences: Iterable[Sequence[str]], model: PathLike | None = None, **files: PathLike | None
) -> Iterator[Score]:
    """Yield the log-probabilities of sentences: see `Scorer.score`.

    Args:
        sentences: lists of words.
        model, files: see `load_scorer`.
    """
    return load_scorer(model, **files).score(sentences)


def substitutes(
    tokens: Sequence[str], position: int, n: int = 10, **files: PathLike
) -> Substitutes:
    """Return the likeliest words at a position: see `Scorer.substitutes`.

    `files` are those of `load_scorer`. Each call loads the model; to ask more than once, keep the
    `Scorer` that it returns.
    """
    return load_scorer(**files).substitutes(tokens, position, n)


def load_language_model(
    model: PathLike,
    vocab_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
) -> tuple[BiLM, Vocabulary]:
    """Load a language model with its softmax, and its vocabulary: see `load_scorer`.

    Raises: OptionsError, WeightsError, DataError.
    """
    options_file, weight_file = resolve(model, weight_file)
    if not is_run(weight_file):
        return _from_export(options_file, weight_file, softmax_file, vocab_file)
    if softmax_file is not None:
        raise OptionsError(f"{softmax_file}: {model} is a run, which has its softmax; leave it out")
    found = load_model(open_run(weight_file))
    return found, run_vocabulary(options_file.parent, found, vocab_file)


def _from_export(
    options_file: Path,
    weight_file: Path,
    softmax_file: PathLike | None,
    vocab_file: PathLike | None,
) -> tuple[BiLM, Vocabulary]:
    require_softmax(weight_file, "score sentences or replace words")
    softmax_file = Path(expanded(softmax_file) or softmax_beside(weight_file))
    if not softmax_file.is_file():
        raise WeightsError(
            f"{softmax_file}: no such file; a model needs its softmax to be asked, which "
            "bilm export --include_softmax writes"
        )
    options = read_options(options_file, weight_file)
    check_same_export(options, options_file, weight_file, softmax_file)
    softmax = SoftmaxFile(softmax_file)
    vocab = vocabulary_of_words(softmax.words, softmax_file, options)
    if vocab_file is not None:
        Vocabulary(vocab_file).require_words_of(vocab)
    weights.check_room(options, weight_file, softmax_file, n_rows=vocab.size)
    model = BiLM(options, n_tokens=vocab.size, softmax=True)
    model.build()
    weights.load_hdf5(model, weight_file, only=weights.is_bilm)
    softmax.assign(model)
    return model, vocab
