#!/usr/bin/env python
"""The median rate of a 2048^3 matrix product in both precisions, in GFLOP/s, as JSON."""

import json
import statistics
import time

from bilm.support.process import keep_freed_memory, quiet

SIZE = 2048  # of the matrices
WARM_UP, N_TIMES = 25, 50  # a core reaches full speed after a second


def product_gflops(dtype: str) -> float:
    """Return the rate of the product on TensorFlow's device."""
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal((SIZE, SIZE)), dtype) for _ in range(2))
    product = tf.function(lambda: tf.reduce_sum(tf.cast(tf.matmul(a, b)[:1], tf.float32)))
    seconds = []
    for _ in range(WARM_UP + N_TIMES):
        start = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * SIZE**3 / statistics.median(seconds[WARM_UP:]) / 1e9


if __name__ == "__main__":
    quiet()
    keep_freed_memory()  # like the benchmarks that are compared with it
    print(json.dumps({dtype: product_gflops(dtype) for dtype in ("float32", "bfloat16")}))
