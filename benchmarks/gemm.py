#!/usr/bin/env python
"""The rate of a 2048^3 matrix product in both precisions, in GFLOP/s, as JSON."""

import json

from bilm.doctor.speed import product_gflops
from bilm.support.process import keep_freed_memory, quiet

if __name__ == "__main__":
    quiet()
    keep_freed_memory()  # like the benchmarks that are compared with it
    print(json.dumps({dtype: product_gflops(dtype) for dtype in ("float32", "bfloat16")}))
