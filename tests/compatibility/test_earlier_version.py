"""Files that earlier commits of version 0.1.0 wrote load, score, resume and export unchanged.

`version_0_1_0` is of commit fc5b6c2. `version_0_1_0_5671ed6` is of that commit: a run with Muon,
weight decay, variational and embedding dropout and resets of states; and `averaged`, a finished run
with `average_decay`, whose checkpoint contains the average as the model and the trained weights
beside it.

Each `run` stopped at step 6 of 12. `expected_weights.npz` contains the weights of the same run
trained without an interruption; `/` in names is written as `|`. `export` is made of that run in the
first folder, and of `run` in the second.
"""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import tiny_runs

import bilm
from bilm.errors import OptionsError
from bilm.training.finetuning import finetune
from bilm.training.history import read_history

HERE = Path(__file__).parent
GENERATIONS = [HERE / "version_0_1_0", HERE / "version_0_1_0_5671ed6"]
AVERAGED = GENERATIONS[1] / "averaged"
SENTENCES = json.loads((GENERATIONS[0] / "sentences.json").read_text())
of_each_generation = pytest.mark.parametrize("earlier", GENERATIONS, ids=lambda path: path.name)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (GENERATIONS[0] / "export", GENERATIONS[0]),
        (GENERATIONS[1] / "export", GENERATIONS[1]),
        (GENERATIONS[1] / "run", GENERATIONS[1]),
        (AVERAGED, AVERAGED),
    ],
    ids=["first export", "second export", "second run", "averaged run"],
)
def test_model_of_earlier_version_gives_the_same_vectors_and_scores(model, expected):
    vectors = bilm.ElmoEmbedder(model).embed_batch(SENTENCES)
    stored = np.load(expected / "expected_vectors.npz")
    for i, found in enumerate(vectors):
        np.testing.assert_allclose(found, stored[str(i)], atol=1e-6)
    scores = bilm.load_scorer(model).score(SENTENCES)
    stored = json.loads((expected / "expected_scores.json").read_text())
    for found, (forward, backward) in zip(scores, stored, strict=True):
        np.testing.assert_allclose(found.forward, forward, atol=1e-5)
        np.testing.assert_allclose(found.backward, backward, atol=1e-5)


@of_each_generation
def test_resume_of_a_run_of_earlier_version_is_exact(earlier, tmp_path):
    run = Path(shutil.copytree(earlier / "run", tmp_path / "run"))
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
    steps = [int(row["step"]) for row in read_history(run / "history.csv")]
    has_history = (earlier / "run" / "history.csv").exists()
    assert (steps[0] == 1) == has_history and steps[-1] == 12
    bilm.dump_weights(run, tmp_path / "weights.hdf5", include_softmax=True)
    expected = np.load(earlier / "expected_weights.npz")
    with (
        h5py.File(tmp_path / "weights.hdf5") as weights,
        h5py.File(tmp_path / "weights_softmax.hdf5") as softmax,
    ):
        for name in expected.files:
            stored = name.replace("|", "/")
            found = (softmax if stored.startswith("softmax/") else weights)[stored][:]
            np.testing.assert_allclose(found, expected[name], atol=1e-6, err_msg=stored)


def test_run_with_a_removed_key_is_not_trained_further(tmp_path):
    refused = pytest.raises(OptionsError, match=r"average_decay.* version 0\.1\.0")
    run = Path(shutil.copytree(AVERAGED, tmp_path / "run"))
    with refused:
        bilm.options.load_run_options(run / "options.json")
    with refused:
        finetune(run, tiny_runs.TEXT, tmp_path / "tuned")
    options = bilm.options.load_model_options(run / "options.json")
    values = options.to_dict() | {"average_decay": 0.0, "recurrent_weight_dropout": 0.0}
    values["share_negatives"] = False
    with refused:
        bilm.TrainingRun(
            bilm.options.RunOptions.from_dict(values), run / "vocab.txt", tiny_runs.TEXT, run
        )
