"""One command resolves its model once and reads each file of a checkpoint once."""

import shutil
from collections import Counter

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("checkpoints are TensorFlow's", allow_module_level=True)

import tensorflow as tf
from tiny_runs import damage, three_steps, tiny_run

from bilm import ElmoEmbedder, load_scorer
from bilm.elmo.layer import Elmo
from bilm.integrations.shared_models import ModelFiles, shared_embedder
from bilm.storage import stored_model
from bilm.storage.checkpoint import SUFFIX
from bilm.storage.stored_model import open_model
from bilm.training.finetuning import Source

COMMANDS = {
    "embed": ["--model", "{run}", "--input", "{text}", "--output", "{out}.hdf5"],
    "score": ["--model", "{run}", "--input", "{text}"],
    "test": ["--model", "{run}", "--input", "{text}"],
    "info": ["{run}"],
    "export": ["--model", "{run}", "--output", "{out}.hdf5"],
}


class Counts:
    """The number of resolutions, of openings by checkpoint, and of readings by tensor."""

    def __init__(self, monkeypatch):
        self.resolved, self.opened, self.read = [], Counter(), Counter()
        locate, load = stored_model.locate, tf.train.load_checkpoint

        def counted(source, weights=None):
            self.resolved.append(str(source))
            return locate(source, weights)

        class Reader:
            def __init__(reader, path):
                self.opened[str(path)] += 1
                reader.wrapped = load(path)

            def __getattr__(reader, name):
                return getattr(reader.wrapped, name)

            def get_tensor(reader, name):
                self.read[name] += 1
                return reader.wrapped.get_tensor(name)

        monkeypatch.setattr(stored_model, "locate", counted)
        monkeypatch.setattr(tf.train, "load_checkpoint", Reader)

    def arrays(self):
        """The arrays that were read, and how often; without the run's counters and positions."""
        names = [name.removesuffix(SUFFIX) for name in self.read]
        arrays = [n for n in names if "/" in n and not n.startswith("position/")]
        return {name: self.read[name + SUFFIX] for name in arrays}


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(tiny_run("characters"), tmp_path / "run")  # not read before


@pytest.fixture
def counts(monkeypatch):
    return Counts(monkeypatch)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_resolves_once_and_reads_each_tensor_once(command, run, counts, tmp_path, run_here):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\n")
    names = {"run": run, "text": text, "out": tmp_path / "out"}
    done = run_here(f"bilm {command}", *(word.format(**names) for word in COMMANDS[command]))
    assert done.returncode == 0, done.stderr
    assert counts.resolved.count(str(run)) == 1
    assert set(counts.read.values()) == {1}
    assert list(counts.opened.values()) == [1]


@pytest.mark.parametrize("use", [ElmoEmbedder, lambda model: Elmo(model).build()])
def test_embedding_reads_neither_softmax_nor_optimizer(use, run, counts):
    use(run)
    found = counts.arrays()
    assert found and set(found.values()) == {1}
    assert not [name for name in found if "softmax" in name or not name.startswith("weights/")]


def test_scoring_does_not_read_the_optimizer(run, counts):
    load_scorer(run)
    assert set(counts.arrays().values()) == {1} and len(counts.opened) == 1
    assert all(name.startswith("weights/") for name in counts.arrays())


def test_opened_model_serves_several_uses_from_one_opening(run, counts):
    model = open_model(run)
    ElmoEmbedder(model)
    load_scorer(model)
    Source(model)
    assert len(counts.resolved) == 1 and list(counts.opened.values()) == [1]


def test_shared_embedder_reads_the_weights_once_for_several_calls(run, counts):
    files = ModelFiles(run)
    first, digest = shared_embedder(files), files.digest()
    files.check(digest, "this test")
    assert shared_embedder(files) is first
    assert set(counts.arrays().values()) == {1}


def test_damaged_slots_do_not_prevent_embedding_but_damaged_weights_fall_back(tmp_path, log):
    run = shutil.copytree(three_steps(), tmp_path / "run")
    damage(run, 3, "empty")
    assert open_model(run).checkpoint.path.endswith("model.ckpt-2")
    assert "trying" in log.text
    assert open_model(run).files[1].name.startswith("model.ckpt-2.")


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
