"""Exports another model of a run's shape, and is stopped before one of its files gets its name.

`python tests/killed_export.py <run> <folder> <vocabulary> <n>` dies before the n-th, from 0.
"""

import os
import signal
import sys

from bilm.storage.checkpoint import load_run
from bilm.training import export

FILES = ["options.json", "weights.hdf5", "weights_softmax.hdf5"]  # in the order of their renaming


def other_run(folder):
    """The model of a run with other values."""
    model = load_run(folder)
    for variable in model.variables:
        variable.assign(variable + 0.1)
    return model


def stopping(n, folder, stop):
    """An `os.replace` that calls `stop` in place of the n-th renaming of a file in a folder."""
    left, replace = [n], os.replace

    def replace_or_stop(source, target, **arguments):
        if os.path.samefile(os.path.dirname(target), folder) and os.path.basename(target) in FILES:
            left[0] -= 1
            if left[0] < 0:
                stop()
        replace(source, target, **arguments)

    return replace_or_stop


if __name__ == "__main__":
    run, folder, vocabulary, n = sys.argv[1:]
    export.load_run = other_run
    os.replace = stopping(int(n), folder, lambda: os.kill(os.getpid(), signal.SIGKILL))
    export.dump_weights(run, folder, include_softmax=True, vocab_file=vocabulary)
