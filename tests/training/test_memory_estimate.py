"""What a run will take, estimated before it starts."""

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from tiny_runs import VARIANTS, run, tiny_options

from bilm.language_model import BiLM
from bilm.options.model_options import count_parameters
from bilm.options.run_options import load_run_options
from bilm.storage.names import stored_values
from bilm.training import memory_estimate


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameter_count_matches_the_model(variant):
    n_tokens, options = 49, tiny_options(**VARIANTS[variant]).model
    model = BiLM(options, n_tokens, softmax=True)
    model.build()
    n_parameters, _ = count_parameters(options, n_tokens)
    assert n_parameters == sum(value.size for value in stored_values(model).values())


def test_memory_estimate_is_logged(tmp_path, log, monkeypatch):
    run(tmp_path / "fits", 1)
    assert "parameters; a replica needs about" in log.text and "are needed" not in log.text
    monkeypatch.setattr(memory_estimate, "machine_memory", lambda: 1_000)
    run(tmp_path / "does not fit", 1)
    assert "are needed, but this machine has 0.00 MB: the run may be killed" in log.text


def test_memory_estimate_of_the_sampled_softmax():
    original = load_run_options("original_2018")
    memory = memory_estimate.estimate_memory(original, 793_471)
    n_parameters, _ = count_parameters(original.model, 793_471)
    assert memory.weights == memory.slots == 4 * n_parameters
    assert memory.gradients < memory.weights / 2
    adam = memory_estimate.estimate_memory(original.replace(optimizer="adam"), 793_471)
    assert adam.slots == 2 * memory.slots
    full = memory_estimate.estimate_memory(original.replace(sample_softmax=False), 793_471)
    assert full.gradients == full.weights and full.activations > memory.activations
    assert 0 < memory_estimate.machine_memory() < 1 << 60
