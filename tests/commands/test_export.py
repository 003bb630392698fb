"""`bilm export --to`: a run or another stored model in the forms that other programs load."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from command_runs import assert_fails
from stored_files import CASE
from tiny_runs import tiny_run

from bilm import ElmoEmbedder
from bilm.export.hdf5 import dump_weights


@pytest.mark.slow
def test_saved_model_of_a_run_returns_the_means_of_the_embedder(run_here, tmp_path):
    model, folder = tiny_run("characters"), tmp_path / "served" / "1"
    done = run_here("bilm export", "--model", model, "--to", "saved_model", "--output", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {folder}\n"
    dump_weights(model, tmp_path / "elmo")
    sentences = ["the bank of the river", "a"]
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    found = serve(sentences=tf.constant(sentences))["mean"]
    expected = ElmoEmbedder(tmp_path / "elmo").sentence_vectors([s.split() for s in sentences])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_options_without_effect_are_wrong_use(run_here, tmp_path):
    arguments = "--output", tmp_path / "x", "--to", "onnx", "--include_softmax"
    done = run_here("bilm export", "--model", CASE, *arguments)
    assert_fails(done, '--to!="hdf5", ', status=2)
    assert not (tmp_path / "x").exists()


def test_folder_with_other_files_is_kept(run_here, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    done = run_here("bilm export", "--model", CASE, "--to", "saved_model", "--output", tmp_path)
    assert_fails(done, f"{tmp_path}: exists and is not empty")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("to", ["hdf5", "onnx"])
def test_export_does_not_replace_its_model(run_here, tmp_path, to):
    model = tmp_path / "model"
    shutil.copytree(CASE, model)
    before = (model / "weights.hdf5").read_bytes()
    flags = "--model", model, "--to", to, "--output", model / "weights.hdf5"
    assert_fails(run_here("bilm export", *flags), "weights.hdf5: is also an input")
    assert (model / "weights.hdf5").read_bytes() == before
