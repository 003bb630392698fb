"""The JSON file of a checkpoint: what is written is read; other content is refused by name."""

import json
import math

import pytest

from bilm.errors import WeightsError
from bilm.storage.run_record import AutoChoice, RunRecord

RECORD = RunRecord(
    step=6, n_steps=12, seed=3, batch=(4, 2), shards=["a.txt, 1406 bytes"], vocabulary="0" * 64,
    options={"optimizer": "muon"},
)  # fmt: skip


def write(folder, values):
    path = folder / "model.ckpt-6"
    path.with_name("model.ckpt-6.json").write_text(json.dumps(values))
    return str(path)


@pytest.mark.parametrize("best", [None, 5.0, math.inf])
def test_run_record_is_read_as_it_was_written(tmp_path, best):
    record = RECORD.replace(best=best, auto=AutoChoice(n_steps=12))
    stored = RunRecord.read(write(tmp_path, record.to_dict()))
    assert stored.to_dict() == json.loads(json.dumps(record.to_dict()))
    assert (stored.n_rows, stored.finetuning) == (4, None)


def test_run_record_of_a_later_version_keeps_unknown_values(tmp_path):
    stored = RunRecord.read(write(tmp_path, RECORD.to_dict() | {"later": [1]}))
    assert stored.to_dict() == json.loads(json.dumps(RECORD.to_dict())) | {"later": [1]}


def test_run_record_that_is_missing_is_none(tmp_path):
    assert RunRecord.read(str(tmp_path / "model.ckpt-6")) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "top level: found "),
        ({}, "step: missing"),
        ({"seed": -1}, "seed: found -1, expected an integer from 0"),
        ({"batch": [4]}, "batch: found "),
        ({"batch": 4}, "batch: found 4"),
        ({"best": "5"}, 'best: found "5", expected a perplexity'),
        ({"shards": "a.txt"}, "shards: found "),
        ({"options": None}, "options: found null, expected an object"),
        ({"finetuning": []}, "finetuning: found "),
    ],
)
def test_run_record_with_a_wrong_value_is_refused_by_name(tmp_path, values, message):
    content = RECORD.to_dict() | values if values else values
    with pytest.raises(WeightsError, match=rf"model\.ckpt-6\.json: {message}") as error:
        RunRecord.read(write(tmp_path, content))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_run_record_that_is_no_json_is_refused(tmp_path, content):
    (tmp_path / "model.ckpt-6.json").write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.ckpt-6\.json: invalid JSON: "):
        RunRecord.read(str(tmp_path / "model.ckpt-6"))
