"""Embedders that a process shares: one per model, loaded again when its files change."""

import shutil

import pytest
from stored_files import CASE
from tiny_runs import tiny_run

from bilm.embedding.shared import ModelFiles, shared_embedder
from bilm.errors import WeightsError


def test_callers_share_the_embedder_of_the_same_files_and_precision():
    files = ModelFiles(CASE)
    embedder = shared_embedder(files, files.digest())
    assert shared_embedder(ModelFiles(CASE), files.digest()) is embedder
    assert shared_embedder(files, files.digest(), "bfloat16") is not embedder


def test_shared_model_digest_includes_the_vocabulary(tmp_path):
    copy = shutil.copytree(tiny_run("words"), tmp_path / "run")
    files = ModelFiles(copy)
    digest = files.digest()
    assert ModelFiles(tiny_run("words")).digest() == digest
    words = (copy / "vocab.txt").read_text().splitlines()
    (copy / "vocab.txt").write_text("\n".join([*words[:3], *words[:2:-1]]))
    with pytest.raises(WeightsError, match="the files have changed"):
        files.check(digest, "this vectorizer")
