"""The model card of an export: YAML head, facts of the run, existing files."""

import hashlib
import re
import shutil

import pytest
from conftest import GOLDEN
from pages import blocks, run_blocks
from tiny_runs import three_steps

from bilm.export.hdf5 import dump_weights
from bilm.export.model_card import write_card
from bilm.storage.stored_model import open_model


@pytest.fixture
def export(tmp_path):
    written = dump_weights(three_steps(), tmp_path / "novels", include_softmax=True)
    return written, write_card(open_model(three_steps()), written)


def rows(text):
    """The tables of a card, by the first column."""
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE))


def test_model_card_head_is_yaml(export):
    yaml = pytest.importorskip("yaml", reason="the extra test brings it")
    _, card = export
    _, head, body = card.read_text(encoding="utf-8").split("---\n", 2)
    values = yaml.safe_load(head)
    assert values["library_name"] == "bilm-keras" and "elmo" in values["tags"]
    assert not {"language", "license", "datasets"} & set(values)  # nobody has said
    assert body.startswith("\n# novels\n")


def test_model_card_contains_the_facts_of_the_run(export):
    written, card = export
    assert card.name == "README.md" and card.parent == written[0].parent
    found = rows(card.read_text(encoding="utf-8"))
    assert found["steps"] == "3 of 3" and found["vocabulary"] == "49"
    assert found["n_train_tokens"] == "358" and found["n_epochs"].endswith(" read")
    assert found["optimizer"] == "adagrad" and found["reads"] == "words"
    measured = r"[\d.]+ \(running text\), over 248 predictions"
    assert re.fullmatch(measured, found["held-out perplexity"])
    for path in written:
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        assert found[path.name] == f"{len(content):,} bytes, SHA-256 `{sha256}`"
    text = card.read_text(encoding="utf-8")
    assert found["corpus"].startswith("a.txt, 1406 bytes")
    assert "AllenNLP's `Elmo` cannot load it: it reads" in text
    assert "To be written by the author" in text
    ((_, code),) = blocks("python", text)
    assert 'ElmoEmbedder("options.json", "weights.hdf5", vocab_file="vocab.txt")' in code


def test_model_card_code_runs(export, monkeypatch):
    _, card = export
    shutil.copy(three_steps() / "vocab.txt", card.parent)
    monkeypatch.chdir(card.parent)
    names = run_blocks(card.read_text(), card)
    assert names["vectors"].shape == (2, 3, 4)


def test_model_card_that_exists_is_kept(export, log):
    written, card = export
    before = card.read_text(encoding="utf-8")
    changed = before.replace("To be written by the author", "For novels")
    card.write_text(changed, encoding="utf-8")
    assert write_card(open_model(three_steps()), written) is None
    assert card.read_text(encoding="utf-8") == changed
    assert "README.md: exists and was not replaced" in log.text
    card.unlink()
    assert write_card(open_model(three_steps()), written) == card
    assert card.read_text(encoding="utf-8") == before


def test_model_card_of_a_reference_checkpoint(tmp_path):
    model = open_model(GOLDEN / "checkpoint" / "chars")
    card = write_card(model, dump_weights(model, tmp_path / "out"))
    text = card.read_text(encoding="utf-8")
    assert "from: run of the TensorFlow 1 reference, model.ckpt-630." in text
    assert not {"steps", "seed", "held-out perplexity"} & set(rows(text))
