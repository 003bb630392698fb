"""The folder of a run: odd names, neighbours, damaged records, the lock, and what is not ours."""

import os
import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tiny_runs import HELDOUT, TEXT, VOCABULARY, load_run, run, three_steps

import bilm
from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.errors import BilmError
from bilm.export.hdf5 import dump_weights
from bilm.scoring.running_text import heldout_dataset, perplexity
from bilm.storage.checkpoint import CheckpointContent
from bilm.training import run as training
from bilm.training import texts
from bilm.training.finetuning import finetune
from bilm.training.hosts import Hosts
from bilm.training.run_folder import RunFolder
from bilm.training.step import Trainer
from bilm.training.texts import Inputs


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


ODD = "-sp ace\nünï? {a,b}"


@pytest.mark.parametrize("name", ["run?", "run*", ODD])
def test_run_does_not_touch_neighbouring_folders(tmp_path, name):
    for letter in ("1", "x"):
        neighbour = name.replace("?", letter).replace("*", letter)
        shutil.copytree(three_steps(), tmp_path / neighbour)
    before = contents(tmp_path)
    folder = shutil.copytree(three_steps(), tmp_path / name)
    run(folder, 4, heldout=HELDOUT, eval_steps=1, checkpoint_steps=1, keep_checkpoints=1)
    assert {path: data for path, data in contents(tmp_path).items() if path in before} == before
    assert [path.name for path in folder.glob("*.index")] == ["model.ckpt-4.index"]
    assert tf.train.latest_checkpoint(str(folder)) == f"{folder}/model.ckpt-4"
    assert len(list((folder / "best").glob("*.index"))) == 1
    assert dump_weights(folder, tmp_path / "out" / "weights.hdf5")


@pytest.mark.parametrize("name", ["run[1]", "e\\f", "a]", "b[", os.fsdecode(b"\xff")])
def test_folder_name_that_tensorflow_cannot_read_is_refused(tmp_path, name):
    with pytest.raises(BilmError, match="TensorFlow cannot read a checkpoint in a folder of such"):
        run(tmp_path / name, 1)
    assert not list(tmp_path.iterdir())


def test_tilde_in_paths_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(Path(TEXT).parent, tmp_path / "text")
    shutil.copy(VOCABULARY, tmp_path / "words")
    monkeypatch.setattr("tiny_runs.VOCABULARY", "~/words")
    run("~/run", 1, text="~/text/*", heldout="~/text/*")
    assert (tmp_path / "run" / "model.ckpt-1.index").exists()
    model = load_run("~/run")
    vocab = vocabulary_of("~/words", model.options, model.n_tokens)
    assert perplexity(model, heldout_dataset("~/text/*", vocab, False), 2).n_predictions
    tuned = finetune("~/run", "~/text/*", "~/tuned", vocab="~/words", n_steps=1)
    assert tuned.finished and (tmp_path / "tuned" / "model.ckpt-1.json").exists()
    assert dump_weights("~/run", tmp_path / "weights.hdf5")


@pytest.mark.parametrize("n_before", [0, 2])
def test_vocabulary_edited_after_its_load_is_stored_as_loaded(tmp_path, monkeypatch, n_before):
    words = Path(shutil.copy(VOCABULARY, tmp_path / "words"))
    monkeypatch.setattr("tiny_runs.VOCABULARY", words)
    if n_before:
        run(tmp_path / "run", n_before)
    content = words.read_bytes()
    first, *others = content.splitlines(keepends=True)

    def edit(*given):
        words.write_bytes(b"".join([*others, first]))
        return describe(*given)

    describe = texts.describe_shards  # called after the vocabulary was read
    monkeypatch.setattr(texts, "describe_shards", edit)
    run(tmp_path / "run", n_before + 1)
    assert words.read_bytes() != content
    assert (tmp_path / "run" / "vocab.txt").read_bytes() == content


def test_process_other_than_the_chief_writes_nothing(tmp_path):
    inputs = Inputs(resolve_shards(TEXT), resolve_shards(HELDOUT), Vocabulary(VOCABULARY))
    facts = texts.count(inputs, n_train_tokens=None, check_order=True)
    hosts = Hosts()
    hosts.is_chief = False
    hosts.from_chief = lambda what, make: facts.to_dict() if what == "texts" else make()
    hosts.gather = lambda what, value: [value]
    result = run(tmp_path / "run", 2, heldout=HELDOUT, hosts=hosts)
    assert result.step == 2 and result.heldout is not None
    assert not (tmp_path / "run").exists()


def move(folder):
    folder.rename(folder.with_name("moved"))


def replace(folder):
    shutil.rmtree(folder)
    run(folder, 1)


@pytest.mark.parametrize("change", [move, replace])
@pytest.mark.parametrize("when", ["before a save", "before an evaluation", "while evaluating"])
def test_run_ends_if_its_folder_is_moved_or_replaced(tmp_path, monkeypatch, change, when):
    """Nothing is written to the path, where another process may train by now."""
    folder, done = tmp_path / "run", []
    owner, name = {
        "before a save": (Trainer, "step"),
        "before an evaluation": (CheckpointContent, "write"),
        "while evaluating": (training.Evaluator, "__call__"),
    }[when]
    original = getattr(owner, name)

    def change_and_call(self, *given):
        found = original(self, *given)
        if not done:
            done.append(True)
            change(folder)
            done.append(contents(folder))
        return found

    monkeypatch.setattr(owner, name, change_and_call)
    with pytest.raises(BilmError, match=f"{folder}: was moved or removed during training"):
        run(folder, 4, heldout=HELDOUT, eval_steps=1)
    assert contents(folder) == done[1] and folder.exists() == (change is replace)


def test_second_start_is_refused_before_it_reads_or_writes_a_file(tmp_path, monkeypatch):
    """The first one has the folder from its first file on, also while it counts a long text."""
    match = f"{tmp_path}: another process is training in this folder"
    count = texts.count

    def second_meanwhile(*arguments, **named):
        monkeypatch.setattr(texts, "count", count)
        before = contents(tmp_path)
        with pytest.raises(BilmError, match=match):
            bilm.train(HELDOUT, tmp_path, n_steps=1, n_gpus=0)
        assert contents(tmp_path) == before
        return count(*arguments, **named)

    monkeypatch.setattr(texts, "count", second_meanwhile)
    assert run(tmp_path, 2).finished


def test_foreign_files_are_not_overwritten(tmp_path):
    for name in ("options.json", "vocab.txt", "history.csv"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(BilmError, match=rf"{name}: exists, but"):
            run(folder, 1)
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "mine"


NO_RECORD = [
    b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"step": 3}', b'{"step": "x"}',
    b'{"step": 3, "directions": 5, "mean": 1.0, "n_predictions": 1}',
    b'{"step": 3, "directions": {"forward": "x"}, "mean": null, "n_predictions": null}',
]  # fmt: skip


def test_damaged_heldout_record_is_replaced(a_run):
    record, folder = a_run / "heldout.json", RunFolder(a_run)
    expected = folder.read_measured()
    for content in NO_RECORD:
        record.write_bytes(content)
        assert folder.read_measured() is None
    assert run(a_run, 3, heldout=HELDOUT).heldout == expected.perplexity
    assert folder.read_measured() == expected
