"""Runs of 0.2.0 and later versions load, score and resume unchanged; those of 0.1.0 are refused.

`version_0_2_0/run` was written by commit 03ccaec and stopped at step 6 of 12. It has Muon, weight
decay, variational and embedding dropout, and resets of states. `expected_weights.npz` contains the
weights of the same run trained without an interruption; `/` in names is written as `|`. The vectors
and scores are those of step 6. `version_0_1_0` is a run of commit fc5b6c2 without removed keys.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from command_runs import assert_fails

import bilm
from bilm.errors import WeightsError
from bilm.training.finetuning import finetune
from bilm.training.history import read_history

HERE = Path(__file__).parent
EARLIER, REFUSED = HERE / "version_0_2_0", HERE / "version_0_1_0"
SENTENCES = json.loads((EARLIER / "sentences.json").read_text())


def continued(run):
    options = bilm.options.load_run_options(EARLIER / "run" / "options.json")
    files = tiny_runs.VOCABULARY, tiny_runs.TEXT, run, tiny_runs.HELDOUT
    return tiny_runs.train(options, *files, n_steps=12, eval_steps=4, seed=3)


def test_run_of_earlier_version_gives_the_same_vectors_and_scores():
    vectors = bilm.ElmoEmbedder(EARLIER / "run").embed_batch(SENTENCES)
    stored = np.load(EARLIER / "expected_vectors.npz")
    for i, computed in enumerate(vectors):
        np.testing.assert_allclose(computed, stored[str(i)], atol=1e-6)
    scores = bilm.load_scorer(EARLIER / "run").score(SENTENCES)
    stored = json.loads((EARLIER / "expected_scores.json").read_text())
    for computed, (forward, backward) in zip(scores, stored, strict=True):
        np.testing.assert_allclose(computed.forward, forward, atol=1e-5)
        np.testing.assert_allclose(computed.backward, backward, atol=1e-5)


def test_resume_of_a_run_of_earlier_version_is_exact(tmp_path):
    run = Path(shutil.copytree(EARLIER / "run", tmp_path / "run"))
    result = continued(run)
    assert result.finished and result.step == 12
    steps = [int(row["step"]) for row in read_history(run / "history.csv")]
    assert steps[0] == 1 and steps[-1] == 12
    weights = tiny_runs.weights_of(run)
    expected = np.load(EARLIER / "expected_weights.npz")
    assert weights.keys() == {name.replace("|", "/") for name in expected.files}
    for name, value in weights.items():
        stored = expected[name.replace("/", "|")]
        # The other processor added in another order: the tolerance of weights after six steps.
        np.testing.assert_allclose(value, stored, atol=2e-5, err_msg=name)


def test_run_of_0_1_0_is_refused_with_one_line(tmp_path, run_here):
    run = Path(shutil.copytree(REFUSED, tmp_path / "run"))
    message = r"model\.ckpt-6: not a whole checkpoint"
    for use in (bilm.ElmoEmbedder, bilm.load_scorer, continued):
        with pytest.raises(WeightsError, match=message):
            use(run)
    with pytest.raises(WeightsError, match=message):
        finetune(run, tiny_runs.TEXT, tmp_path / "tuned")
    text, vocabulary = f"--input={tiny_runs.TEXT}", f"--vocab={tiny_runs.VOCABULARY}"
    for command in (["info", run], ["train", f"--output={run}", text, vocabulary]):
        done = run_here(f"bilm {command[0]}", *command[1:])
        assert_fails(done, "model.ckpt-6: not a whole checkpoint")
