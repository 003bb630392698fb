"""Early evaluations on a part of the held-out text, and what is said of their time."""

import json
import logging
import re

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from tiny_runs import HELDOUT, VOCABULARY, run, tiny_options

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import OptionsError
from bilm.training import report
from bilm.training.inputs import read_heldout
from bilm.training.run_folder import RunFolder

PART = 5  # sentences


def n_predictions(reader):
    return sum(int(window["mask"].sum()) for window in reader.iter_evaluation(2, 8))


def readers(max_sentences):
    options = tiny_options(bidirectional=False)
    return read_heldout(resolve_shards(HELDOUT), Vocabulary(VOCABULARY), options, max_sentences)


@pytest.mark.parametrize("max_sentences", [1, PART, 7])
def test_heldout_part_is_spread_over_the_text(max_sentences):
    sentences = list(resolve_shards(HELDOUT).sentences())
    whole, part = readers(max_sentences)
    stride = -(-len(sentences) // max_sentences)
    chosen = sentences[::stride]
    assert 0 < len(chosen) <= max_sentences
    assert n_predictions(part) == sum(len(words) + 1 for words in chosen)
    assert n_predictions(whole) == sum(len(words) + 1 for words in sentences)


def test_heldout_part_of_all_sentences_is_the_whole():
    n_sentences = sum(1 for _ in resolve_shards(HELDOUT).sentences())
    for enough in (None, n_sentences, 10**9):
        whole, part = readers(enough)
        assert whole is part


@pytest.mark.parametrize("number", [0, -3])
def test_heldout_part_of_no_sentence_is_refused(number):
    with pytest.raises(OptionsError, match=f"heldout_sentences: found {number}, expected an int"):
        readers(number)


def test_heldout_part_is_measured_until_the_end(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(report, "MUCH", 0.0)  # any time is much
    with caplog.at_level(logging.INFO, "absl"):
        result = run(tmp_path, heldout=HELDOUT, eval_steps=2, heldout_sentences=PART)
    whole, part = map(n_predictions, readers(PART))
    assert result.heldout.n_predictions == whole > part
    step, measured = RunFolder(tmp_path).read_measured()[:2]
    assert (step, measured) == (4, result.heldout)
    said = [m for m in caplog.messages if "held-out perplexity from zero state" in m]
    assert ["part of the text" in m for m in said] == [True, True, False]
    assert sum("evaluations took" in m for m in caplog.messages) == 1
    assert not any("--heldout_sentences" in m for m in caplog.messages)  # it is in use


def test_heldout_part_selects_the_best_checkpoint(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "absl"):
        run(tmp_path, n_steps=2, heldout=HELDOUT, eval_steps=2, heldout_sentences=PART)
    (said,) = [m for m in caplog.messages if m.startswith("best on held-out text")]
    assert len({a or b for a, b in re.findall(r"perplexity ([\d.]+)|last: ([\d.]+)", said)}) == 1
    folder = RunFolder(tmp_path)
    best, whole = folder.find_best().best, folder.read_measured().perplexity
    assert best != whole.mean
    # What is kept in `best` came from the part: the next evaluation of the same part finds it.
    again = tmp_path.parent / "whole"
    run(again, n_steps=2, heldout=HELDOUT, eval_steps=2)
    of_both = [json.loads((f / "heldout.json").read_text()) for f in (tmp_path, again)]
    assert [record.pop("part_mean") for record in of_both] == [best, whole.mean]
    part, text = [record.pop("text") for record in of_both]
    assert part[:-1] == text and re.fullmatch(r"every \d+ sentences the first", part[-1])
    assert of_both[0] == of_both[1]
    assert RunFolder(again).find_best().best == whole.mean
