"""Finds the files of a model by two paths, a folder, an archive, a URL or a name."""

from __future__ import annotations

import hashlib
import os
from itertools import islice
from pathlib import Path, PurePath

from bilm.errors import WeightsError
from bilm.storage.finding import download, registry
from bilm.storage.finding.archive import MAX_MEMBERS, is_archive, open_archive
from bilm.storage.finding.cache import alone, cached, note_use, read_record, write_record
from bilm.storage.finding.download import Kind, fetch
from bilm.storage.finding.object_folder import fetch_folder
from bilm.storage.formats.base import Format
from bilm.storage.formats.bilm_tf import options_names
from bilm.storage.formats.foreign import what_it_is
from bilm.storage.formats.known import FORMATS, find, model_at, narrowed, unpacked
from bilm.support.files import version_of
from bilm.support.model_files import CONFIG
from bilm.support.remote import is_file
from bilm.support.urls import WEB, is_url, scheme_of

ARCHIVE_SUFFIXES = (".zip", ".tar", ".gz", ".tgz")
# Files at the fourth level identify models of other programs.
PLACES = ("*", "*/*", "*/*/*", "*/*/*/*", "*/saves/epochs/*/*")
TAIL_BYTES = 1 << 16  # contains the directory of a ZIP archive or the checksum of a tar.gz


def locate(source: str | Path, weights: str | Path | None = None) -> Format:
    """Find the files of a model; download or unpack them if they are not in the cache.

    An existing path takes precedence over a name. The model is at the top level of a folder or
    archive, or in a single folder inside it, at most three folders deep. A folder with checkpoints
    is always read as a run, with the options in `options.json`. Of checkpoints in folders
    `epochs/<number>`, with the options two levels above them, the last epoch is read. An
    ELMoForManyLangs model has `config.json` and `encoder.pkl`. In other folders the weights are
    `model.hdf5`, or else `weights.hdf5`, or else the one file `*_weights.hdf5`, or else the one
    HDF5 file except `*_softmax.hdf5`; their options are `<stem>_options.json`, or else
    `options.json`, or else `options262.json`, or else the one file `*options.json`.

    Args:
        source: a folder, an archive (ZIP, tar, tar.gz), the URL of an archive, the URL of a folder
            in an object store, or a name of `bilm.storage.finding.registry`; with `weights`, the
            options, their URL or a folder.
        weights: the HDF5 file, its name in that folder, or its URL; or the index file of a
            checkpoint; or a folder, archive or `weights.th` of AllenNLP.
    A path may be followed by `#` and the name of one of several models in it: a folder, a weight
    file with or without `_weights.hdf5`, or a module in a file of AllenNLP.
    Raises: WeightsError if the model does not exist or cannot be downloaded, or if a name is empty.
    """
    if "" in (source, weights):  # an empty path would be the current folder
        raise WeightsError("found an empty string; expected the path, URL or name of a model")
    named = source if weights is None else weights
    path, mark, part = os.path.expanduser(named).rpartition("#")
    if mark and not os.path.exists(os.path.expanduser(named)) and os.path.exists(path):
        if weights is None:
            return _located(path, part=part)
        found = _located(source, path)
        found.choose(part)
        return found
    return _located(source, weights)


def _located(
    source: str | Path, weights: str | Path | None = None, part: str | None = None
) -> Format:
    """Find the files of a model: see `locate`; `part` is the name after `#`."""
    if weights is not None:
        return _at(_local(source, download.OPTIONS), _local(weights, download.WEIGHTS))
    if is_url(source) and scheme_of(source) not in WEB and not is_file(source):
        return fetch_folder(source)
    path = Path(os.path.expanduser(source))
    if not os.path.exists(path):  # also False for a name that is too long
        found = registry.looked_up(str(source)) or (_local(source, download.ARCHIVE),)
        if len(found) == 2:
            return model_at(*found)
        path = found[0]
    if not os.path.exists(path):
        raise WeightsError(
            f"{source}: found neither a file or folder of this path nor a model of this name; "
            f"{registry.near(str(source))}"
        )
    if path.is_dir():
        base, files, part = narrowed(_files_in(path), part)
        format_, chosen = find(files, path / base)
        options_file, weight_file, *_ = [path / base / place for place in chosen.values()] * 2
        return _choosing(format_.found(options_file, weight_file), part)
    whole = next((format_ for format_ in FORMATS if format_.is_model(path)), None)
    if whole is not None:
        return _choosing(whole(path, path), part)
    if is_archive(path):
        return _unpacked(path, part)
    foreign = what_it_is([PurePath(path.name)])
    what = foreign or (
        "neither a folder nor a ZIP, tar or tar.gz archive; if it is an options file, also pass "
        "the weight file"
    )
    raise WeightsError(f"{source}: {what}")


