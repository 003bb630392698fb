"""What stands for a stored model: two files, a folder, an archive, a URL or a name."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from bilm.errors import WeightsError
from bilm.files import expanded
from bilm.storage import download, registry
from bilm.storage.archive import is_archive, open_archive
from bilm.storage.cache import alone, cached, note_use, read_record, write_record
from bilm.storage.download import Kind, fetch
from bilm.storage.formats.checkpoint import OPTIONS
from bilm.storage.formats.foreign import what_it_is
from bilm.storage.formats.known import find, is_run, refuse_as_run, unpacked_pair
from bilm.storage.formats.manylangs import CONFIG


def resolve(model: str | Path, weight_file: str | Path | None = None) -> tuple[Path, Path]:
    """Return the two paths that stand for a model: those of its options and of its weights.

    What is on disk comes before a name. A folder or archive has its model at the top or in one
    folder inside. A folder with checkpoints is a run, whatever else lies in it: its options are
    `options.json`, and the folder stands for the weights of its latest whole checkpoint. Of an
    ELMoForManyLangs model the two are `config.json` and `encoder.pkl`. Of other models the weights
    are `model.hdf5`, or else `weights.hdf5`, or else the one file `*_weights.hdf5`, or else the one
    HDF5 file but for `*_softmax.hdf5`; their options are `<stem>_options.json`, or else
    `options.json`, or else the one file `*options.json`.

    Args:
        model: a folder, an archive (ZIP, tar, tar.gz), the URL of an archive, or a name (see
            `bilm.storage.registry`); with `weight_file`, the options, their URL, or a folder.
        weight_file: the HDF5 file, or its URL; or the index of a checkpoint. Of a folder its name
            is enough.
    Raises: WeightsError if there is no such model, it cannot be fetched, or a name is empty.
    """
    if "" in (model, weight_file):  # as a path it would be the current folder
        raise WeightsError("the name of a model's file or folder is empty; expected a path or name")
    if weight_file is not None:
        return _pair(_local(model, download.OPTIONS), _local(weight_file, download.WEIGHTS))
    path = Path(expanded(model))
    if not path.exists():
        found = registry.looked_up(str(model)) or (_local(model, download.ARCHIVE),)
        if len(found) == 2:
            return found
        path = found[0]
    if path.is_dir():
        return find(_files_in(path), path).pair(path)
    if not path.exists():
        raise WeightsError(
            f"{model}: no such file or folder, and no name of a model; {registry.near(str(model))}"
        )
    if is_archive(path):
        return _unpacked(path)
    foreign = what_it_is([PurePath(path.name)])
    raise WeightsError(
        f"{model}: {foreign}"
        if foreign
        else f"{model}: no folder and no ZIP archive or tar.gz; the weight file has to be given too"
    )


def _pair(model: Path, weight_file: Path) -> tuple[Path, Path]:
    """Return options and weights, of which the first may be the folder of both."""
    if not model.is_dir():
        return model, weight_file
    inside = model / weight_file
    weight_file = inside if inside.exists() or not weight_file.exists() else weight_file
    names = f"{weight_file.stem}_{OPTIONS}", OPTIONS, CONFIG
    return next((model / name for name in names if (model / name).is_file()), model), weight_file


def run_folder(model: str | Path) -> Path:
    """Return the folder of a run, which may be given by anything that `resolve` takes.

    Of a folder that holds no run, the reader of runs says what is missing.

    Raises: OptionsError for a model that is no run and cannot become one; WeightsError.
    """
    try:
        options_file, weight_file = resolve(model)
    except WeightsError:
        if Path(expanded(model)).is_dir():
            return Path(expanded(model))
        raise
    refuse_as_run(weight_file)
    if not is_run(weight_file):
        raise WeightsError(
            f"{model}: no whole checkpoint in this folder, only {weight_file.name}; expected a run"
        )
    return options_file.parent


def _local(source: str | Path, kind: Kind) -> Path:
    """Return a path as it is, and the local copy of a URL. Raises: WeightsError."""
    scheme = re.match(r"(\w[\w+.-]*)://", str(source))
    if scheme is None:
        return Path(expanded(source))
    if scheme[1].lower() not in ("http", "https"):
        raise WeightsError(f"{source}: found a URL of {scheme[1]}, expected http or https")
    return fetch(str(source), kind)


def _files_in(folder: Path) -> list[PurePath]:
    """Return the files of a folder and of the folders in it, from there on."""
    found = [p for pattern in ("*", "*/*") for p in folder.glob(pattern) if p.is_file()]
    return [p.relative_to(folder) for p in found]


def _unpacked(archive: Path) -> tuple[Path, Path]:
    """Unpack the members that are needed into the cache, under names of ours."""
    stat = archive.stat()
    folder = cached(f"{archive.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}")
    found = unpacked_pair(folder)
    if found is None:
        with alone(folder):
            found = unpacked_pair(folder)  # which another may have unpacked in the meantime
            if found is None:
                _unpack(archive, folder)
                found = unpacked_pair(folder)
    if found is None:
        raise WeightsError(f"{archive}: holds a checkpoint without its .index file")
    note_use(folder)
    return found


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a model's files, those last that stand for all of them."""
    with open_archive(archive) as opened:
        chosen = find(list(opened.members), archive).files
        opened.check(list(chosen.values()))
        source = read_record(archive.parent).get("source", str(archive.resolve()))
        write_record(folder, source, "archive", archive=str(archive.resolve()))
        for name, place in reversed(chosen.items()):
            opened.copy(place, folder / name)
