"""A small stored model, and what the tests of its files share."""

import zipfile

from conftest import golden_cases

from bilm.storage.cache import RECORD

CASE = golden_cases("inference")[0].values[0]
OPTIONS, WEIGHTS = CASE / "options.json", CASE / "weights.hdf5"


def same(found, expected):
    return [p.read_bytes() for p in found] == [p.read_bytes() for p in expected]


def make_zip(path, names, weights=WEIGHTS):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            kind = OPTIONS if name.endswith(".json") else weights
            file.write(kind, name)
    return path


def files_in(folder):
    """The files in a folder or cache, without the cache's records of where they came from."""
    return [p for p in folder.rglob("*") if p.is_file() and p.name != RECORD]