def _choosing(found: Format, part: str | None) -> Format:
    """Return a model, after choosing one of those in its files if `part` names one."""
    if part is not None:
        found.choose(part)
    return found


def _at(source: Path, weight_file: Path) -> Format:
    """Return the model of an options file and a weight file; `source` may also be the folder
    that contains both."""
    if not source.is_dir():
        found = _with_separate_options(weight_file)
        if found is not None:
            return type(found)(source, found.weight_file)
        return model_at(source, weight_file)
    inside = source / weight_file
    weight_file = inside if inside.exists() or not weight_file.exists() else weight_file
    candidates = [source / name for name in (*options_names(weight_file), CONFIG)]
    return model_at(next((path for path in candidates if path.is_file()), source), weight_file)


def _with_separate_options(path: Path) -> Format | None:
    """Return the model of a folder or archive if options can be given for it, or None."""
    if path.is_dir():
        files = _files_in(path)
        for format_ in (format_ for format_ in FORMATS if format_.separate_options):
            if chosen := format_.find(files, path):
                first, second, *_ = [*chosen.values()] * 2
                return format_.found(path / first, path / second)
        return None
    if any(format_.owns(path) and format_.is_model(path) for format_ in FORMATS):
        return None
    found = _unpacked(path) if path.suffix in ARCHIVE_SUFFIXES and is_archive(path) else None
    return found if found is not None and found.separate_options else None


def _local(source: str | Path, kind: Kind) -> Path:
    """Return a path unchanged, or the local copy of a URL. Raises: WeightsError."""
    return fetch(source, kind) if is_url(source) else Path(os.path.expanduser(source))


def _files_in(folder: Path) -> list[PurePath]:
    """Return the files of a folder that a model may consist of, relative to it."""
    listed = (p for pattern in PLACES for p in islice(folder.glob(pattern), MAX_MEMBERS))
    found = dict.fromkeys(p.relative_to(folder) for p in listed if p.is_file())
    return list(found)


def _unpacked(archive: Path, part: str | None = None) -> Format:
    """Return the model of an archive; unpack it into the cache if the cache does not contain it.

    Args:
        archive: the archive.
        part: name of one of several models in it.
    """
    is_narrowed = False
    if part is not None:
        with open_archive(archive) as opened:
            is_narrowed = narrowed(list(opened.members), part).part is None
    key = _fingerprint(archive)
    folder = cached(f"{key}\0{part}" if is_narrowed else key)
    found = unpacked(folder)
    if found is None:
        with alone(folder):
            found = unpacked(folder)  # another process may have unpacked it in the meantime
            if found is None:
                _unpack(archive, folder, part if is_narrowed else None)
                found = unpacked(folder)
    if found is None:
        raise WeightsError(f"{archive}: contains a checkpoint without its .index file")
    note_use(folder)
    return _choosing(found, None if is_narrowed else part)


def _fingerprint(archive: Path) -> str:
    """Return a key of an archive, which changes if the archive is modified or replaced."""
    version = version_of(archive)
    with open(archive, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
        tail = hashlib.sha256(file.read()).hexdigest()
    parts = archive.resolve(), *version, tail
    return "\0".join(map(str, parts))


def _unpack(archive: Path, folder: Path, part: str | None) -> None:
    """Unpack a model's files. The two files that identify it are written last."""
    with open_archive(archive) as opened:
        base, files, _ = narrowed(list(opened.members), part)
        _, found = find(files, archive)
        chosen = {name: base / place for name, place in found.items()}
        opened.check(list(chosen.values()))
        source = read_record(archive.parent).get("source", str(archive.resolve()))
        write_record(folder, source, "archive", archive=str(archive.resolve()))
        for name, place in reversed(chosen.items()):
            opened.copy(place, folder / name)
