"""`bilm info`: what a stored model consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from cloup.constraints import constraint, require_one

from bilm.commands import options as opt
from bilm.commands.main import command, start_tensorflow
from bilm.commands.output import for_people, print_table, show
from bilm.errors import BilmError, WeightsError
from bilm.support.files import sha256_of
from bilm.support.model_files import CARD, HISTORY, META, VOCABULARY
from bilm.support.urls import masked
from bilm.tensors import sizes_of
from bilm.training.history import COLUMNS, read_history

if TYPE_CHECKING:
    from bilm.storage.stored_model import StoredModel

LISTED = ("verdict", "files", "problems", "mixes")  # keys with a line per item


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
    if stored.needs_tensorflow:
        start_tensorflow()
    description = describe(stored)
    text = "\n".join(_lines(description))

    # The last rows of a run's history with a held-out perplexity, or else its last rows.
    rows = [] if stored.checkpoint is None else read_history(stored.folder / HISTORY)
    evaluated = [row for row in rows if row["heldout_perplexity"]]
    rows = (evaluated or rows)[-10:]

    show({**description, "evaluations": rows}, text, json, indent=2)
    if rows and not json:
        columns = [(name.replace("_", " "), float) for name in COLUMNS]
        print_table(columns, map(_values, rows), "Last evaluations")


def describe(model: StoredModel) -> dict[str, Any]:
    """Return a description of a model with the keys of `bilm info --json`. Raises: BilmError."""
    from bilm.scoring.verdict import Measurement
    from bilm.storage.finding.cache import read_record

    # Damaged parts are missing in the description and listed as problems.
    problems = find_problems(model)
    n_classes, mixes = 0, []
    with suppress(WeightsError):
        n_classes = model.softmax.n_words if model.softmax else 0
    with suppress(WeightsError):
        mixes = [mix._asdict() | {"weights": mix.weights.tolist()} for mix in model.mixes]

    measured = Measurement.of(model)
    verdict = measured and measured.verdict
    n_words = model.tensors.n_words if model.options.reads_words else n_classes or None
    types = {tensor.dtype.name for tensor in model.tensors.values()}
    archive = read_record(model.folder.parent).get("archive")  # that it was unpacked from
    card = model.folder / CARD
    return {
        "model": str(model),
        "format": model.description + ("" if archive is None else " in an archive"),
        **sizes_of(model.options, n_words, n_classes),
        "stored_as": sorted(types),
        "expects": model.expects,
        "mixes": mixes,
        "verdict": verdict.lines if verdict else [],
        "card": str(card) if card.is_file() else None,
        "files": _files_of(model, archive),
        "use": _use(model),
        "problems": problems,
    }


def _files_of(model: StoredModel, archive: str | None) -> list[dict[str, Any]]:
    """Return path, size and SHA-256 of each file of a model that exists."""
    paths = [*model.own_files, model.folder / META]  # META: of the NLPL repository
    if archive is not None:
        paths.insert(0, Path(archive))

    files = []
    for path in dict.fromkeys(paths):
        if path.is_file():
            size = path.stat().st_size
            files.append({"path": str(path), "bytes": size, "sha256": sha256_of(path)})
    return files


def _use(model: StoredModel) -> str:
    arguments = [repr(masked(argument)) for argument in model.arguments]
    if model.options.reads_words:
        stored = model.vocabulary_path
        vocab_file = str(stored if stored.exists() else VOCABULARY)
        arguments.append(f"vocab_file={vocab_file!r}")
    return f"embedder = bilm.ElmoEmbedder({', '.join(arguments)})"


def find_problems(model: StoredModel) -> list[str]:
    """Return messages about files that are damaged, missing or wrong, but not needed to open it."""
    problems = [] if model.checkpoint is None else [*model.checkpoint.skipped]
    for read in (_read_weights, _read_vocabulary, attrgetter("mixes")):
        try:
            read(model)
        except BilmError as error:
            problems.append(str(error))
    return problems


def _read_weights(model: StoredModel) -> None:
    for _ in model.weights(has_softmax=model.softmax is not None).values():
        pass


def _read_vocabulary(model: StoredModel) -> None:
    """Read the stored words. Raises: DataError if they are missing or differ in number."""
    with suppress(WeightsError):  # reported by `_read_weights`
        if model.n_words is not None:
            model.vocabulary()


def _values(row: Mapping[str, str]) -> list[float | str]:
    """Return the values of a row of the history: measured numbers as float, which are rounded."""
    step, *measured = row.values()
    return [step, *(float(text) if text else text for text in measured)]


def _lines(description: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a description: one for each key, and for each item of `LISTED`."""
    for name, value in description.items():
        title = name.replace("_", " ")
        for item in value if name in LISTED else [value]:
            text = "not stored" if item is None else _text(item)
            yield f"{title:<19} {text}"
            title = ""


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return " ".join(for_people(value).split())
