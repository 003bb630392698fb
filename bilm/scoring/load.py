"""Loading a `Scorer`: from a run, or from an export with its softmax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bilm.data.vocabulary import Vocabulary
from bilm.errors import OptionsError
from bilm.language_model import BiLM
from bilm.scoring.scorer import Score, Scorer, Substitutes
from bilm.storage.stored_model import StoredModel, open_model

PathLike = str | Path  # of a file or folder


def load_scorer(
    model: PathLike | StoredModel | None = None,
    vocab_file: PathLike | None = None,
    options_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
    save_dir: PathLike | None = None,
) -> Scorer:
    """Load a language model that scores sentences and predicts words.

    Args:
        model: a run or an export with its softmax, see `bilm.storage.stored_model.open_model`.
            `save_dir` and `options_file` are other names of this argument.
        vocab_file: the vocabulary of a run; None for `vocab.txt` in its folder. An export has its
            own words.
        weight_file: the HDF5 weights, where `model` is an options file.
        softmax_file: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`, as `dump_weights` writes
            it; None for `<stem>_softmax.hdf5` beside the weights.
    Raises: OptionsError, also unless one model is given; WeightsError, DataError.
    """
    names = {"model": model, "save_dir": save_dir, "options_file": options_file}
    given = {name: value for name, value in names.items() if value is not None}
    if len(given) != 1:
        found = ", ".join(given) or "no model"
        raise OptionsError(f"given: {found}; expected one model, as load_scorer(model)")
    (one,) = given.values()
    found, vocab = load_language_model(one, vocab_file, weight_file, softmax_file)
    return Scorer(found, [vocab.id_to_word(i) for i in range(vocab.size)])


def score(
    sentences: Iterable[Sequence[str]],
    model: PathLike | StoredModel | None = None,
    **files: PathLike | None,
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

    `files` are the arguments of `load_scorer`. Each call loads the model; for several calls, use
    the `Scorer` that `load_scorer` returns.
    """
    return load_scorer(**files).substitutes(tokens, position, n)


def load_language_model(
    model: PathLike | StoredModel,
    vocab_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
) -> tuple[BiLM, Vocabulary]:
    """Return a language model with its softmax, and its vocabulary: see `load_scorer`.

    Raises: OptionsError, WeightsError, DataError.
    """
    stored = open_model(model, weight_file, softmax_file)
    return stored.build_language_model(), stored.vocabulary(vocab_file)
