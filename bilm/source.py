"""What stands for a stored model: two files, a folder, a ZIP archive, a URL or a published name."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from urllib.parse import urlsplit

from bilm.download import cache_folder, fetch
from bilm.errors import WeightsError
from bilm.files import replacing

PUBLISHED = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
NAMES = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "original_5.5b": "2x4096_512_2048cnn_2xhighway_5.5B",
}
# Size and SHA-256 of the published weights, where they are known.
CHECKS = {"small": (54_402_456, "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229")}
MAX_BYTES = 8 << 30  # of a member of an archive; the largest published weights have 0.4 GB
COPY_BYTES = 1 << 20


def resolve(options_file: str | Path, weight_file: str | Path | None = None) -> tuple[Path, Path]:
    """Give the paths of the options and of the weights.

    Args:
        options_file: `options.json`, or its URL; alone it may be a folder or a ZIP archive that
            holds both files (`options.json` and one `.hdf5` beside it), the URL of such an
            archive, or one of the names in `NAMES`. What is on disk comes before a name.
        weight_file: the HDF5 file, or its URL.
    Raises: WeightsError if the two files cannot be told or fetched.
    """
    if weight_file is not None:
        return _local(options_file), _local(weight_file)
    path = Path(options_file)
    if path.is_dir():
        return _pair([p for p in path.iterdir() if p.is_file()], path)
    if str(options_file) in NAMES and not path.exists():
        return _published(str(options_file))
    path = _local(options_file)
    if not path.exists():
        known = ", ".join(NAMES)
        raise WeightsError(
            f"{options_file}: no such file or folder; without a weight file, expected a folder or "
            f"a ZIP archive with both files, its URL, or one of {known}"
        )
    if zipfile.is_zipfile(path):
        return _unpacked(path)
    raise WeightsError(
        f"{options_file}: no folder and no ZIP archive; the weight file has to be given too"
    )


def _local(source: str | Path) -> Path:
    if urlsplit(str(source)).scheme in ("http", "https"):
        return fetch(str(source))
    return Path(source)


def _published(name: str) -> tuple[Path, Path]:
    base = f"{PUBLISHED}/{NAMES[name]}/elmo_{NAMES[name]}"
    size, sha256 = CHECKS.get(name, (None, None))
    return fetch(f"{base}_options.json"), fetch(f"{base}_weights.hdf5", size, sha256)


def _pair(paths: list[Path], where: Path) -> tuple[Path, Path]:
    """Choose the two files among those of a folder or an archive."""
    options = [p for p in paths if p.name == "options.json"]
    weights = [p for p in paths if p.suffix in (".hdf5", ".h5") and "_softmax" not in p.stem]
    for found, expected in ((options, "options.json"), (weights, ".hdf5 file with the weights")):
        if len(found) != 1:
            names = ", ".join(sorted(map(str, found))) or "none"
            raise WeightsError(f"{where}: found {names}, expected one {expected}")
    return options[0], weights[0]


def _unpacked(archive: Path) -> tuple[Path, Path]:
    """Unpack the two members that are needed into the cache, under names of ours."""
    stat = archive.stat()
    key = f"{archive.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    folder = cache_folder() / f"zip-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    targets = folder / "options.json", folder / "weights.hdf5"
    try:
        with zipfile.ZipFile(archive) as file:
            members = _pair([Path(n) for n in file.namelist() if not n.endswith("/")], archive)
            for member, target in zip(members, targets, strict=True):
                _check(file.getinfo(member.as_posix()), archive)
                if not target.exists():
                    _copy(file, member.as_posix(), target)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, KeyError, zlib.error) as error:
        raise WeightsError(f"{archive}: not a whole ZIP archive ({error})") from error
    return targets


def _check(member: zipfile.ZipInfo, archive: Path) -> None:
    if member.flag_bits & 1:
        raise WeightsError(f"{archive}: {member.filename} is encrypted")
    # Weights hardly shrink: a member a thousand times its packed size is no model.
    limit = min(MAX_BYTES, 1000 * max(member.compress_size, 1 << 10))
    if member.file_size > limit:
        raise WeightsError(
            f"{archive}: {member.filename} unpacks to {member.file_size:,} bytes, expected at most "
            f"{limit:,}"
        )


def _copy(file: zipfile.ZipFile, name: str, target: Path) -> None:
    left = file.getinfo(name).file_size
    with replacing(target) as temporary, file.open(name) as packed, open(temporary, "wb") as out:
        while chunk := packed.read(COPY_BYTES):
            left -= len(chunk)
            if left < 0:
                raise WeightsError(f"{file.filename}: {name} is larger than the archive says")
            out.write(chunk)
