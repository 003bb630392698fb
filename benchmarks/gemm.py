#!/usr/bin/env python
"""The rate of a 2048^3 matrix product in both precisions, in GFLOP/s, as JSON."""

import json
import statistics
import time

from bilm.support.process import keep_freed_memory, quiet

SIZE = 2048
WARM_UP, N_TIMES = 25, 50  # a core reaches full speed after a second


def gemm_gflops(dtype: str) -> float:
    """Return the median rate of the product, in GFLOP/s."""
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal((SIZE, SIZE)), dtype) for _ in range(2))
    product = tf.function(lambda: tf.reduce_sum(tf.cast(tf.matmul(a, b)[:1], tf.float32)))
    for _ in range(WARM_UP):
        product().numpy()
    seconds = []
    for _ in range(N_TIMES):
        start = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * SIZE**3 / statistics.median(seconds) / 1e9


if __name__ == "__main__":
    quiet()
    keep_freed_memory()  # like the benchmarks that are compared with it
    print(json.dumps({dtype: gemm_gflops(dtype) for dtype in ("float32", "bfloat16")}))
