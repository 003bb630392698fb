"""Each command with each form of the same stored model: the results are equal."""

import shutil

import numpy as np
import pytest
from command_runs import assert_fails, succeeded
from tiny_runs import HELDOUT, before_last_save, made_once, three_steps, tiny_run

from bilm.embedding.corpus import Parts
from bilm.export.hdf5 import dump_weights
from bilm.storage.stored_model import open_model

FORMS = ("run", "its index", "archive of the run", "export", "its files", "archive of the export")
SOME = FORMS[0], FORMS[1], FORMS[5]
SENTENCES = "the end .\nline 3 of the text\n"


def given(kind, form):
    """Return the options that name a tiny model of a kind in a form."""
    run, export = tiny_run(kind), made_once(f"export of {kind}", lambda to: exported(kind, to))
    packed = {"run": run, "export": export}
    if form.startswith("archive"):
        name = form.rpartition(" ")[2]
        made = made_once(f"archive of {name} of {kind}", lambda to: archived(packed[name], to))
        return "--model", made / "model.tar.gz"
    if form in packed:
        return "--model", packed[form]
    weights = next(run.glob("*.index")) if form == "its index" else export / "weights.hdf5"
    return "--model", weights.with_name("options.json"), "--weights", weights


def exported(kind, folder):
    dump_weights(tiny_run(kind), folder, include_softmax=True)
    shutil.copy(tiny_run(kind) / "vocab.txt", folder)


def archived(folder, to):
    to.mkdir()
    shutil.make_archive(str(to / "model"), "gztar", folder)


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(SENTENCES)
    return path


@pytest.mark.parametrize(("kind", "forms"), [("characters", FORMS), ("words", ("run", "export"))])
def test_embed_writes_equal_vectors_for_each_form(kind, forms, run_here, text, tmp_path):
    found = []
    for form in forms:
        out = tmp_path / f"{form}.npz"
        succeeded(run_here("bilm embed", *given(kind, form), "--input", text, "--output", out))
        found.append(dict(np.load(out)))
    for other in found:
        np.testing.assert_array_equal(other["vectors"], found[0]["vectors"])
        np.testing.assert_array_equal(other["offsets"], [0, 3, 8])


@pytest.mark.parametrize(
    ("command", "forms", "flags"),
    [
        ("bilm score", FORMS, ["--input", "TEXT"]),
        ("bilm substitutes", SOME, ["--sentence", "the end .", "--position", "1", "--json"]),
        ("bilm test", SOME, ["--input", HELDOUT, "--batch_size", "2"]),
    ],
)
def test_scores_are_equal_for_each_form(command, forms, flags, run_here, text):
    flags = [text if flag == "TEXT" else flag for flag in flags]
    printed = []
    for form in forms:
        done = succeeded(run_here(command, *given("characters", form), *flags))
        printed.append(done.stdout)
    assert printed[0] != "" and set(printed) == {printed[0]}


@pytest.mark.parametrize("form", ["run", "export"])
def test_models_that_read_words_have_no_saved_model_or_onnx(form, run_here, tmp_path):
    for to in ("saved_model", "onnx"):
        out = "--to", to, "--output", tmp_path / "out"
        done = run_here("bilm export", *given("words", form), *out)
        assert_fails(done, "requires a model that reads characters; this model reads words")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["export", "archive of the export"])
def test_exported_model_is_exported_again(form, run_here, tmp_path):
    flags = "--output", tmp_path / "out", "--include_softmax"
    succeeded(run_here("bilm export", *given("characters", form), *flags))
    expected = open_model(given("characters", "export")[1])
    found = open_model(tmp_path / "out")
    assert found.softmax.words == expected.softmax.words
    kernels = [np.asarray(model.softmax.tensors["softmax/W"]) for model in (found, expected)]
    np.testing.assert_array_equal(*kernels)
    assert set(found.tensors) == set(expected.tensors)
    for name, tensor in found.tensors.items():
        np.testing.assert_array_equal(tensor, expected.tensors[name])


def test_embed_does_not_use_parts_of_an_older_checkpoint(run_here, text, tmp_path, monkeypatch):
    """The run is trained further while its vectors are computed and interrupted."""
    run, out = tmp_path / "run", tmp_path / "out.npz"
    before_last_save(three_steps(), 3, run)
    flags = ["--model", run, "--input", text, "--output", out]
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "merge", interrupted)
        done = run_here("bilm embed", *flags)
    *_, hint, last = done.stderr.splitlines()
    assert hint == f"{out}.parts: contains the finished parts; the same command continues"
    assert (done.returncode, last) == (130, "interrupted")
    for path in three_steps().glob("model.ckpt-3*"):
        shutil.copy(path, run)
    for output in (out, tmp_path / "anew.npz"):
        flags[-1] = output
        assert run_here("bilm embed", *flags).returncode == 0
    assert out.read_bytes() == (tmp_path / "anew.npz").read_bytes()
