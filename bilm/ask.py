"""A stored language model to ask: a run's folder or an export with its softmax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bilm.errors import OptionsError, WeightsError
from bilm.language_model import BiLM
from bilm.scores import Score, Substitutes
from bilm.scoring import Scorer
from bilm.storage import names as weights
from bilm.storage.checkpoint import load_run, run_vocabulary
from bilm.storage.export_id import check_same_export
from bilm.storage.formats.known import read_options, require_softmax
from bilm.storage.hdf5 import strings
from bilm.storage.locate import resolve


def load_scorer(
    save_dir: str | Path | None = None,
    vocab_file: str | Path | None = None,
    options_file: str | Path | None = None,
    weight_file: str | Path | None = None,
    softmax_file: str | Path | None = None,
) -> Scorer:
    """Load a language model to ask, from a run's folder or from an export with its softmax.

    Args:
        save_dir: a folder with `options.json` and checkpoints of ours or of the TensorFlow 1
            reference.
        vocab_file: the run's vocabulary; None for `vocab.txt` in the folder.
        options_file, weight_file: an export; see `ElmoEmbedder`.
        softmax_file: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`, as `dump_weights` writes
            it; None for `<stem>_softmax.hdf5` beside the weights.
    Raises: OptionsError, also unless one of the two is given; WeightsError, DataError.
    """
    run, export = (save_dir, vocab_file), (options_file, weight_file, softmax_file)
    if save_dir is not None and export == (None, None, None):
        return _from_run(Path(save_dir), vocab_file)
    if options_file is not None and run == (None, None):
        return _from_export(options_file, weight_file, softmax_file)
    given = dict(zip(("save_dir", "vocab_file"), run, strict=True))
    given |= dict(zip(("options_file", "weight_file", "softmax_file"), export, strict=True))
    names = ", ".join(name for name, value in given.items() if value is not None)
    raise OptionsError(
        f"given: {names or 'no model'}; expected save_dir with vocab_file, for a run, or "
        "options_file with weight_file and softmax_file, for an export"
    )


def score(
    sentences: Iterable[Sequence[str]],
    save_dir: str | Path | None = None,
    **files: str | Path | None,
) -> Iterator[Score]:
    """Yield the log-probabilities of sentences: see `Scorer.score`.

    Args:
        sentences: lists of words.
        save_dir, files: the model; see `load_scorer`.
    """
    return load_scorer(save_dir, **files).score(sentences)


def substitutes(
    tokens: Sequence[str], position: int, n: int = 10, **files: str | Path
) -> Substitutes:
    """Return the likeliest words at a position: see `Scorer.substitutes`.

    `files` are those of `load_scorer`. Each call loads the model; to ask more than once, keep the
    `Scorer` that it returns.
    """
    return load_scorer(**files).substitutes(tokens, position, n)


def softmax_beside(weight_file: Path) -> Path:
    """Return where the softmax of an export is, if it has one."""
    return weight_file.with_name(f"{weight_file.stem}_softmax.hdf5")


def _from_run(save_dir: Path, vocab_file: str | Path | None) -> Scorer:
    model = load_run(save_dir)
    vocab = run_vocabulary(save_dir, model, vocab_file)
    return Scorer(model, [vocab.id_to_word(i) for i in range(vocab.size)])


def _from_export(options_file: Any, weight_file: Any, softmax_file: Any) -> Scorer:
    options_file, weight_file = resolve(options_file, weight_file)
    require_softmax(weight_file, "score sentences or replace words")
    softmax_file = Path(softmax_file or softmax_beside(weight_file))
    if not softmax_file.is_file():
        raise WeightsError(
            f"{softmax_file}: no such file; a model needs its softmax to be asked, which "
            "bilm export --include_softmax writes"
        )
    options = read_options(options_file, weight_file)
    check_same_export(options, options_file, weight_file, softmax_file)
    with weights.open_hdf5(softmax_file) as file:
        words = strings(file, "vocabulary")
    weights.check_room(options, weight_file, softmax_file, n_rows=len(words))
    model = BiLM(options, n_tokens=len(words), softmax=True)
    model.build()
    weights.load_hdf5(model, weight_file, only=weights.is_bilm)
    own = weights.stored_variables(model)  # without the kernel where it is the word table
    weights.load_hdf5(model, softmax_file, only=lambda n: not weights.is_bilm(n) and n in own)
    return Scorer(model, words)
