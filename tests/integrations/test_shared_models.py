"""`ModelFiles`: the digest of a model."""

import shutil

import pytest
from tiny_runs import tiny_run

from bilm.errors import WeightsError
from bilm.integrations.shared_models import ModelFiles

pytestmark = pytest.mark.clients


def test_shared_model_digest_includes_the_vocabulary(tmp_path):
    copy = shutil.copytree(tiny_run("words"), tmp_path / "run")
    files = ModelFiles(copy)
    digest = files.digest()
    assert ModelFiles(tiny_run("words")).digest() == digest
    words = (copy / "vocab.txt").read_text().splitlines()
    (copy / "vocab.txt").write_text("\n".join([*words[:3], *words[:2:-1]]))
    with pytest.raises(WeightsError, match="the files have changed"):
        files.check(digest, "this vectorizer")
