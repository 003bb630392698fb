"""What stands for a model in a command: `bilm info` of each format, and one MODEL for all."""

import hashlib
import json
import shutil
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the commands are TensorFlow's", allow_module_level=True)
from command_runs import assert_fails
from manylangs_files import write_model
from odd_server import serving
from stored_files import OPTIONS, WEIGHTS
from tiny_runs import GOLDEN, HELDOUT, tiny_run, weights_of

from bilm.description import describe
from bilm.storage import registry
from bilm.storage.cache import RECORD
from bilm.training.export import dump_weights

CHECKPOINT = GOLDEN / "checkpoint" / "chars"
SENTENCE = ["a", "b"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def info(run_here, *arguments):
    done = run_here("bilm info", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def used(found):
    """The vectors that the line of code gives."""
    names = {}
    exec(f"import bilm\n{found['use']}", names)
    return names["embedder"].embed_sentence(SENTENCE)


def test_a_model_of_a_repository(run_here, tmp_path, monkeypatch):
    """With what the repository says of it, on a line per key, and where its archive is."""
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(registry, "NLPL", address)
        folder = write_model(tmp_path / "144")
        meta = {"id": 144, "language": "eng", "corpus": [{"description": "CoNLL 17"}]}
        (folder / "meta.json").write_text(json.dumps(meta))
        (tmp_path / "served" / "11").mkdir()
        shutil.make_archive(str(tmp_path / "served" / "11" / "144"), "zip", folder)
        done = run_here("bilm info", "nlpl:144", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["format"]) == ("nlpl:144", "ELMoForManyLangs in an archive")
    assert found["metadata"] == meta
    assert found["expects"].startswith("words as treebanks of Universal Dependencies")
    assert found["files"][0]["path"].endswith("/144.zip")
    assert found["use"] == "embedder = bilm.ElmoEmbedder('nlpl:144')"
    assert used(found).shape == (2, 2, found["vector_dim"])
    lines = run_here("bilm info", "nlpl:144").stdout.splitlines()
    rows = [line.split(maxsplit=1) for line in lines]
    assert ["metadata", "language: eng"] in rows
    assert ["metadata", 'corpus: [{"description": "CoNLL 17"}]'] in rows


def test_a_run_in_an_archive(tmp_path):
    archive = shutil.make_archive(str(tmp_path / "elmo_checkpoint"), "gztar", CHECKPOINT)
    found, expected = describe(archive), describe(CHECKPOINT)
    assert found["format"] == "run of the TensorFlow 1 reference, model.ckpt-630 in an archive"
    same = set(expected) - {"model", "format", "files", "use"}
    assert {key: found[key] for key in same} == {key: expected[key] for key in same}
    assert found["files"][0]["path"] == archive
    assert used(found).shape == (3, 2, found["vector_dim"])


def test_a_model_in_the_package(tmp_path, monkeypatch):
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, folder)
    (folder / "README.md").write_text("# tiny\n")
    monkeypatch.setattr(registry, "PACKAGED", folder.parent)
    found = describe("tiny")
    assert (found["format"], found["card"]) == ("bilm-tf", str(folder / "README.md"))
    assert used(found).shape[1:] == (2, found["vector_dim"])


def test_a_run_that_reads_words(tmp_path):
    run = shutil.copytree(GOLDEN / "checkpoint" / "tokens", tmp_path / "run")
    shutil.copy(GOLDEN / "data" / "vocab.txt", run)
    found = describe(run)
    assert found["use"].endswith(f", vocab_file='{run / 'vocab.txt'}')")
    assert used(found).shape[1:] == (2, found["vector_dim"])


def test_a_download_that_changed_is_told(tmp_path, log):
    shutil.copy(OPTIONS, tmp_path)
    weights = shutil.copy(WEIGHTS, tmp_path)
    (tmp_path / RECORD).write_text(json.dumps({"sha256": "0" * 64}))
    describe(tmp_path / "options.json", weights)
    assert f"{weights}: has changed since it was downloaded: SHA-256 was 000" in log.text


def test_a_run_its_export_and_an_archive_are_measured_alike(run_here, tmp_path):
    run, folder = tiny_run("characters"), tmp_path / "elmo"
    dump_weights(run, folder, include_softmax=True)
    archive = shutil.make_archive(str(tmp_path / "m"), "gztar", folder)
    printed = []
    for model in (run, folder, archive):
        done = run_here("bilm test", "--model", model, "--input", HELDOUT, "--batch_size", 2)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1] == printed[2] and "AVERAGE PERPLEXITY = " in printed[0]
    arguments = ["--model", folder, "--input", HELDOUT, "--batch_size", 2, "--start", "checkpoint"]
    assert_fails(run_here("bilm test", *arguments), f"{folder}: no whole checkpoint in this folder")


def test_info_of_a_run_and_its_export(run_here, tmp_path):
    folder = tiny_run("characters")
    run_info = info(run_here, folder)
    weight_file, options_file, _ = dump_weights(folder, tmp_path / "elmo.hdf5", True)
    export_info = info(run_here, options_file, "--weights", weight_file)
    assert run_info["format"] == "run of bilm, model.ckpt-2"
    for name, value in export_info.items():
        assert value == run_info[name] or name in ("model", "format", "files", "use"), name
    stored = weights_of(folder)
    sizes = {name: array.size for name, array in stored.items()}
    softmax = sum(size for name, size in sizes.items() if name.startswith("softmax"))
    found = run_info["parameters"], run_info["softmax_parameters"], run_info["vocabulary"]
    assert found == (sum(sizes.values()) - softmax, softmax, 49)
    assert (run_info["max_word_bytes"], run_info["stored_as"]) == (48, ["float32"])
    assert run_info["embedder_bytes"] == 4 * run_info["parameters"]
    for file in export_info["files"]:
        content = Path(file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (
            len(content),
            hashlib.sha256(content).hexdigest(),
        )
    assert [Path(f["path"]) for f in export_info["files"]][:2] == [options_file, weight_file]
    names = {}
    exec(f"import bilm\n{export_info['use']}", names)
    assert names["embedder"].embed_sentence(["a", "b"]).shape == (3, 2, run_info["vector_dim"])


def test_info_of_a_model_that_reads_words(run_here, tmp_path):
    folder = tiny_run("shared_softmax")
    dump_weights(folder, tmp_path / "weights.hdf5")
    for model in (folder, tmp_path):
        found = info(run_here, model)
        assert (found["reads"], found["vocabulary"], found["max_word_bytes"]) == ("words", 49, None)
    assert found["parameters"] == sum(
        v.size for n, v in weights_of(folder).items() if "soft" not in n
    )
    assert found["softmax_parameters"] == 0


def test_info_of_lexicons(run_here):
    found = info(run_here, GOLDEN / "manylangs" / "word_and_char_legacy")
    assert (found["format"], found["reads"]) == (
        "ELMoForManyLangs",
        "words and characters of lexicons",
    )
    assert (found["character_filters"], found["highway_layers"]) == (12, 2)
    assert (found["max_word_characters"], found["stored_as"]) == (12, ["float32"])


def test_info_to_read(run_here):
    case = GOLDEN / "checkpoint" / "chars"
    done = run_here("bilm info", case)
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert ["format", "run of the TensorFlow 1 reference, model.ckpt-630"] in rows
    assert ["vocabulary", "49 words"] in rows
    assert_fails(run_here("bilm info", case / "nowhere"), "nowhere: no such file or folder")
