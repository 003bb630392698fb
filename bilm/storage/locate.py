"""What stands for a stored model: two files, a folder, an archive, a URL or a published name."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from bilm.errors import WeightsError
from bilm.storage import download
from bilm.storage.archive import is_archive, open_archive
from bilm.storage.download import Kind, alone, cached, fetch, make_folder
from bilm.storage.formats.foreign import what_it_is
from bilm.storage.formats.known import find, unpacked_pair

PUBLISHED = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
NAMES = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "original_5.5b": "2x4096_512_2048cnn_2xhighway_5.5B",
}
# Size and SHA-256 of the published weights, where they are known.
CHECKS = {"small": (54_402_456, "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229")}


def resolve(options_file: str | Path, weight_file: str | Path | None = None) -> tuple[Path, Path]:
    """Return the paths of the options and of the weights.

    Of an ELMoForManyLangs model they are `config.json` and `encoder.pkl`. Of other models both
    files lie at the top of a folder or archive, or in one folder inside. The weights are
    `model.hdf5`, or else `weights.hdf5`, or else the one file `*_weights.hdf5`, or else the one
    HDF5 file but for `*_softmax.hdf5`. Their options are `<stem>_options.json`, or else
    `options.json`, or else the one file `*options.json`.

    Args:
        options_file: `options.json`, or its URL; alone it may be a folder or an archive (ZIP, tar,
            tar.gz) that holds both files, the URL of such an archive, or one of the names in
            `NAMES`. What is on disk comes before a name.
        weight_file: the HDF5 file, or its URL.
    Raises: WeightsError if the two files are not found, or one of them cannot be fetched.
    """
    if weight_file is not None:
        return _local(options_file, download.OPTIONS), _local(weight_file, download.WEIGHTS)
    path = Path(options_file)
    if path.is_dir():
        options, weights, *_ = find(_files_in(path), path).values()
        return path / options, path / weights
    if str(options_file) in NAMES and not path.exists():
        return _published(str(options_file))
    path = _local(options_file, download.ARCHIVE)
    if not path.exists():
        known = ", ".join(NAMES)
        raise WeightsError(
            f"{options_file}: no such file or folder; without a weight file, expected a folder or "
            f"a ZIP archive with both files, its URL, or one of {known}"
        )
    if is_archive(path):
        return _unpacked(path)
    foreign = what_it_is([PurePath(path.name)])
    raise WeightsError(
        f"{options_file}: {foreign}"
        if foreign
        else f"{options_file}: no folder and no ZIP archive; the weight file has to be given too"
    )


def _local(source: str | Path, kind: Kind) -> Path:
    scheme = re.match(r"(\w[\w+.-]*)://", str(source))
    if scheme is None:
        return Path(source)
    if scheme[1].lower() not in ("http", "https"):
        raise WeightsError(f"{source}: found a URL of {scheme[1]}, expected http or https")
    return fetch(str(source), kind)


def _published(name: str) -> tuple[Path, Path]:
    base = f"{PUBLISHED}/{NAMES[name]}/elmo_{NAMES[name]}"
    size, sha256 = CHECKS.get(name, (None, None))
    return (
        fetch(f"{base}_options.json", download.OPTIONS),
        fetch(f"{base}_weights.hdf5", download.WEIGHTS, size, sha256),
    )


def _files_in(folder: Path) -> list[PurePath]:
    """Return the files of a folder and of the folders in it, from there on."""
    found = [p for pattern in ("*", "*/*") for p in folder.glob(pattern) if p.is_file()]
    return [p.relative_to(folder) for p in found]


def _unpacked(archive: Path) -> tuple[Path, Path]:
    """Unpack the members that are needed into the cache, under names of ours."""
    stat = archive.stat()
    folder = cached(f"{archive.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}")
    with alone(folder):
        found = unpacked_pair(folder)
        if found is None:
            make_folder(folder)
            _unpack(archive, folder)
            found = unpacked_pair(folder)
    return found


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a model's files, those last that stand for all of them."""
    with open_archive(archive) as opened:
        chosen = find(list(opened.members), archive)
        opened.check(list(chosen.values()))
        for name, place in reversed(chosen.items()):
            opened.copy(place, folder / name)
