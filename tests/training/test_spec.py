"""The values that describe a run: what a checkpoint stores, what workers compare."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from options_examples import RUN
from tiny_specs import heldout_of, spec_of

from bilm.options.run_options import RunOptions
from bilm.storage.run_record import AutoChoice, Finetuning, RunRecord
from bilm.training.settings import RunSettings
from bilm.training.spec import RunProgress

OPTIONS = RunOptions.from_dict(RUN).replace(n_train_tokens=10_000, batch_size=4, unroll_steps=5)
TEXTS = spec_of(OPTIONS).texts


def test_spec_and_progress_do_not_change():
    for value, name in ((spec_of(OPTIONS), "n_steps"), (RunProgress(), "step")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 7)


def test_record_is_read_as_it_was_written():
    choice = AutoChoice(9, "bfloat16", 2.5, "novels-en")
    finetuning = Finetuning(["novels-en"], {"mean": 7.0}, ["heldout.txt, 9 bytes"])
    spec = spec_of(OPTIONS, 9, heldout_of(40, (3, 5)), auto=choice, finetuning=finetuning)
    progress = RunProgress(4, best=17.5, processor_seconds=12.5)
    record = spec.record(progress)
    again = RunRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert again == replace(record, batch=[4, 4])  # JSON has no tuples
    assert (again.auto, again.finetuning) == (choice, finetuning)
    assert again.heldout == spec.texts.heldout.files
    assert RunOptions.from_dict(again.options, strict=False) == OPTIONS
    assert (again.step, again.best, again.processor_seconds) == (4, 17.5, 12.5)


def test_record_of_an_earlier_version_lacks_what_is_new():
    stored = spec_of(OPTIONS).record(RunProgress()).to_dict()
    del stored["processor_seconds"]
    stored["auto"] = {"n_steps": None, "precision": "float32", "hours": None}
    record = RunRecord.from_dict(stored)
    assert record.processor_seconds == 0 and record.auto == AutoChoice()


def test_steps_and_epochs_follow_from_the_rows_of_all_replicas():
    spec = spec_of(OPTIONS, n_rows=8)
    assert (spec.predictions_a_step, spec.epoch_steps) == (40, 250)
    assert spec.n_epochs(500) == 2.0
    assert spec.options_of_replica(2).batch_size == 4
    assert spec.options.batch_size == 4


def test_pace_changes_length_options_and_schedule_of_the_run_only():
    choice = AutoChoice(None, "float32", 1.0, None)
    spec = spec_of(OPTIONS.replace(decay="linear"), 90, auto=choice)
    changed = spec.with_pace(30, {"dropout": 0.0})
    assert (changed.n_steps, changed.auto.n_steps, changed.options.dropout) == (30, 30, 0.0)
    assert changed.schedule.n_steps == 30
    assert (spec.n_steps, spec.auto.n_steps, spec.options.dropout) == (90, None, OPTIONS.dropout)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("n_steps", {"n_steps": 9}),
        ("seed", {"settings": RunSettings(seed=3)}),
        ("options", {"options": OPTIONS.replace(dropout=0.7)}),
        ("shards", {"texts": replace(TEXTS, text_files=["other.txt, 9 bytes"])}),
        ("batch", {"n_rows": 8}),
        ("precision", {"settings": RunSettings(precision="bfloat16")}),
    ],
)
def test_workers_compare_every_field_by_its_name(name, change):
    spec = spec_of(OPTIONS, 7)
    before, after = spec.described(), replace(spec, **change).described()
    assert [key for key in before | after if before.get(key) != after.get(key)] == [name]


def test_workers_may_name_the_source_of_fine_tuning_differently():
    specs = [spec_of(OPTIONS, finetuning=Finetuning([name])) for name in ("/a/model", "/b/model")]
    assert specs[0].described() == specs[1].described()


def test_place_checksum_depends_on_the_place():
    first, second = ({"forward_rows": np.array([[k, 2]])} for k in range(2))
    assert RunProgress(1, first).place_checksum() != RunProgress(1, second).place_checksum()
    assert RunProgress(1, first).place_checksum() == RunProgress(9, first).place_checksum()
