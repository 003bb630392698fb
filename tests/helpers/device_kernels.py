"""Lists the operations of a graph that a GPU cannot run, from TensorFlow's own registry of kernels.

TensorFlow's packages for Linux register the kernels of GPUs also on a host without GPUs. Without a
kernel for its types, an operation runs on the host. Some kernels of GPUs read or write arguments in
the host's memory, for example all int32 values of most operations. Both copy values in each step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

# Values of at most this many elements are seeds, shapes and numbers.
SMALL = 16
# Arguments that are shapes or lists of axes. Their sizes are unknown if a shape is.
SHAPES = ("r0", "r1", "reduction_indices")
# Operations that run on the host.
ITERATORS = ("IteratorGetNext", "MultiDeviceIteratorGetNextFromShard")


class Found(NamedTuple):
    """An operation, its name in the graph, and its arguments or types that a GPU cannot use."""

    op: str
    name: str
    why: str


def has_gpu_kernels() -> bool:
    """Return whether this TensorFlow was built with kernels for GPUs."""
    return any(kernel.device_type == "GPU" for kernel in _kernels("MatMul"))


def without_kernel(graph: tf.Graph, host: str) -> list[Found]:
    """Return the operations without a kernel for a GPU.

    Args:
        graph: the graph of a concrete function; the functions that it calls are included.
        host: end of the name of the device, such as `CPU:0`, that represents the host.
    """
    return [
        Found(op.type, op.name, _types(op.node_def))
        for op in _operations(graph, host)
        if _kernel(op) is None
    ]


def large_on_host(graph: tf.Graph, host: str) -> list[Found]:
    """Return the operations whose kernel reads or writes large values in the host's memory."""
    found = []
    for op, kernel in _with_kernels(graph, host):
        names = {
            name
            for name, tensor in (*_inputs(op), *_outputs(op))
            if name in kernel.host_memory_arg and not _is_small(name, tensor)
        }
        if names:
            why = f"{', '.join(sorted(names))}: {_types(op.node_def)}"
            found.append(Found(op.type, op.name, why))
    return found


def copied_to_host(graph: tf.Graph, host: str) -> list[Found]:
    """Return the operations whose kernel reads an argument in the host's memory that another kernel
    writes to the device's memory: the host waits for the device."""
    return [
        Found(op.type, op.name, f"{name}: {tensor.op.type} {tensor.op.name}")
        for op, kernel in _with_kernels(graph, host)
        for name, tensor in _inputs(op)
        if name in kernel.host_memory_arg and not _is_on_host(tensor, host)
    ]


def _is_small(name: str, tensor: tf.Tensor) -> bool:
    if tensor.dtype in (tf.resource, tf.variant):
        return True
    shape = tensor.shape
    return name in SHAPES or (shape.is_fully_defined() and shape.num_elements() <= SMALL)


def _is_on_host(tensor: tf.Tensor, host: str) -> bool:
    op = tensor.op
    if op.type == "Placeholder":  # an argument of a function
        return tensor.dtype in (tf.int32, tf.resource, tf.string, tf.variant)
    kernel = _kernel(op)
    if op.type in ITERATORS or kernel is None or op.device.endswith(host):
        return True
    name = next(name for name, output in _outputs(op) if output is tensor)
    return name in kernel.host_memory_arg


def _with_kernels(graph: tf.Graph, host: str) -> Iterator[tuple[tf.Operation, Any]]:
    for op in _operations(graph, host):
        if (kernel := _kernel(op)) is not None:
            yield op, kernel


def _operations(graph: tf.Graph, host: str) -> Iterator[tf.Operation]:
    for inner in _graphs(graph, set()):
        for op in inner.get_operations():
            is_function = op_def_registry.get(op.type) is None
            if not (is_function or op.type in ITERATORS or op.device.endswith(host)):
                yield op


def _graphs(graph: Any, seen: set[str]) -> Iterator[Any]:
    """Yield a graph and the graphs of the functions that it calls."""
    yield graph
    for op in graph.get_operations():
        values = op.node_def.attr.values()
        called = [value.func.name for value in values if value.HasField("func")]
        called += [func.name for value in values for func in value.list.func]
        for name in called:
            if name not in seen:
                seen.add(name)
                yield from _graphs(graph._get_function(name).graph, seen)


@functools.cache
def _kernels(op: str) -> list[Any]:
    found = kernels.get_registered_kernels_for_op(op).kernel
    # The kernels of DEFAULT serve all devices.
    return [kernel for kernel in found if kernel.device_type in ("GPU", "DEFAULT")]


def _kernel(op: tf.Operation) -> Any:
    """Return the kernel that runs an operation on a GPU, or None."""
    matching = [kernel for kernel in _kernels(op.type) if _matches(kernel, op.node_def)]
    return min(matching, key=lambda kernel: kernel.device_type != "GPU", default=None)


def _matches(kernel: Any, node: Any) -> bool:
    for constraint in kernel.constraint:
        value, allowed = node.attr[constraint.name], constraint.allowed_values.list.type
        if not set(_type_numbers(value)) <= set(allowed):
            return False
    return True


def _type_numbers(value: Any) -> list[int]:
    return list(value.list.type) if value.HasField("list") else [value.type]


def _types(node: Any) -> str:
    types = {name: [k for k in _type_numbers(v) if k] for name, v in sorted(node.attr.items())}
    return ", ".join(
        f"{name}={'/'.join(tf.as_dtype(kind).name for kind in kinds)}"
        for name, kinds in types.items()
        if kinds
    )


def _inputs(op: tf.Operation) -> list[tuple[str, tf.Tensor]]:
    return _named(op, op_def_registry.get(op.type).input_arg, op.inputs)


def _outputs(op: tf.Operation) -> list[tuple[str, tf.Tensor]]:
    return _named(op, op_def_registry.get(op.type).output_arg, op.outputs)


def _named(op: tf.Operation, arguments: Any, tensors: Any) -> list[tuple[str, tf.Tensor]]:
    names: list[str] = []
    for argument in arguments:
        n = 1
        if argument.number_attr:
            n = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            n = len(op.get_attr(argument.type_list_attr))
        names += [argument.name] * n
    return list(zip(names, tensors, strict=True))
