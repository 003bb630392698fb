"""Whether a GPU can run the training step and the embedder, from TensorFlow's registry of kernels.

TensorFlow's packages for Linux register the kernels of GPUs also on a host without GPUs. Without a
kernel for its types, an operation runs on the host. Some kernels of GPUs read or write arguments in
the host's memory, for example all int32 values of most operations. Both copy values in each step.

The step is traced for the second logical CPU device; the host's operations name the first one.
"""

import functools
from typing import NamedTuple

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry
from tiny_runs import HELDOUT, REGULARIZED, VOCABULARY, WORDS, tiny_options, tiny_run

from bilm.data.vocabulary import vocabulary_of
from bilm.data.windows import model_batch
from bilm.embedding.embedder import ElmoEmbedder
from bilm.scoring.running_text import Evaluator, heldout_dataset
from bilm.training.devices import Devices
from bilm.training.step import Trainer

HOST, DEVICE = "CPU:0", "CPU:1"
SMALL = 16  # values of at most this many elements are seeds, shapes and numbers
# Arguments that are shapes or lists of axes. Their sizes are unknown if a shape is.
SHAPES = ("r0", "r1", "reduction_indices")
# Operations that run on the host.
ITERATORS = ("IteratorGetNext", "MultiDeviceIteratorGetNextFromShard")


class Found(NamedTuple):
    """An operation, its name in the graph, and its arguments or types that a GPU cannot use."""

    op: str
    name: str
    why: str


def without_kernel(graph):
    """Return the operations of a graph, and of the functions that it calls, without a kernel for a
    GPU."""
    found = [op for op in operations(graph) if kernel_of(op) is None]
    return [Found(op.type, op.name, str([x.dtype.name for x in op.inputs])) for op in found]


def large_on_host(graph):
    """Return the operations whose kernel reads or writes large values in the host's memory."""
    return [
        Found(op.type, op.name, f"{name}: {tensor.dtype.name}")
        for op, kernel in with_kernels(graph)
        for name, tensor in (*inputs_of(op), *outputs_of(op))
        if name in kernel.host_memory_arg and not is_small(name, tensor)
    ]


def copied_to_host(graph):
    """Return the operations whose kernel reads an argument in the host's memory that another kernel
    writes to the device's memory: the host waits for the device."""
    return [
        Found(op.type, op.name, f"{name}: {tensor.op.type} {tensor.op.name}")
        for op, kernel in with_kernels(graph)
        for name, tensor in inputs_of(op)
        if name in kernel.host_memory_arg and not is_on_host(tensor)
    ]


def is_small(name, tensor):
    if tensor.dtype in (tf.resource, tf.variant):
        return True
    shape = tensor.shape
    return name in SHAPES or (shape.is_fully_defined() and shape.num_elements() <= SMALL)


def is_on_host(tensor):
    op = tensor.op
    if op.type == "Placeholder":  # an argument of a function
        return tensor.dtype in (tf.int32, tf.resource, tf.string, tf.variant)
    kernel = kernel_of(op)
    if op.type in ITERATORS or kernel is None or op.device.endswith(HOST):
        return True
    name = next(name for name, output in outputs_of(op) if output is tensor)
    return name in kernel.host_memory_arg


def with_kernels(graph):
    """Yield the operations that a GPU runs, each with its kernel."""
    for op in operations(graph):
        if (kernel := kernel_of(op)) is not None:
            yield op, kernel


def operations(graph):
    """Yield the operations of a graph, and of the functions that it calls, that the device runs."""
    for inner in graphs_in(graph, set()):
        for op in inner.get_operations():
            is_function = op_def_registry.get(op.type) is None
            if not (is_function or op.type in ITERATORS or op.device.endswith(HOST)):
                yield op


def graphs_in(graph, seen):
    """Yield a graph and the graphs of the functions that it calls."""
    yield graph
    for op in graph.get_operations():
        values = op.node_def.attr.values()
        called = [value.func.name for value in values if value.HasField("func")]
        called += [func.name for value in values for func in value.list.func]
        for name in called:
            if name not in seen:
                seen.add(name)
                yield from graphs_in(graph._get_function(name).graph, seen)


@functools.cache
def registered(op):
    """Return the kernels of a type of operation for GPUs, and those of DEFAULT for all devices."""
    found = kernels.get_registered_kernels_for_op(op).kernel
    return [kernel for kernel in found if kernel.device_type in ("GPU", "DEFAULT")]


def kernel_of(op):
    """Return the kernel that runs an operation on a GPU, or None."""
    matching = [kernel for kernel in registered(op.type) if has_types(kernel, op.node_def)]
    return min(matching, key=lambda kernel: kernel.device_type != "GPU", default=None)


def has_types(kernel, node):
    for constraint in kernel.constraint:
        value = node.attr[constraint.name]
        types = value.list.type if value.HasField("list") else [value.type]
        if not {*types} <= {*constraint.allowed_values.list.type}:
            return False
    return True


def inputs_of(op):
    return named(op, op_def_registry.get(op.type).input_arg, op.inputs)


def outputs_of(op):
    return named(op, op_def_registry.get(op.type).output_arg, op.outputs)


def named(op, arguments, tensors):
    """Return pairs of the name of an argument and a tensor; an argument may be several tensors."""
    names = []
    for argument in arguments:
        n = 1
        if argument.number_attr:
            n = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            n = len(op.get_attr(argument.type_list_attr))
        names += [argument.name] * n
    return list(zip(names, tensors, strict=True))


if not any(kernel.device_type == "GPU" for kernel in registered("MatMul")):
    pytest.skip("this TensorFlow has no kernels for GPUs", allow_module_level=True)

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
    assert without_kernel(step.graph) == []
    assert large_on_host(step.graph) == []
    # TensorFlow 2.16 and 2.17 copy a shape in their own gradient of a gather.
    own = {found.op for found in copied_to_host(gather_gradient())}
    assert [found for found in copied_to_host(step.graph) if found.op not in own] == []


def test_gpu_kernels_of_the_evaluation():
    trainer, vocab = trainer_of({})
    evaluator = Evaluator(trainer.model, vocab.unk)
    dataset = heldout_dataset(HELDOUT, vocab, trainer.options.bidirectional)
    window = next(dataset.iter_evaluation(2, 5))
    batch, state = model_batch(window, trainer.model.options), trainer.model.zero_state(2)
    measure = evaluator._run.get_concrete_function(batch, window["mask"], state)
    assert without_kernel(measure.graph) == []


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_gpu_kernels_of_the_embedder(precision):
    embedder = ElmoEmbedder(tiny_run("characters"), precision=precision)
    embedder.embed_sentence(["a", "sentence"])
    backend = embedder._model
    for function in (backend.stacks._run, backend.encode._encode):
        graph = function.get_concrete_function().graph
        assert without_kernel(graph) == []
        assert copied_to_host(graph) == []


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
    assert {found.op for found in copied_to_host(graph)} == {"Pack"}
