"""Whether a GPU can run the training step and the embedder, from TensorFlow's registry of kernels.

The step is traced for the second logical CPU device; the host's operations name the first one.
"""

import pytest
import tensorflow as tf
from device_kernels import copied_to_host, has_gpu_kernels, large_on_host, without_kernel
from tiny_runs import HELDOUT, REGULARIZED, VOCABULARY, WORDS, tiny_options, tiny_run

from bilm.data.vocabulary import vocabulary_of
from bilm.data.windows import model_batch
from bilm.embedding.embedder import ElmoEmbedder
from bilm.scoring.running_text import Evaluator, heldout_dataset
from bilm.training.devices import Devices
from bilm.training.step import Trainer

if not has_gpu_kernels():
    pytest.skip("this TensorFlow has no kernels for GPUs", allow_module_level=True)

HOST, DEVICE = "CPU:0", "CPU:1"
STEPS = {
    "characters": ({}, "float32"),
    "adam": (WORDS | {"optimizer": "adam"}, "bfloat16"),
    "muon": (WORDS | {"optimizer": "muon"}, "float32"),
    "full softmax": ({**WORDS, "sample_softmax": False}, "float32"),
    "regularized": (REGULARIZED, "float32"),
    "characters, bfloat16": ({}, "bfloat16"),
}
EACH_STEP = [
    pytest.param(*step, id=name, marks=() if name in ("characters", "muon") else pytest.mark.slow)
    for name, step in STEPS.items()
]


def trainer_of(changes, precision="float32"):
    options = tiny_options(**changes, state_reset_probability=0.1)
    devices = Devices(tf.distribute.MirroredStrategy([DEVICE]))
    vocab = vocabulary_of(VOCABULARY, options.model, None)
    return Trainer(options, vocab.size, devices, precision=precision), vocab


@pytest.mark.parametrize(("changes", "precision"), EACH_STEP)
def test_gpu_kernels_of_the_training_step(changes, precision):
    trainer, _ = trainer_of(changes, precision)
    step = trainer._step.get_concrete_function()
    assert any(op.type == "Gather" or "Apply" in op.type for op in step.graph.get_operations())
    assert without_kernel(step.graph, HOST) == []
    assert large_on_host(step.graph, HOST) == []
    # TensorFlow 2.16 and 2.17 copy a shape in their own gradient of a gather.
    own = {found.op for found in copied_to_host(gather_gradient(), HOST)}
    assert [found for found in copied_to_host(step.graph, HOST) if found.op not in own] == []


def test_gpu_kernels_of_the_evaluation():
    trainer, vocab = trainer_of({})
    evaluator = Evaluator(trainer.model, vocab.unk)
    dataset = heldout_dataset(HELDOUT, vocab, trainer.options.bidirectional)
    window = next(dataset.iter_evaluation(2, 5))
    batch, state = model_batch(window, trainer.model.options), trainer.model.zero_state(2)
    measure = evaluator._run.get_concrete_function(batch, window["mask"], state)
    assert without_kernel(measure.graph, HOST) == []


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_gpu_kernels_of_the_embedder(precision):
    embedder = ElmoEmbedder(tiny_run("characters"), precision=precision)
    embedder.embed_sentence(["a", "sentence"])
    backend = embedder._model
    for function in (backend.stacks._run, backend.encode._encode):
        graph = function.get_concrete_function().graph
        assert without_kernel(graph, HOST) == []
        assert copied_to_host(graph, HOST) == []


def graph_of(function, *shapes):
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in shapes]
    return tf.function(function, specs, autograph=False).get_concrete_function().graph


def gather_gradient():
    def gradient(table, ids):
        with tf.GradientTape() as tape:
            tape.watch(table)
            rows = tf.gather(table, ids)
        return tape.gradient(rows, table)

    with tf.device(DEVICE):
        return graph_of(gradient, ([9, 4], tf.float32), ([5], tf.int32))


def test_gpu_kernels_that_read_a_seed_from_the_device_are_found():
    def folded(seed):
        seed = tf.random.experimental.stateless_fold_in(seed, 1)
        return tf.random.stateless_uniform((9,), seed)

    graph = graph_of(folded, ([2], tf.int32))
    assert {found.op for found in copied_to_host(graph, HOST)} == {"Pack"}
