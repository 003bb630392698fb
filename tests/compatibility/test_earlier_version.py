"""Files that version 0.1.0 wrote (commit fc5b6c2) load, score, resume and export unchanged.

The run stopped at step 6 of 12. `expected_weights.npz` holds the weights of the same run trained
without an interruption; `/` in names is written as `|`.
"""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import tiny_runs

import bilm

EARLIER = Path(__file__).parent / "version_0_1_0"
SENTENCES = json.loads((EARLIER / "sentences.json").read_text())


def test_export_of_earlier_version_gives_the_same_vectors():
    vectors = bilm.ElmoEmbedder(EARLIER / "export").embed_batch(SENTENCES)
    expected = np.load(EARLIER / "expected_vectors.npz")
    for i, found in enumerate(vectors):
        np.testing.assert_allclose(found, expected[str(i)], atol=1e-6)


def test_export_of_earlier_version_gives_the_same_scores():
    scores = bilm.load_scorer(EARLIER / "export").score(SENTENCES)
    expected = json.loads((EARLIER / "expected_scores.json").read_text())
    for found, (forward, backward) in zip(scores, expected, strict=True):
        np.testing.assert_allclose(found.forward, forward, atol=1e-5)
        np.testing.assert_allclose(found.backward, backward, atol=1e-5)


def test_resume_of_a_run_of_earlier_version_is_exact(tmp_path):
    run = Path(shutil.copytree(EARLIER / "run", tmp_path / "run"))
    options = bilm.options.load_run_options(run / "options.json")
    result = bilm.TrainingRun(
        options,
        tiny_runs.VOCABULARY,
        tiny_runs.TEXT,
        run,
        tiny_runs.HELDOUT,
        n_steps=12,
        eval_steps=4,
        seed=3,
    ).train()
    assert result.finished and result.step == 12
    bilm.dump_weights(run, tmp_path / "weights.hdf5", include_softmax=True)
    expected = np.load(EARLIER / "expected_weights.npz")
    with (
        h5py.File(tmp_path / "weights.hdf5") as weights,
        h5py.File(tmp_path / "weights_softmax.hdf5") as softmax,
    ):
        for name in expected.files:
            stored = name.replace("|", "/")
            found = (softmax if stored.startswith("softmax/") else weights)[stored][:]
            np.testing.assert_allclose(found, expected[name], atol=1e-6, err_msg=stored)
