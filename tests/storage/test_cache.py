"""The cache: listed with sizes and sources, removed by name, used when read-only."""

import json
import os

import pytest
from command_runs import assert_fails
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, resolve, same

from bilm.errors import WeightsError
from bilm.storage.finding.cache import RECORD, cached, entries, filled

pytestmark = pytest.mark.usefixtures("cache")


def entry(key, n_bytes):
    def fill(folder):
        folder.mkdir()
        (folder / "file").write_bytes(b"x" * n_bytes)
        return {}

    return filled(cached(key) / "inside", key, fill).parent


def test_models_lists_and_removes_cached_models(run_here):
    entry("nlpl:144", 7000)
    entry("small", 5)
    done = run_here("bilm models", "--cached")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[1] for line in lines] == ["nlpl:144", "small", "bytes"]
    (row,) = json.loads(run_here("bilm models", "--remove=nlpl:*", "--json").stdout)
    assert row["source"] == "nlpl:144" and row["bytes"] >= 7000
    assert [found.source for found in entries()] == ["small"]
    assert_fails(run_here("bilm models", "--remove", "nlpl:144"), "no model in", "has this name")


def test_entry_of_a_killed_process_gets_its_record():
    (entry("small", 5) / RECORD).unlink()
    assert entries() == []
    entry("small", 7)
    assert [(found.source, found.n_bytes >= 7) for found in entries()] == [("small", True)]
    assert (cached("small") / "inside" / "file").read_bytes() == b"x" * 5  # is not filled again


def test_removal_keeps_folders_without_a_record_and_targets_of_links(cache, tmp_path, run_here):
    """A folder that bilm did not create may have a name like an entry's."""
    mine, outside = cache / ("0" * 16), tmp_path / "outside"
    for folder in (mine, outside):
        folder.mkdir(parents=True)
        (folder / "thesis.txt").write_text("x")
    (mine / RECORD).write_text("[]")  # not a record of ours
    (entry("small", 5) / "link").symlink_to(outside)
    for _ in range(2):  # the second finds none
        assert run_here("bilm models", "--remove=*").returncode == 0
    assert files_in(cache) == [mine / "thesis.txt"] and (outside / "thesis.txt").exists()


def test_read_only_cache_is_used(tmp_path, monkeypatch):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    found = resolve(archive)

    def refuse(*arguments, **named):
        raise PermissionError(13, "Permission denied")

    for name in ("os.utime", "os.mkdir", "os.replace"):
        monkeypatch.setattr(name, refuse)
    assert resolve(archive) == found and same(found, (OPTIONS, WEIGHTS))
    other = make_zip(tmp_path / "n.zip", ["options.json", "model.hdf5"])
    with pytest.raises(WeightsError, match=r"cannot write to the cache .* set BILM_CACHE"):
        resolve(other)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("BILM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, expected in (("/there", "/there"), ("not/there", None), ("", None)):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert os.fspath(cached("key").parent) == f"{expected or tmp_path / '.cache'}/bilm"
