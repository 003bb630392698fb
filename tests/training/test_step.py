"""The training step against what the reference measured."""

import json

import h5py
import numpy as np
import pytest
import tensorflow as tf
from conftest import golden_cases
from stored_files import stored_values
from tiny_runs import WORDS, on_cpu, tiny_options

from bilm.data.windows import model_batch
from bilm.layers.sampled_softmax import Negatives
from bilm.options.run_options import RunOptions, load_run_options
from bilm.storage.checkpoint import ROWS
from bilm.storage.formats.rows import variables_of
from bilm.storage.hdf5 import datasets_of
from bilm.training.devices import Devices
from bilm.training.optimizer import OPTIMIZERS
from bilm.training.sampling import expected_count
from bilm.training.step import Trainer

N_STEPS = 6


def golden_batches(golden, options, n_replicas):
    """The ids and draws that the reference was fed, one batch per replica, step by step."""
    for step in range(N_STEPS):
        group = golden[f"step_{step}"]
        window = {name: dataset[...] for name, dataset in group["batch"].items()}
        batches = []
        for replica in range(n_replicas):
            rows = slice(replica * options.batch_size, (replica + 1) * options.batch_size)
            batch = model_batch({k: v[rows] for k, v in window.items()}, options.model)
            if options.sample_softmax:
                draws = group[f"negatives/replica_{replica}"]
                batch["negatives"] = {
                    d: Negatives(
                        draws[d]["sampled_candidates"][...].astype(np.int32),
                        draws[d]["sampled_expected_count"][...],
                        draws[d]["true_expected_count"][...].reshape(-1),
                    )
                    for d in batch["targets"]
                }
            batches.append(tf.nest.map_structure(as_int64, batch))
        yield batches


def as_int64(array):
    return array.astype(np.int64) if array.dtype == np.int32 else array


@pytest.mark.parametrize("folder", golden_cases("training"))
def test_golden_training(folder, tmp_path):
    options_file = tmp_path / "options.json"
    options = json.loads((folder / "options.json").read_text())
    n_replicas, n_tokens = options.pop("n_replicas"), options["n_tokens_vocab"]
    options_file.write_text(json.dumps(options))
    options = load_run_options(options_file)
    trainer = Trainer(options, n_tokens, Devices(on_cpu(n_replicas)))
    with h5py.File(folder / "golden.hdf5") as golden:
        initial = golden["initial"]
        stored = variables_of(datasets_of(initial), ROWS, folder)
        variables = trainer.model.stored_variables()
        assert set(stored) == set(variables)
        with trainer.devices.strategy.scope():
            for name, variable in variables.items():
                variable.assign(np.asarray(stored[name]))
        batches = golden_batches(golden, options, n_replicas)
        for step in range(N_STEPS):
            expected = golden[f"step_{step}"]
            result = trainer.step(trainer.devices.place(next(batches)), step)
            norm = expected["global_norm_before_clip"][()]
            np.testing.assert_allclose(result.losses, expected["losses"], rtol=1e-5)
            means = np.mean(result.losses, axis=1)
            np.testing.assert_allclose(means, expected["total_loss"], rtol=1e-5)
            np.testing.assert_allclose(result.global_norm, norm, rtol=1e-5)
            states = final_state(expected, n_replicas)
            for found, value in zip(trainer.global_state(), states, strict=True):
                np.testing.assert_allclose(found, value, atol=2e-5)
        final = variables_of(datasets_of(golden["final"]), ROWS, folder)
        for name, value in stored_values(trainer.model).items():
            np.testing.assert_allclose(value, np.asarray(final[name]), atol=2e-5, err_msg=name)


@pytest.mark.parametrize("n_replicas", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_step_does_not_read_whole_tables_of_words(n_replicas, optimizer):
    n_tokens = 1009
    options = tiny_options(**WORDS, n_negative_samples_batch=8, optimizer=optimizer)
    trainer = Trainer(options, n_tokens, Devices(on_cpu(n_replicas)))
    step = trainer._step.get_concrete_function()
    operations = step.graph.get_operations()
    read = [op.outputs[0].shape for op in operations if op.type == "ReadVariableOp"]
    assert read and not [shape for shape in read if shape.rank and shape[0] == n_tokens]


def final_state(step, n_replicas):
    """The reference's states, those of all replicas joined row-wise."""
    arrays = [step["final_state"][name][...] for name in sorted(step["final_state"])]
    per_replica = len(arrays) // n_replicas
    for k in range(per_replica):
        yield np.concatenate(arrays[k::per_replica])


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_state_reset_probability_resets_whole_rows_per_direction(probability):
    values = json.loads((golden_cases("training")[0].values[0] / "options.json").read_text())
    del values["n_replicas"]
    values |= {"state_reset_probability": probability, "batch_size": 400}
    options = RunOptions.from_dict(values)
    trainer = Trainer(options, 49, Devices(on_cpu()))
    ones = [np.ones_like(array) for array in trainer.global_state()]
    trainer.set_state(ones)
    reset = trainer.devices.strategy.run(trainer._reset_rows, args=(trainer.state, tf.constant(3)))
    arrays = [tensor.numpy() for tensor in reset]
    for array in arrays:
        assert ((array == 0).all(axis=1) | (array == 1).all(axis=1)).all()  # whole rows
    n_parts = len(arrays) // 2
    for direction in (arrays[:n_parts], arrays[n_parts:]):
        kept = direction[0][:, 0]
        assert abs(kept.mean() - (1 - probability)) < 0.1
        assert all((part[:, 0] == kept).all() for part in direction)  # every layer of a row
    assert probability == 0 or (arrays[0][:, 0] != arrays[n_parts][:, 0]).any()


def test_initial_softmax_biases():
    biases = {}
    for name in ("zeros", "log_uniform"):
        options = tiny_options(softmax_bias=name)
        biases[name] = Trainer(options, 50, Devices(on_cpu())).model.softmax.bias.numpy()
    assert not biases["zeros"].any()
    np.testing.assert_allclose(np.exp(biases["log_uniform"]).sum(), 1, rtol=1e-6)
    drawn = expected_count(np.arange(50), 50, 1)
    np.testing.assert_allclose(np.exp(biases["log_uniform"]), drawn, rtol=1e-5)


def test_step_after_a_change_of_regularization_compiles():
    options = tiny_options(**WORDS, dropout=0.1)
    trainer = Trainer(options, 50, Devices(on_cpu()))
    trainer.is_compiled = True
    trainer.change(options.replace(learning_rate=0.5), trainer.schedule)
    assert trainer.is_compiled
    trainer.change(options.replace(dropout=0.2), trainer.schedule)
    assert not trainer.is_compiled
