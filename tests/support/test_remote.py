"""URLs without access to any: names, secrets, and errors where URLs are not accepted."""

import sys

import pytest
from command_runs import assert_fails

from bilm.data.shards import resolve_shards
from bilm.errors import DataError
from bilm.export.hdf5 import dump_weights
from bilm.support.files import keep_inputs, output_path, replacing_folder
from bilm.support.imports import MissingExtraError
from bilm.support.remote import (
    check_writable,
    is_file,
    listed_under,
    matching,
    open_reader,
    writing,
)
from bilm.support.urls import is_url, masked, name_of, require_local
from bilm.training.run_folder import RunFolder

URL = "s3://bucket/folder/text.txt"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (URL, True), ("https://host/a", True), ("HTTP://host", True), ("hf:owner/name", False),
        ("text.txt", False), ("/a://b", False), ("c://folder", False), ("", False),
    ],
)  # fmt: skip
def test_urls_are_recognized(path, expected):
    assert is_url(path) is expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b.txt", "b.txt"), (URL, "text.txt"), ("s3://bucket/a?b#c", "a?b#c"),
        ("https://host/a/b.csv?signature=x/y#z", "b.csv"), ("s3://bucket", "bucket"),
    ],
)  # fmt: skip
def test_name_of_a_url_has_no_query(path, name):
    assert name_of(path) == name


def test_secrets_are_masked():
    assert masked("see https://me:word@host/a?X-Amz-Signature=12ab&x=1") == (
        "see https://***@host/a?X-Amz-Signature=***&x=1"
    )


def test_url_without_the_extra_names_it(monkeypatch, run_here, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"s3://.*requires fsspec.*'\.\[remote\]'"):
        resolve_shards(URL)
    done = run_here("bilm vocab", f"--input={URL}", "--output", tmp_path / "vocab.txt")
    assert_fails(done, URL, "requires fsspec")
    done = run_here("bilm score", "--model=novels-en", f"--vocab={URL}", "--input", __file__)
    assert_fails(done, URL, "requires fsspec")


def test_folders_and_exports_must_be_local(tmp_path, stored_model):
    for write in (
        lambda: RunFolder(URL),
        lambda: dump_weights(stored_model, URL),
        lambda: replacing_folder(URL, "mark", ()).__enter__(),
        lambda: require_local(URL, "it"),
    ):
        with pytest.raises(DataError, match=f"{URL}: found a URL, but .* must be a local"):
            write()


@pytest.mark.parametrize("command", ["export --model=novels-en", "train --input=a --vocab=b"])
def test_commands_name_the_option_that_must_be_local(run_here, command):
    name, *arguments = command.split()
    done = run_here(f"bilm {name}", *arguments, f"--output={URL}")
    assert_fails(done, "--output", "is a URL; expected a local path", status=2)


def test_temporary_files_of_a_url_are_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {output_path(f"s3://{bucket}/a/text.txt") for bucket in ("one", "other")}
    assert len(names) == 2
    assert all(path.parent == tmp_path and path.name.startswith("text.txt.") for path in names)


def test_output_url_must_not_be_an_input():
    keep_inputs(URL, "s3://bucket/folder/other.txt", None)
    with pytest.raises(DataError, match=r"text.txt: is also an input"):
        keep_inputs(URL, URL)


# --- the file systems of fsspec that need no server ---


@pytest.fixture(params=["memory", "file"])
def place(request, tmp_path):
    """The URL of an empty folder."""
    pytest.importorskip("fsspec")
    if request.param == "file":
        return f"file://{tmp_path}/place"
    return f"memory://{tmp_path.name}"


def write(url, content):
    with writing(url) as file:
        file.write(content)


@pytest.mark.clients
def test_files_of_other_schemes_are_written_listed_and_read(place, tmp_path):
    (tmp_path / "place" / "inner").mkdir(parents=True)
    urls = [f"{place}/{name}" for name in ("a.txt", "b.txt", "inner/c.txt")]
    for k, url in enumerate(urls):
        check_writable(url)
        write(url, b"line %d\n" % k * 100_000)
    assert matching(f"{place}/*.txt") == urls[:2]
    assert set(listed_under(place)) == {"a.txt", "b.txt", "inner/c.txt"}
    assert is_file(urls[0]) and not is_file(f"{place}/missing.txt")
    assert list(resolve_shards(f"{place}/*.txt").texts())[99_999:100_001] == ["line 0", "line 1"]
    with open_reader(urls[1]) as file:
        file.seek(-7, 2)
        assert file.read() == b"line 1\n"


@pytest.mark.clients
def test_interrupted_write_of_another_scheme_keeps_the_earlier_file(tmp_path):
    pytest.importorskip("fsspec")
    url = f"file://{tmp_path}/a.txt"
    write(url, b"old\n")
    with pytest.raises(KeyboardInterrupt), writing(url) as file:
        file.write(b"new\n")
        raise KeyboardInterrupt
    assert list(resolve_shards(url).texts()) == ["old"]
