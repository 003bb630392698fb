"""Timing the parts of a training step, each alone, on the data of a real step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import tensorflow as tf

from bilm.storage.names import stored_variables
from bilm.training.step import Trainer

PARTS = ("input", "encoder", "LSTM forward", "LSTM backward", "softmax", "optimizer")


def time_parts(trainer: Trainer, batches, n_times: int = 7) -> dict[str, float]:
    """Return the median seconds of each part, forward and backward unless its name says otherwise.

    Args:
        trainer: with one replica.
        batches: iterator over batches of the pipeline, not prefetched.
    """
    model = trainer.model
    read = _median(lambda: next(batches), n_times)
    batch = tf.nest.map_structure(tf.constant, next(batches))
    step = tf.constant(0)
    state = trainer.state

    def vectors():
        return model.encode(batch)

    def encoder():
        with tf.GradientTape() as tape:
            total = tf.add_n([tf.reduce_sum(v) for v in vectors().values()])
        return tape.gradient(total, model.encoder.trainable_variables)

    encoded = tf.function(vectors)()
    stacks = [v.value for s in model.stacks.values() for v in s.trainable_variables]

    def run(encoded, training):
        seeds = trainer.dropout_seeds(step)
        return model.windows(encoded, state, dropout_seeds=seeds, training=training)[0]

    def forward_and_backward(encoded):
        with tf.GradientTape() as tape:
            tape.watch(encoded)
            outputs = run(encoded, True)
            total = tf.add_n([tf.reduce_sum(layers[-1]) for layers in outputs.values()])
        return tape.gradient(total, [*stacks, *encoded.values()])

    outputs = tf.function(lambda: run(encoded, True))()

    def softmax(outputs):
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            losses = model.losses(outputs, batch["targets"], batch.get("negatives"))
            total = tf.add_n([tf.reduce_mean(loss) for loss in losses.values()])
        last = [layers[-1] for layers in outputs.values()]
        return tape.gradient(total, [model.softmax.kernel.value, model.softmax.bias.value, *last])

    variables = [v.value for v in stored_variables(model).values()]

    def gradients():
        with tf.GradientTape() as tape:
            losses, _ = trainer.forward(batch, state, None)
            total = tf.reduce_sum(losses)
        return tape.gradient(total, variables)

    found = tf.function(gradients)()
    both = _compiled(forward_and_backward, encoded, n_times=n_times)
    forward = _compiled(lambda g: run(g, True), encoded, n_times=n_times)
    times = (
        read,
        _compiled(encoder, n_times=n_times),
        forward,
        both - forward,
        _compiled(softmax, outputs, n_times=n_times),
        _compiled(lambda: trainer.optimizer.apply(found), n_times=n_times),
    )
    return dict(zip(PARTS, times, strict=True))


def _compiled(function: Callable, *args, n_times: int) -> float:
    """Return the median seconds of a compiled function, without fetching its results."""
    function = tf.function(function)
    function(*args)
    return _median(lambda: function(*args), n_times)


def _median(call: Callable, n_times: int) -> float:
    call()
    seconds = []
    for _ in range(n_times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
