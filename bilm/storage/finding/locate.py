"""Finds the files of a model by two paths, a folder, an archive, a URL or a name."""

import difflib
import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePath

from bilm.errors import BilmError, WeightsError
from bilm.options.schema import read_object
from bilm.storage.finding import registry
from bilm.storage.finding.archive import check_archive, is_archive, open_archive, unpack
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

ARCHIVE_SUFFIXES = (".zip", ".tar", ".gz", ".tgz")
# Files at the fourth level identify models of other programs.
PLACES = ("*", "*/*", "*/*/*", "*/*/*/*")
PACKAGED = Path(__file__).resolve().parents[2] / "models"  # exports
MAX_FILES = 10_000  # files of a folder that are looked at, for each of `PLACES`


def packaged() -> dict[str, Path]:
    """Return the folders of the models in the package, by name."""
    return {path.name: path for path in sorted(PACKAGED.glob("[a-z0-9]*")) if path.is_dir()}


# --- from one name ---


def _local_paths(source: str) -> Sequence[Path]:
    """Return the local paths of options and weights, or of one folder or file, that a name or URL
    denotes. Raises: WeightsError for an unknown name."""
    if os.path.exists(source):  # also False for a name that is too long
        return [Path(source)]
    if source in packaged():
        return [packaged()[source]]
    downloaded = registry.local_files(source)
    if downloaded is not None:
        return downloaded
    if is_url(source):
        return [fetch(source, check_archive)]

    names = [*packaged(), *registry.MODELS]
    similar = difflib.get_close_matches(source, names, 1)
    listed = ", ".join([*names, "nlpl:NUMBER", "hf:OWNER/NAME[@REVISION]"])
    raise WeightsError(
        f"{source}: found neither a file or folder of this path nor a model of this name; "
        + (f"did you mean {similar[0]}? Names: {listed}" if similar else f"names: {listed}")
    )


def model_of(source: str) -> StoredModel:
    """Return the model of any format that a name denotes."""
    path, *weights = _local_paths(source)
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


def model_of_two(source: str, weights: str) -> StoredModel:
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
        model = model_of(str(weight_file))
        return type(model)(options, model.weight_file)
    format_ = next(format_ for format_ in formats() if format_.owns(weight_file))
    return format_(options, weight_file)
