"""`open_model`, which finds the files of a stored biLM by two paths, a folder, an archive, a URL or
a name, and opens it as a `StoredModel`."""

import os
import shutil
from itertools import islice
from pathlib import Path, PurePath

from bilm.errors import BilmError, OptionsError, WeightsError
from bilm.options.schema import read_object
from bilm.storage.finding import registry
from bilm.storage.finding.archive import is_archive, open_archive, unpack
from bilm.storage.finding.cache import cached, filled, read_record
from bilm.storage.finding.download import fetch
from bilm.storage.formats import find, formats
from bilm.storage.formats.allennlp import AllenNlp
from bilm.storage.formats.base import StoredModel
from bilm.storage.formats.bilm_tf import BilmTf, options_names
from bilm.storage.stored_tensors import hdf5_tensors
from bilm.support.files import new_folder, unusable, version_of
from bilm.support.model_files import CONFIG, HDF5_SUFFIXES, OPTIONS, WEIGHTS
from bilm.support.urls import is_url

__all__ = ["StoredModel", "open_model"]

ARCHIVE_SUFFIXES = (".zip", ".tar", ".gz", ".tgz")
# Files at the fourth level identify models of other programs.
PLACES = ("*", "*/*", "*/*/*", "*/*/*/*")
MAX_FILES = 10_000  # files of a folder that are looked at, for each of `PLACES`


def open_model(
    source: str | Path | StoredModel,
    weights: str | Path | None = None,
    softmax: str | Path | None = None,
) -> StoredModel:
    """Open a stored model; download or unpack its files if they are not in the cache.

    An existing path takes precedence over a name. The model is at the top level of a folder or
    archive, or in a single folder inside it, at most three folders deep.

    Args:
        source: a folder, an archive or its URL, or a name of `bilm.storage.finding.registry`; with
            `weights`, the options, their URL or a folder. A `StoredModel` is returned unchanged.
        weights: the HDF5 file, its name in that folder, or its URL; or the index file of a
            checkpoint; or a folder, archive or `weights.th` of AllenNLP.
        softmax: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`; None for
            `<stem>_softmax.hdf5` beside the weights of an export.
    Raises: WeightsError if the model does not exist, cannot be downloaded, or has no name;
        OptionsError if `softmax` is given for a model that does not use one, or if `weights` or
        `softmax` is given with a `StoredModel`.
    """
    if isinstance(source, StoredModel):
        if weights is not None or softmax is not None:
            raise OptionsError(
                f"{source}: is already open; pass weights and softmax to the call of open_model "
                "that opens it"
            )
        return source
    arguments = [os.fspath(path) for path in (source, weights) if path is not None]
    if "" in arguments:  # an empty path would be the current folder
        raise WeightsError("found an empty string; expected the path, URL or name of a model")
    paths = list(map(os.path.expanduser, arguments))
    model = _model_of(*paths) if weights is None else _model_of_two(*paths)
    model.arguments = arguments
    if softmax is not None:
        model.use_softmax(Path(softmax).expanduser())
    return model


# --- from one name ---


def _model_of(source: str) -> StoredModel:
    """Return the model of any format that a name denotes."""
    is_path = os.path.exists(source)  # also False for a name that is too long
    path, *weights = [Path(source)] if is_path else registry.local_files(source)
    if weights:
        return BilmTf(path, weights[0])
    if path.is_dir():
        return _in_folder(path)
    if AllenNlp.owns(path):
        return AllenNlp(path, path)
    if is_archive(path):
        return _in_archive(path)
    example = source if path.suffix in HDF5_SUFFIXES else WEIGHTS
    problem = (
        "neither a folder nor a ZIP, tar or tar.gz archive; expected one, or an options file and a "
        f"weight file, as in --model options.json --weights {example}"
    )
    raise WeightsError(unusable(path, problem))


def _in_folder(folder: Path) -> StoredModel:
    listed = (path for pattern in PLACES for path in islice(folder.glob(pattern), MAX_FILES))
    paths: list[PurePath] = [path.relative_to(folder) for path in listed if path.is_file()]
    format_, (options, weights, *_) = find(paths, folder)
    return format_(folder / options, folder / weights)


def _in_archive(archive: Path) -> StoredModel:
    """Return the model in an archive; unpack it into the cache if the cache does not contain it."""
    entry = cached("\0".join(map(str, (archive.resolve(), *version_of(archive)))))
    # The archive may be a download, which has a record with the requested name.
    path = str(archive.resolve())
    source = read_record(archive.parent).get("source", path)

    def fill(folder: Path) -> dict[str, str | None]:
        try:
            with open_archive(archive) as members, new_folder(folder) as unfinished:
                _, chosen = find(list(members), archive)
                chosen_members = {place: members[place] for place in chosen if place in members}
                unpack(chosen_members, chosen[0].parent, unfinished)
                _check(unfinished, archive)
        except BilmError:
            if source != path:  # a download, whose address may have another file later
                shutil.rmtree(archive.parent, ignore_errors=True)
            raise
        return {"archive": path}

    model = _in_folder(filled(entry / "model", source, fill))

    # AllenNLP's options may be beside the archive.
    options = archive.with_name(OPTIONS)
    if isinstance(model, AllenNlp) and model.options_source is None and options.is_file():
        return AllenNlp(options, model.weight_file)
    return model


def _check(folder: Path, archive: Path) -> None:
    """Open the model in a folder that an archive was unpacked to, unless TensorFlow reads it.
    Raises: BilmError, which names the archive, if it cannot be used."""
    try:
        model = _in_folder(folder)
        if not model.needs_tensorflow:
            _ = model.tensors
            if model.options_file != model.weight_file:
                _ = model.options
    except BilmError as error:
        raise type(error)(str(error).replace(f"{folder}{os.sep}", f"{archive}: ")) from error


# --- from two names ---


def _model_of_two(source: str, weights: str) -> StoredModel:
    """Return the model of two files, or of folders or an archive that contain them."""
    options = fetch(source, read_object) if is_url(source) else Path(source)
    weight_file = fetch(weights, hdf5_tensors) if is_url(weights) else Path(weights)
    if options.is_dir():
        inside = options / weight_file
        if inside.exists() or not weight_file.exists():
            weight_file = inside
        candidates = [options / name for name in (*options_names(weight_file), CONFIG)]
        options = next((path for path in candidates if path.is_file()), options)
    elif weight_file.is_dir() or weight_file.suffix in ARCHIVE_SUFFIXES:
        model = _model_of(str(weight_file))
        return type(model)(options, model.weight_file)
    format_ = next(format_ for format_ in formats() if format_.owns(weight_file))
    return format_(options, weight_file)
