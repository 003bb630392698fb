"""`bilm info` of each format, and its table of a run's last evaluations."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from command_runs import succeeded
from manylangs_files import write_model
from odd_server import serving
from tiny_runs import N_CHARACTERS, tiny_run, weights_of

from bilm.export.hdf5 import dump_weights
from bilm.storage.finding import registry
from bilm.training.history import History

pytestmark = pytest.mark.usefixtures("cache")
SENTENCE = ["a", "b"]
OF_EXPORT = ("model", "format", "files", "use", "evaluations")  # not equal for a run and its export


def info(run_here, *arguments):
    done = succeeded(run_here("bilm info", *arguments, "--json"))
    return json.loads(done.stdout)


def used(found):
    """Return the vectors that the line of code computes."""
    names = {}
    exec(f"import bilm\n{found['use']}", names)
    return names["embedder"].embed_sentence(SENTENCE)


def test_info_of_a_downloaded_model_lists_its_files(run_here, tmp_path, monkeypatch):
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(registry, "NLPL", address)
        folder = write_model(tmp_path / "144")
        meta = {"id": 144, "language": "eng", "corpus": [{"description": "CoNLL 17"}]}
        (folder / "meta.json").write_text(json.dumps(meta))
        (tmp_path / "served" / "11").mkdir()
        shutil.make_archive(str(tmp_path / "served" / "11" / "144"), "zip", folder)
        found = info(run_here, "nlpl:144")
    assert (found["model"], found["format"]) == ("nlpl:144", "ELMoForManyLangs in an archive")
    assert found["expects"].startswith("words tokenized like the treebanks of Universal Depend")
    names = [Path(file["path"]).name for file in found["files"]]
    assert names[0] == "144.zip" and "meta.json" in names
    assert found["use"] == "embedder = bilm.ElmoEmbedder('nlpl:144')"
    assert used(found).shape == (2, 2, found["vector_dim"])


def test_info_of_a_run_and_its_export(run_here, tmp_path):
    folder = tiny_run("characters")
    run_info = info(run_here, folder)
    weight_file, options_file, _ = dump_weights(folder, tmp_path / "elmo.hdf5", True)
    export_info = info(run_here, options_file, "--weights", weight_file)
    assert run_info["format"] == "run of bilm, model.ckpt-2"
    for name, value in export_info.items():
        assert value == run_info[name] or name in OF_EXPORT, name
    stored = weights_of(folder)
    sizes = {name: array.size for name, array in stored.items()}
    softmax = sum(size for name, size in sizes.items() if name.startswith("softmax"))
    found = run_info["parameters"], run_info["softmax_parameters"], run_info["vocabulary"]
    assert found == (sum(sizes.values()) - softmax, softmax, 49)
    assert (run_info["max_word_bytes"], run_info["stored_as"]) == (N_CHARACTERS - 2, ["float32"])
    assert run_info["embedder_bytes"] == 4 * run_info["parameters"]
    for file in export_info["files"]:
        content = Path(file["path"]).read_bytes()
        assert file["bytes"] == len(content)
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
    assert [Path(f["path"]) for f in export_info["files"]][:2] == [options_file, weight_file]
    assert used(export_info).shape == (3, 2, run_info["vector_dim"])


def change_lstm(run):
    values = json.loads((run / "options.json").read_text())
    values["lstm"]["dim"] += 1
    (run / "options.json").write_text(json.dumps(values))


def shorten_vocabulary(run):
    path = run / "vocab.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


PROBLEMS = {
    r"model\.ckpt-2: .*shape": change_lstm,
    r"vocab\.txt: contains 48 words, but the model was trained with 49": shorten_vocabulary,
    r"vocab\.txt": lambda run: (run / "vocab.txt").unlink(),
    r"model\.ckpt-9: not a whole checkpoint": lambda run: (run / "model.ckpt-9.index").touch(),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_info_lists_problems(problem, run_here, tmp_path):
    run = shutil.copytree(tiny_run("characters"), tmp_path / "run")
    assert info(run_here, run)["problems"] == []
    PROBLEMS[problem](run)
    (found,) = info(run_here, run)["problems"]
    assert re.search(problem, found)
    lines = run_here("bilm info", run).stdout.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("problems ")] == [found]


def test_info_shows_the_last_evaluations_of_a_run(run_here, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    run = shutil.copytree(tiny_run("characters"), tmp_path / "run")
    history = History(run / "history.csv")
    for step in range(30):
        history.add(step, loss_forward=5 - step / 1e5, learning_rate=0.2)
        if step % 2 == 0:
            history.add(step, heldout_perplexity=200 - step)
    history.write()
    found = info(run_here, run)["evaluations"]
    assert [row["step"] for row in found] == [str(step) for step in range(10, 30, 2)]
    assert found[-1]["heldout_perplexity"] == "172"
    lines = run_here("bilm info", run).stdout.splitlines()
    assert lines[-2].split() == ["28", "4.9997", "0.2", "172"]
    assert "perplexity" in "".join(lines[-14:-12])


@pytest.mark.parametrize("content", [None, "step,other\n1,\x1b[31m\n"])
def test_info_of_a_run_without_or_with_a_damaged_history(content, run_here, tmp_path):
    run = shutil.copytree(tiny_run("characters"), tmp_path / "run")
    (run / "history.csv").unlink()
    if content is not None:
        (run / "history.csv").write_text(content)
    done = run_here("bilm info", run)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert ("not the history of a run" in done.stderr) == (content is not None)
    assert info(run_here, run)["evaluations"] == []
