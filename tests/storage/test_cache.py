"""The cache: listed with sizes and sources, pruned by name or age, used when read-only."""

import errno
import json
import os
import time

import pytest
from command_runs import assert_fails, run
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, resolve, same

from bilm.errors import WeightsError
from bilm.storage.finding.cache import (
    DAY,
    RECORD,
    alone,
    cached,
    entries,
    make_folder,
    remove,
    write_record,
)

pytestmark = pytest.mark.usefixtures("cache")


def entry(key, n_bytes, days=0, **what):
    """Make an entry that was last used so many days ago."""
    folder = cached(key)
    make_folder(folder)
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_bytes(b"x" * n_bytes)
    write_record(folder, key, "sha256", sha256=key, **what)
    os.utime(folder / RECORD, (time.time() - days * DAY,) * 2)
    return folder


def names(found):
    return [entry.names[0] for entry in found]


def test_cache_entries_are_selected_by_name_and_age(cache):
    assert entries() == []
    entry("small", 5, days=2, url="http://a/small.hdf5")
    entry("nlpl:144", 7, days=40)
    entry("nlpl:7", 9)
    assert names(entries()) == ["nlpl:7", "small", "nlpl:144"]
    assert [entry.n_bytes for entry in entries()] == [9, 5, 7]
    assert names(entries("nlpl:*")) == ["nlpl:7", "nlpl:144"]
    assert names(entries("http://a/small.hdf5")) == ["small"]
    assert names(entries(days=30)) == ["nlpl:144"]
    (cache / "mine").mkdir()
    (cache / "mine" / "file").write_text("x")
    remove(entries())
    assert entries() == [] and files_in(cache) == [cache / "mine" / "file"]  # not of the cache


def test_prune_keeps_folders_without_a_record(cache, tmp_path):
    """A folder that bilm did not create may have a name like an entry's."""
    mine = cache / ("0" * 16)
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("x")
    (mine / RECORD).write_text("[]")  # not a record of ours
    entry("small", 5)
    assert names(entries()) == ["small"]
    done = run("bilm cache", "--prune", "*", BILM_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    assert (mine / "thesis.txt").exists() and not entries()


def test_prune_does_not_follow_links_out_of_the_cache(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "other"))
    outside = entry("outside", 7)
    monkeypatch.setenv("BILM_CACHE", str(cache))
    inside = entry("small", 5)
    (cache / ("1" * 16)).symlink_to(outside)
    (inside / "link").symlink_to(outside)
    remove(entries())
    assert (outside / "inside" / "file").exists() and not (inside / "link").exists()


def test_records_mask_secrets_in_urls(cache):
    url = "https://me:hunter2@host/m.zip?id=7&token=hunter3&X-Amz-Signature=hunter4"
    folder = entry(url, 5, url=url)
    assert "hunter" not in (folder / RECORD).read_text()
    (found,) = entries()
    assert found.names == ("https://***@host/m.zip?id=7&token=***&X-Amz-Signature=***",)


def test_record_remains_after_removal(cache, log):
    folder = entry("name", 5)
    remove(entries("name"))
    assert (folder / RECORD).exists()
    write_record(folder, "name", "sha256", sha256="other")
    assert "name: has changed since" in log.text and "sha256 was name, is other" in log.text


def test_use_of_an_entry_is_recorded(tmp_path):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    folder = resolve(archive)[0].parent
    os.utime(folder / RECORD, (0, 0))
    assert names(entries(days=9)) == [str(archive)]
    resolve(archive)
    assert not entries(days=9)


def test_read_only_cache_is_used(tmp_path, monkeypatch):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    found = resolve(archive)

    def refuse(*arguments, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.access", lambda *_: False)
    for name in ("os.utime", "os.mkdir", "os.replace"):
        monkeypatch.setattr(name, refuse)
    assert resolve(archive) == found and same(found, (OPTIONS, WEIGHTS))
    other = make_zip(tmp_path / "n.zip", ["options.json", "model.hdf5"])
    with pytest.raises(WeightsError, match="cannot write to the cache; set BILM_CACHE"):
        resolve(other)


def test_cache_command_lists_and_prunes_entries(cache):
    entry("nlpl:144", 7000, days=40, url="http://a/144.zip")
    entry("small", 5)
    variables = {"BILM_CACHE": str(cache)}
    done = run("bilm cache", **variables)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert [(row[0], row[2:]) for row in rows[:2]] == [
        ("5", ["small"]),
        ("7,000", ["nlpl:144", "http://a/144.zip"]),
    ]
    assert rows[2] == ["7,005", "bytes", "in", str(cache)]
    (found,) = json.loads(run("bilm cache", "--json", "--older_than=30", **variables).stdout)
    assert (found["names"], found["bytes"]) == (["nlpl:144", "http://a/144.zip"], 7000)
    done = run("bilm cache", "--prune", "*", "--older_than", "30", **variables)
    assert done.stdout.splitlines()[-1].split() == ["7,000", "bytes", "removed", "in", str(cache)]
    assert names(entries()) == ["small"]
    done = run("bilm cache", "--prune", "nlpl:144", **variables)
    assert_fails(done, f"nlpl:144: no entry in {cache} matches this name")


def test_cache_works_without_file_locks(cache, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with alone(cached("a")):
        (cached("a") / "file").touch()
