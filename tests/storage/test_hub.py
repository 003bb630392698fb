"""Models of a hub on the loopback, by huggingface_hub itself; `make test-clients` brings it."""

import hashlib
import json
import shutil
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from stored_files import OPTIONS, WEIGHTS, resolve, same

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding.cache import entries
from bilm.storage.finding.hub import snapshot

huggingface_hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.short]

REPOSITORY = "owner/elmo"


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


def test_hub_revisions_are_downloaded_once_and_read_offline(branches, cache, monkeypatch):
    name = f"hf:{REPOSITORY}"
    with serving(branches) as (address, asked):
        api = partial(huggingface_hub.HfApi, endpoint=address)
        monkeypatch.setattr(huggingface_hub, "HfApi", api)
        download = partial(huggingface_hub.snapshot_download, endpoint=address)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        for revision, branch in (("", "main"), ("@v2", "v2")):
            options_file, weight_file = resolve(name + revision)
            assert same((options_file, weight_file), (OPTIONS, WEIGHTS))
            assert options_file.with_name("README.md").read_text() == f"# {branch}\n"
        with pytest.raises(WeightsError, match=r"found none, expected one options\.json"):
            resolve(f"{name}@other")
        for missing in ("hf:owner/none", f"{name}@none"):
            with pytest.raises(WeightsError, match=f"{missing}: cannot be downloaded: [^\n]*$"):
                resolve(missing)
        assert not any("corpus.bin" in path and "resolve" in path for path in asked)
        n_asked = len(asked)
    assert resolve(name) and len(asked) == n_asked  # offline
    assert [entry.source for entry in entries("hf:*")] == [name, f"{name}@v2"]


@pytest.mark.parametrize("name", ["hf:elmo", "hf:a/b/c", "hf:a/b@", "hf:../b c"])
def test_hub_invalid_name_is_refused(name):
    with pytest.raises(WeightsError, match="expected hf:OWNER/NAME"):
        snapshot(name)


def test_hub_without_huggingface_hub_is_refused(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BilmError, match=r"huggingface_hub.*'\.\[hub\]'"):
        snapshot(f"hf:{REPOSITORY}")
