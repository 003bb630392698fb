"""Models of a hub, with the answers of huggingface_hub; `make test-clients` brings it."""

import inspect
import shutil
import sys

import pytest
from stored_files import OPTIONS, WEIGHTS, resolve, same

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding.cache import entries
from bilm.storage.finding.download import snapshot

huggingface_hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.short]

REPOSITORY = "owner/elmo"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The calls of huggingface_hub, answered from folders: two revisions, and no ELMo."""
    calls = []
    for name in ("main", "v2", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"# {name}\n")
        (tmp_path / name / "corpus.bin").write_bytes(b"x" * 1000)
    for name in ("main", "v2"):
        shutil.copy(OPTIONS, tmp_path / name)
        shutil.copy(WEIGHTS, tmp_path / name)

    def model_info(self, repository, *, revision):
        calls.append(revision)
        folder = tmp_path / (revision or "main")
        if repository != REPOSITORY or not folder.is_dir():
            raise OSError("404\nNot Found")
        files = [{"rfilename": path.name} for path in folder.iterdir()]
        return huggingface_hub.ModelInfo(id=repository, sha=folder.name, siblings=files)

    def snapshot_download(repository, *, revision, allow_patterns, local_dir):
        ignored = [p.name for p in (tmp_path / revision).iterdir() if p.name not in allow_patterns]
        shutil.copytree(tmp_path / revision, local_dir, ignore=lambda *_: ignored)

    for owner, fake in ((huggingface_hub.HfApi, model_info), (huggingface_hub, snapshot_download)):
        known = inspect.signature(getattr(owner, fake.__name__)).parameters
        assert set(inspect.signature(fake).parameters) - {"repository"} <= set(known)
        monkeypatch.setattr(owner, fake.__name__, fake)
    return calls


def test_hub_revisions_are_downloaded_once_and_read_offline(asked, cache):
    name = f"hf:{REPOSITORY}"
    for revision, branch in (("", "main"), ("@v2", "v2")):
        options_file, weight_file = resolve(name + revision)
        assert same((options_file, weight_file), (OPTIONS, WEIGHTS))
        assert options_file.with_name("README.md").read_text() == f"# {branch}\n"
        assert not options_file.with_name("corpus.bin").exists()
    with pytest.raises(WeightsError, match=r"found none, expected one options\.json"):
        resolve(f"{name}@other")
    for missing in ("hf:owner/none", f"{name}@none"):
        with pytest.raises(WeightsError, match=f"{missing}: cannot be downloaded: 404 Not Found$"):
            resolve(missing)
    assert asked == [None, "v2", "other", None, "none"]
    assert resolve(name) and len(asked) == 5  # offline
    assert [entry.source for entry in entries("hf:*")] == [name, f"{name}@v2"]


@pytest.mark.parametrize("name", ["hf:elmo", "hf:a/b/c", "hf:a/b@", "hf:../b c"])
def test_hub_invalid_name_is_refused(name):
    with pytest.raises(WeightsError, match="expected hf:OWNER/NAME"):
        snapshot(name)


def test_hub_without_huggingface_hub_is_refused(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BilmError, match=r"huggingface_hub.*'\.\[hub\]'"):
        snapshot(f"hf:{REPOSITORY}")
