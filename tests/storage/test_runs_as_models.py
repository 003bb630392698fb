"""Checkpoints of bilm and of the TensorFlow 1 reference as models, in folders and archives."""

import io
import re
import shutil
import tarfile

import numpy as np
import pytest
from conftest import GOLDEN
from disk_faults import flip_bit
from stored_files import load_bilm, resolve, stored_values
from tiny_runs import assert_same_values, load_run, run, three_steps, tiny_run

from bilm import ElmoEmbedder, load_scorer
from bilm.commands.info import find_problems
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError, WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.storage.stored_model import open_model
from bilm.training.source import Source

pytestmark = pytest.mark.usefixtures("cache")
CHECKPOINT = GOLDEN / "checkpoint" / "chars"
VOCABULARY = GOLDEN / "data" / "vocab.txt"


def test_published_tf1_checkpoint_works_in_every_reader(tmp_path, cache):
    published = tmp_path / "elmo_checkpoint.tar.gz"
    with tarfile.open(published, "w:gz") as file:
        for part in CHECKPOINT.iterdir():
            if part.suffix != ".hdf5" and part.name != "expected.json":
                file.add(part, f"elmo_tf_checkpoint/{part.name}")
        file.add(VOCABULARY, "elmo_tf_checkpoint/vocab-2016-09-10.txt")
        graph = tarfile.TarInfo("elmo_tf_checkpoint/model.ckpt-630.meta")
        file.addfile(graph, io.BytesIO())
    options_file, folder = resolve(published)
    assert folder == options_file.parent and cache in folder.parents
    assert not (folder / "model.ckpt-630.meta").exists()
    scorer = load_scorer(published)  # with the vocabulary beside it
    expected = load_scorer(CHECKPOINT, VOCABULARY).substitutes(["the", "cat"], 1, 5)
    assert scorer.substitutes(["the", "cat"], 1, 5) == expected
    assert Source(published).model.n_words == load_run(CHECKPOINT).n_tokens
    weight_file, options_file = dump_weights(published, tmp_path / "out")
    found = stored_values(load_bilm(options_file, weight_file))
    assert_same_values(found, stored_values(load_bilm(CHECKPOINT)))


@pytest.mark.parametrize("variant", ["characters", "words"])
def test_vocabulary_of_a_run_replaced_by_other_words_is_refused(variant, tmp_path):
    folder = shutil.copytree(tiny_run(variant), tmp_path / "run")
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "vocab.txt").write_text("\r\n".join(words), encoding="utf-8")  # the same words
    assert not find_problems(open_model(folder))
    (folder / "vocab.txt").write_text("\n".join(words[::-1]), encoding="utf-8")
    message = r"vocab\.txt: differs from the vocabulary that .*model\.ckpt-2 was trained with"
    uses = [load_scorer, *([ElmoEmbedder] if variant == "words" else [])]
    for use in uses:
        with pytest.raises(DataError, match=message):
            use(folder)
    (problem,) = find_problems(open_model(folder))
    assert re.search(message, problem)


def test_checkpoints_contain_the_vocabulary_of_the_start(tmp_path):
    """Also checkpoints of a resumed run, and the best one."""
    folder = shutil.copytree(three_steps(), tmp_path / "run")
    digest = Vocabulary(VOCABULARY).digest
    assert open_model(folder / "best").checkpoint.record.vocabulary == digest
    run(folder, 4)
    assert open_model(folder).checkpoint.record.vocabulary == digest


def test_run_is_found_in_one_folder_below(tmp_path):
    inside = shutil.copytree(CHECKPOINT, tmp_path / "models" / "a")
    assert resolve(tmp_path / "models") == (inside / "options.json", inside)
    shutil.copytree(CHECKPOINT, tmp_path / "models" / "b")
    with pytest.raises(WeightsError, match="found runs in a, b; expected one"):
        resolve(tmp_path / "models")
    for name in ("options.json", "weights.hdf5"):  # an export, and runs inside of its folder
        shutil.copy(CHECKPOINT / name, tmp_path / "models")
    assert resolve(tmp_path / "models")[1] == tmp_path / "models" / "weights.hdf5"
    (inside / "options.json").unlink()
    with pytest.raises(WeightsError, match=r"found checkpoints, but options\.json beside them is"):
        resolve(inside)


def test_model_that_is_training_keeps_its_checkpoint(tmp_path):
    """A model that is open does not change when the run saves again."""
    run = shutil.copytree(three_steps(), tmp_path / "run")
    newest = [path.rename(tmp_path / path.name) for path in run.glob("model.ckpt-3*")]
    model = open_model(run)
    before = model.digest
    for path in newest:
        path.rename(run / path.name)
    assert model.checkpoint.path.endswith("model.ckpt-2") and model.digest == before
    assert open_model(run).digest != before


@pytest.mark.parametrize("step", [None, 3])
def test_softmax_requested_after_the_weights_is_checked(step, tmp_path):
    run = shutil.copytree(three_steps(), tmp_path / "run")
    kernel = np.asarray(open_model(run).softmax.tensors["softmax/W"]).tobytes()
    flip_bit(run / "model.ckpt-3.data-00000-of-00001", kernel)
    weights = None if step is None else f"model.ckpt-{step}.index"
    model = open_model(run, weights)
    assert model.checkpoint.record.step == 3
    with pytest.raises(WeightsError, match=r"model\.ckpt-3: not a whole checkpoint"):
        model.require_softmax()
    if step is None:
        model = open_model(run)
        model.require_softmax()  # before the weights: an earlier checkpoint is chosen
        assert model.checkpoint.record.step == 2
