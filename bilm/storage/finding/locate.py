"""Finds the files of a model by two paths, a folder, an archive, a URL or a name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path, PurePath

from bilm.errors import WeightsError
from bilm.options.schema import read_object
from bilm.storage.finding.archive import check_archive, is_archive, open_archive, unpack
from bilm.storage.finding.cache import cached, filling, read_record, write_record
from bilm.storage.finding.download import fetch
from bilm.storage.formats.base import Format
from bilm.storage.formats.bilm_tf import BilmTf, options_names
from bilm.storage.formats.known import find, model_at, unpacked
from bilm.storage.hdf5 import HDF5Tensors
from bilm.support.files import version_of
from bilm.support.model_files import CONFIG, HDF5_SUFFIXES, OPTIONS, WEIGHTS
from bilm.support.urls import is_url

ARCHIVE_SUFFIXES = (".zip", ".tar", ".gz", ".tgz")
# Files at the fourth level identify models of other programs.
PLACES = ("*", "*/*", "*/*/*", "*/*/*/*")
PACKAGED = Path(__file__).resolve().parents[2] / "models"  # exports
MAX_FILES = 10_000  # files of a folder that are looked at, for each of `PLACES`


def locate(source: str | Path, weights: str | Path | None = None) -> Format:
    """Find the files of a model; download or unpack them if they are not in the cache.

    An existing path takes precedence over a name. The model is at the top level of a folder or
    archive, or in a single folder inside it, at most three folders deep. Of bilm-tf, the weights
    are `model.hdf5`, or else `weights.hdf5`, `*_weights.hdf5`, or the one HDF5 file except
    `*_softmax.hdf5`; their options are `<stem>_options.json`, or else `options.json`,
    `options262.json`, or the one file `*options.json`.

    Args:
        source: a folder, an archive or its URL, or the name of a packaged model or of one of
            `bilm.storage.finding.registry`; with `weights`, the options, their URL or a folder.
        weights: the HDF5 file, its name in that folder, or its URL; or the index file of a
            checkpoint; or a folder, archive or `weights.th` of AllenNLP.
    Raises: WeightsError if the model does not exist or cannot be downloaded, or if a name is empty.
    """
    if "" in (source, weights):  # an empty path would be the current folder
        raise WeightsError("found an empty string; expected the path, URL or name of a model")
    source = os.path.expanduser(source)
    if weights is not None:
        return _with_options(source, os.path.expanduser(weights))
    if (folder := packaged().get(source)) and not os.path.exists(source):
        return BilmTf(folder / OPTIONS, folder / WEIGHTS)
    return _located(source)


def _located(source: str) -> Format:
    """Find the files of a model of any format by one path, URL or published name."""
    from bilm.storage.finding import registry
    from bilm.storage.formats.allennlp import AllenNlp

    path = Path(source)
    if not os.path.exists(path):  # also False for a name that is too long
        found = registry.looked_up(source) or [_local(source, check_archive)]
        if len(found) == 2:
            return model_at(*found)
        path = found[0]
    if not os.path.exists(path):
        raise WeightsError(
            f"{source}: found neither a file or folder of this path nor a model of this name; "
            f"{_near(source, registry.MODELS)}"
        )
    if path.is_dir():
        format_, chosen = find(_files_in(path), path)
        options_file, weight_file, *_ = [path / place for place in chosen.values()] * 2
        return format_.found(options_file, weight_file)
    if AllenNlp.owns(path):
        return AllenNlp(path, path)
    if is_archive(path):
        model, beside = _unpacked(path), path.with_name(OPTIONS)
        has_none = isinstance(model, AllenNlp) and model.options_source is None
        return AllenNlp(beside, model.weight_file) if has_none and beside.is_file() else model
    weights = source if path.suffix in HDF5_SUFFIXES else "weights.hdf5"
    raise WeightsError(
        f"{source}: neither a folder nor a ZIP, tar or tar.gz archive; expected one, or an options "
        f"file and a weight file, as in --model options.json --weights {weights}"
    )


def packaged() -> dict[str, Path]:
    """Return the folders of the models in the package, by name."""
    return {path.name: path for path in sorted(PACKAGED.glob("[a-z0-9]*")) if path.is_dir()}


def _near(name: str, published: Iterable[str]) -> str:
    """Return a hint for an error message: the most similar name, if any, and all names."""
    names = [*packaged(), *published, "nlpl:NUMBER", "hf:OWNER/NAME[@REVISION]"]
    close, known = difflib.get_close_matches(name, names[:-2], 1), ", ".join(names)
    return f"did you mean {close[0]}? Names: {known}" if close else f"names: {known}"


def _with_options(source: str, weights: str) -> Format:
    """Return the model of an options file, or the folder that contains it, and of a weight file, or
    the folder or archive that contains it."""
    options, weight_file = _local(source, read_object), _local(weights, HDF5Tensors)
    if options.is_dir():
        inside = options / weight_file
        weight_file = inside if inside.exists() or not weight_file.exists() else weight_file
        candidates = [options / name for name in (*options_names(weight_file), CONFIG)]
        options = next((path for path in candidates if path.is_file()), options)
    elif weight_file.is_dir() or weight_file.suffix in ARCHIVE_SUFFIXES:
        found = _located(str(weight_file))
        return type(found)(options, found.weight_file)
    return model_at(options, weight_file)


def _local(source: str, check: Callable[[Path], object]) -> Path:
    """Return a path unchanged, or the local copy of a URL. Raises: WeightsError."""
    return fetch(source, check) if is_url(source) else Path(source)


def _files_in(folder: Path) -> list[PurePath]:
    """Return the files of a folder that a model may consist of, relative to it."""
    listed = (p for pattern in PLACES for p in islice(folder.glob(pattern), MAX_FILES))
    return list(dict.fromkeys(p.relative_to(folder) for p in listed if p.is_file()))


def _unpacked(archive: Path) -> Format:
    """Return the model of an archive; unpack it into the cache if the cache does not contain it."""
    folder = cached("\0".join(map(str, (archive.resolve(), *version_of(archive)))))
    if unpacked(folder) is None:
        with filling(folder), open_archive(archive) as members:
            _, chosen = find(list(members), archive)
            source = read_record(archive.parent).get("source", str(archive.resolve()))
            write_record(folder, source, archive=str(archive.resolve()))
            unpack(members, chosen, folder)
    if (found := unpacked(folder)) is None:
        raise WeightsError(f"{archive}: contains a checkpoint without its .index file")
    return found
