"""Which devices a run takes, what TensorFlow says of them replaced; memory and types there."""

import os
import sys
import types

import pytest
import tensorflow as tf
from command_runs import output_of
from tiny_runs import WORDS, tiny_options
from tiny_specs import spec_of

from bilm.errors import BilmError
from bilm.training import devices
from bilm.training.decisions import Timing
from bilm.training.devices import Devices, make_strategy
from bilm.training.history import History
from bilm.training.report import RunReport
from bilm.training.settings import RunSettings
from bilm.training.step import StepResult


@pytest.fixture
def machine(monkeypatch):
    """A machine with three GPUs; `started` says whether TensorFlow computes already."""
    found = types.SimpleNamespace(started=False, visible=["g0", "g1", "g2"], used=None)

    def set_visible(chosen, kind):
        assert kind == "GPU"
        if found.started:
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        found.visible = list(chosen)

    config = devices.tf.config
    monkeypatch.setattr(config, "list_physical_devices", lambda kind: ["g0", "g1", "g2"])
    monkeypatch.setattr(config, "set_visible_devices", set_visible)
    monkeypatch.setattr(config, "get_visible_devices", lambda kind: found.visible)
    experimental = config.experimental
    monkeypatch.setattr(
        experimental, "get_device_details", lambda gpu: {"compute_capability": (9, 0)}
    )
    strategy = types.SimpleNamespace(MirroredStrategy=lambda names: setattr(found, "used", names))
    monkeypatch.setattr(devices.tf, "distribute", strategy)
    return found


@pytest.mark.parametrize(
    ("arguments", "visible", "used"),
    [
        ({}, ["g0", "g1", "g2"], ["GPU:0", "GPU:1", "GPU:2"]),
        ({"gpus": [2]}, ["g2"], ["GPU:0"]),
        ({"gpus": [2, 0]}, ["g2", "g0"], ["GPU:0", "GPU:1"]),
        ({"n_gpus": 2}, ["g0", "g1"], ["GPU:0", "GPU:1"]),
        ({"n_gpus": 0}, [], ["CPU:0"]),
    ],
)
def test_unused_gpus_are_hidden(machine, arguments, visible, used):
    make_strategy(**arguments)
    assert (machine.visible, machine.used) == (visible, used)


def test_gpu_memory_is_allocated_as_needed(machine, monkeypatch):
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    monkeypatch.setenv(name, "false")
    make_strategy()
    assert os.environ[name] == "false"  # the user's choice
    monkeypatch.delenv(name)
    make_strategy()
    assert os.environ[name] == "true"


def test_gpus_keep_their_numbers_once_tensorflow_has_started(machine):
    machine.started = True
    make_strategy([2])
    assert machine.used == ["GPU:2"]
    machine.visible = ["g1", "g2"]
    make_strategy([2])
    assert machine.used == ["GPU:1"]


@pytest.mark.parametrize("arguments", [{"gpus": [99]}, {"gpus": [-1]}, {"n_gpus": 99}])
def test_missing_gpus_are_refused(arguments):
    with pytest.raises(BilmError, match=r"GPU -?\d+ was requested, but TensorFlow finds"):
        make_strategy(**arguments)


def test_cpu_replicas_after_tensorflow_has_started():
    n_there = len(tf.config.list_logical_devices("CPU"))
    with pytest.raises(BilmError, match=f"has started with {n_there}"):
        make_strategy(n_gpus=0, cpu_replicas=n_there + 1)


def test_devices_are_named_and_counted():
    devices = Devices(make_strategy(n_gpus=0, cpu_replicas=2))
    assert (str(devices), devices.n_replicas) == ("CPU:0, CPU:1", 2)
    assert Devices(make_strategy(n_gpus=0)).n_replicas == 1


def test_report_shows_the_mean_loss_since_the_report_before(log):
    options = tiny_options(**WORDS, n_train_tokens=50)
    spec = spec_of(options, 9, settings=RunSettings(log_steps=4))
    report = RunReport(spec, History(None))
    for done in range(1, 10):
        result = StepResult(tf.constant([[float(done)]]), tf.constant(1.0), 0.2)
        timing = Timing(now=done, n_steps=done - 1, trained=done)
        report.add(spec, done, result, timing, done == 1)
    for mean in (1.0, 2.5, 6.5, 9.0):  # of steps 1, 1 to 4, 5 to 8, 9
        assert f"sampled loss {mean:.3f}, " in log.text
    assert log.text.count("sampled loss") == 4


MEMORY = """
import resource
import tensorflow as tf
from bilm.layers.sampled_softmax import SampledSoftmax
layer = SampledSoftmax(20 * 32_768, 2)
layer.build()
hidden, targets = tf.random.normal((400, 2)), tf.zeros((400,), tf.int64)

@tf.function
def step(hidden):
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        loss = tf.reduce_sum(layer(hidden, targets))
    return tape.gradient(loss, [hidden, layer.kernel.value, layer.bias.value])

step(hidden[:1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(hidden)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_full_softmax_memory_is_one_slice_of_the_vocabulary():
    unit = 1 if sys.platform == "darwin" else 1024
    slices = int(output_of(MEMORY)) * unit / (400 * 32_768 * 4)
    assert slices < 10  # of 20, each with its scores, their exponentials and the gradient
