"""Models of a hub on the loopback, by huggingface_hub itself; `make test-clients` brings it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from stored_files import OPTIONS, WEIGHTS, same

pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

from bilm.errors import WeightsError
from bilm.storage.finding import hub
from bilm.storage.finding.cache import entries, remove
from bilm.storage.finding.hub import snapshot

pytestmark = [pytest.mark.clients, pytest.mark.short]

REPOSITORY = "owner/elmo"
SCRIPT = """
import json, sys
from absl import logging
from bilm.errors import BilmError
from bilm.storage.stored_model import open_model
for name in json.load(sys.stdin):
    try:
        print(json.dumps([str(path) for path in open_model(name).files]), flush=True)
    except BilmError as error:
        print(json.dumps(str(error)), flush=True)
"""


class Hub(BaseHTTPRequestHandler):
    """Serves the requests of huggingface_hub; `branches` contains a folder per revision."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments, branches, asked):
        self.branches, self.asked = branches, asked
        super().__init__(*arguments)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/"):
            self.about(path.removeprefix("/api/models/"))
        elif path.startswith(f"/{REPOSITORY}/resolve/"):
            commit, _, name = path.removeprefix(f"/{REPOSITORY}/resolve/").partition("/")
            self.file(commit, name)
        else:
            self.answer(404, b"{}")

    def about(self, path):
        repository, _, rest = "/".join(path.split("/")[:2]), None, path.split("/")[2:]
        branch = rest[1] if len(rest) > 1 else "main"
        folder = self.folder(branch)
        if repository != REPOSITORY:
            self.answer(404, b"{}", X_Error_Code="RepoNotFound")
        elif folder is None:
            self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        else:
            files = sorted(p for p in folder.rglob("*") if p.is_file())
            names = [(p.relative_to(folder).as_posix(), p) for p in files]
            if rest[:1] == ["tree"]:
                found = [self.described("path", name, p) | {"type": "file"} for name, p in names]
            else:
                found = {"id": REPOSITORY, "sha": commit(folder), "private": False, "tags": []}
                found |= {"downloads": 0, "likes": 0, "gated": False, "disabled": False}
                found["siblings"] = [self.described("rfilename", name, p) for name, p in names]
            self.answer(200, json.dumps(found).encode(), Content_Type="application/json")

    def described(self, key, name, path):
        return {key: name, "size": path.stat().st_size, "oid": digest(path), "blobId": digest(path)}

    def folder(self, revision):
        commits = {commit(folder): folder for folder in self.branches.values()}
        return self.branches.get(revision, commits.get(revision))

    def file(self, revision, name):
        path = self.folder(revision) / name
        if not path.is_file():
            self.answer(404, b"", X_Error_Code="EntryNotFound")
            return
        self.answer(200, path.read_bytes(), ETag=f'"{digest(path)}"', X_Repo_Commit=revision)

    def answer(self, status, body, **header):
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | header).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def digest(path):
    return hashlib.sha1(path.read_bytes()).hexdigest()


def commit(folder):
    text = "".join(digest(p) for p in sorted(folder.rglob("*")) if p.is_file())
    return hashlib.sha1(text.encode()).hexdigest()


@contextmanager
def serving(branches):
    asked = []
    handler = partial(Hub, branches=branches, asked=asked)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def branches(tmp_path):
    """Two revisions of a model, with files that are not needed, and one of another kind."""
    found = {name: tmp_path / name for name in ("main", "v2", "other")}
    for name, folder in found.items():
        folder.mkdir()
        (folder / "README.md").write_text(f"# {name}\n")
    for name in ("main", "v2"):
        shutil.copy(OPTIONS, found[name])
        shutil.copy(WEIGHTS, found[name])
        (found[name] / "corpus.bin").write_bytes(b"x" * 1000)
    (found["other"] / "pytorch_model.bin").write_bytes(b"x")
    return found


def resolved(cache, address, *names):
    """Return what `resolve` returns for each name in a new process, and its log."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(names),
        env=os.environ
        | {"BILM_CACHE": str(cache), "HF_ENDPOINT": address, "HF_HUB_ETAG_TIMEOUT": "2"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_hub_revisions_are_downloaded_once_and_read_offline(branches, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    name = f"hf:{REPOSITORY}"
    with serving(branches) as (address, asked):
        names = name, f"{name}@v2", f"{name}@other", "hf:owner/none", f"{name}@none", name
        (main, v2, other, none, no_revision, again), _ = resolved(cache, address, *names)
        assert main == again and main != v2
        for pair, branch in ((main, "main"), (v2, "v2")):
            options_file, weight_file = map(Path, pair)
            assert same((options_file, weight_file), (OPTIONS, WEIGHTS))
            assert options_file.with_name("README.md").read_text() == f"# {branch}\n"
        assert "found a PyTorch model of another kind" in other
        for message, part in ((none, "hf:owner/none"), (no_revision, "@none")):
            assert part in message and "cannot be downloaded" in message and "\n" not in message
        assert not any("corpus.bin" in path and "resolve" in path for path in asked)
    (found, missing), _ = resolved(cache, "http://127.0.0.1:9", name, f"{name}@v3")  # offline
    assert found == main and "not in the cache, and cannot be downloaded" in missing
    monkeypatch.setenv("BILM_CACHE", str(cache))
    assert {entry.names[0] for entry in entries(f"{name}@*")} == {f"{name}@v2"}
    remove(entries(f"{name}@v2"))
    old = commit(branches["v2"])
    (branches["v2"] / "README.md").write_text("# new\n")
    with serving(branches) as (address, _):
        (new,), log = resolved(cache, address, f"{name}@v2")
    assert f"{name}@v2: has changed since" in log and f"revision was {old}, is " in log
    assert new != v2 and commit(branches["v2"]) in new[0]


@pytest.mark.parametrize("name", ["hf:elmo", "hf:a/b/c", "hf:a/b@", "hf:../b c"])
def test_hub_invalid_name_is_refused(name):
    with pytest.raises(WeightsError, match="expected hf:OWNER/NAME"):
        snapshot(name)


def test_hub_model_that_is_too_large_is_refused(branches, tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "MAX_BYTES", 1000)
    with serving(branches) as (address, _):
        api = partial(huggingface_hub.HfApi, endpoint=address)
        monkeypatch.setattr(huggingface_hub, "HfApi", api)
        with pytest.raises(WeightsError, match="bytes, expected at most 1,000"):
            snapshot(f"hf:{REPOSITORY}")


def test_hub_without_huggingface_hub_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(WeightsError, match=r"pip install 'bilm-keras\[hub\]'"):
        snapshot(f"hf:{REPOSITORY}")
