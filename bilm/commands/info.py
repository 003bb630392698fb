"""`bilm info`: what a stored model consists of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from cloup.constraints import constraint, require_one

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import Column, as_json, print_table, printable
from bilm.errors import BilmError, WeightsError
from bilm.options.model_options import ModelOptions
from bilm.support.files import sha256_of
from bilm.support.model_files import CARD, META, VOCABULARY
from bilm.support.urls import masked
from bilm.tensors import n_parameters, softmax
from bilm.training.history import COLUMNS, read_history

if TYPE_CHECKING:
    from bilm.storage.stored_model import StoredModel

HISTORY_ROWS = 10
FLOAT = 4  # bytes


@command(notes=[opt.MODEL_FORMS])
@click.argument("model", required=False, type=opt.FILE_OR_URL)
@opt.group(
    "Model",
    opt.option("--model", opt.FILE_OR_URL, "The model, as an option instead of an argument.",
               dest="named_model", metavar="MODEL"),
    opt.weights_option,
)  # fmt: skip
@opt.json_option
@constraint(require_one, ["model", "named_model"])
def info(model: str | None, named_model: str | None, weights: str | None, json: bool) -> None:
    """Describe a stored model.

    The description contains the format, sizes, vocabulary, files with SHA-256, memory, and a line
    of Python that loads the model. Damaged or missing files are listed as problems. For a run, the
    last evaluations are also shown.

    Examples:
      bilm info run
      bilm info elmo.zip --json
      bilm info nlpl:144
      bilm info options.json --weights weights.hdf5
    """
    from bilm.storage.stored_model import open_model

    stored = open_model(model or named_model or "", weights)
    found = describe(stored)
    evaluations = []
    if stored.checkpoint:
        from bilm.training.run_folder import RunFolder  # requires TensorFlow

        evaluations = _evaluations(RunFolder(stored.folder).history_file)
    if json:
        print(as_json({**found, "evaluations": evaluations}, indent=2))
        return
    print(printable("\n".join(_lines(found))))
    if evaluations:
        columns = [Column(name.replace("_", " "), float) for name in COLUMNS]
        rows = ([_value(*cell) for cell in row.items()] for row in evaluations)
        print_table(columns, rows, "Last evaluations")


def describe(model: StoredModel) -> dict[str, Any]:
    """Return a description of a model with the keys of `bilm info --json`.

    Raises: OptionsError, WeightsError, DataError.
    """
    from bilm.storage import names
    from bilm.storage.finding.cache import read_record

    options, files = model.options, list(model.files)
    softmax, mixes, problems = None, [], find_problems(model)
    with suppress(WeightsError):  # one of the problems
        softmax = model.softmax
    with suppress(WeightsError):
        mixes = model.mixes
    vocabulary, card = model.folder / VOCABULARY, model.folder / CARD
    files.append(model.folder / META)  # of the NLPL repository
    if model.checkpoint is not None:
        files.insert(1, vocabulary)
    elif softmax is not None:
        files.append(softmax.tensors.paths[0])
    description = model.format.description
    if (archive := read_record(model.folder.parent).get("archive")) is not None:
        description += " in an archive"
        files.insert(0, Path(archive))
    n_classes = softmax.n_words if softmax else 0
    n_words = names.n_words(model.tensors) if options.reads_words else n_classes or None
    use = [repr(masked(given)) for given in model.given]
    if options.reads_words:
        use.append(f"vocab_file={str(vocabulary if vocabulary.exists() else VOCABULARY)!r}")
    with model.tensors.opened() as read:
        types = {read(name).dtype.name for name in model.tensors.names}
    return {
        "model": str(model),
        "format": description,
        **_sizes(options, n_words, n_classes),
        "stored_as": sorted(types),
        "expects": model.format.expects,
        "mixes": [mix._asdict() | {"weights": list(map(float, mix.weights))} for mix in mixes],
        "card": str(card) if card.is_file() else None,
        "files": [
            {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for path in dict.fromkeys(files)
            if path.is_file()
        ],
        "use": f"embedder = bilm.ElmoEmbedder({', '.join(use)})",
        "problems": problems,
    }


def find_problems(model: StoredModel) -> list[str]:
    """Return messages about defects of the files that do not prevent the model from being opened:
    damaged checkpoints that were skipped, a softmax of another export, options that do not fit the
    weights, and a vocabulary that is missing or does not fit the softmax."""
    found = [] if model.checkpoint is None else [*model.checkpoint.skipped]
    for check in (_check_weights, _check_vocabulary, attrgetter("mixes")):
        try:
            check(model)
        except BilmError as error:
            found.append(str(error))
    return found


def _check_weights(model: StoredModel) -> None:
    """Load the weights and the softmax. Raises: WeightsError."""
    from bilm.language_model import BiLM

    built = BiLM(model.options, model.n_words, softmax=model.softmax is not None)
    built.build()
    model.assign(built)


def _check_vocabulary(model: StoredModel) -> None:
    """Check the stored words. Raises: DataError if they are missing or differ in number."""
    with suppress(WeightsError):  # reported by `_check_weights`
        if model.n_words is not None:
            model.vocabulary()


def _sizes(options: ModelOptions, n_words: int | None, n_classes: int) -> dict[str, Any]:
    """Return the inputs, sizes and limits of a model.

    Args:
        n_words: size of its vocabulary, None if no file contains it.
        n_classes: number of words that its softmax predicts, 0 without one.
    """
    lstm, cnn, lexicons = options.lstm, options.char_cnn, options.lexicon_encoder
    filtering = cnn or (lexicons if lexicons and lexicons.characters else None)
    reads = "characters" if cnn else "words"
    if lexicons is not None:
        tables = {"words": lexicons.words, "characters": lexicons.characters}
        reads = " and ".join(name for name, table in tables.items() if table) + " of lexicons"
    n_weights = n_parameters(options, n_words)
    of_softmax = softmax(n_classes, lstm.projection_dim, options.share_embedding_softmax)
    filters = (filtering.filters if filtering else None) or ()
    return {
        "reads": reads,
        "directions": list(options.directions),
        "lstm_layers": lstm.n_layers,
        "lstm_dim": lstm.dim,
        "projection_dim": lstm.projection_dim,
        "vector_dim": len(options.directions) * lstm.projection_dim,
        "character_filters": sum(n for _, n in filters),
        "highway_layers": filtering.n_highway if filtering else 0,
        "parameters": n_weights,
        "softmax_parameters": sum(spec.size for spec in of_softmax),
        "vocabulary": n_words,
        "max_word_bytes": cnn.max_characters_per_token - 2 if cnn else None,
        "max_word_characters": lexicons.max_characters_per_token - 2 if lexicons else None,
        "embedder_bytes": FLOAT * n_weights,
    }


def _evaluations(path: Path) -> list[dict[str, str]]:
    """Return the last rows of a run's history with a held-out perplexity, or else its last rows."""
    rows = read_history(path)
    return ([row for row in rows if row["heldout_perplexity"]] or rows)[-HISTORY_ROWS:]


def _value(column: str, text: str) -> float | str:
    """Return a value of the history; measured numbers as float, which `print_table` rounds."""
    return text if not text or column == "step" else float(text)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a description: one for each key, file, problem or mix."""
    for name, value in found.items():
        several = value if name in ("files", "problems", "mixes") else [value]
        for item in several:
            text = "not stored" if item is None else _text(item)
            yield f"{name.replace('_', ' '):<19} {text}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"
    return " ".join(str(value).split())
