"""Exports changed weights over an export and kills itself before the n-th file is renamed, from 0.

python tests/helpers/killed_export.py RUN FOLDER VOCABULARY N
"""

import os
import signal
import sys

from bilm.export import hdf5 as export
from bilm.storage.stored_weights import StoredWeights

FILES = ["options.json", "weights.hdf5", "weights_softmax.hdf5"]  # in the order of their renaming

values = StoredWeights.values


def other_values(self):
    """Yield the values of a model; for the export of a run, which has a softmax, other values."""
    for name, value in values(self):
        yield name, value + 0.1 if self.has_softmax else value


def stopping(n, folder, stop):
    """Return an `os.replace` that calls `stop` instead of the n-th renaming in a folder."""
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
    StoredWeights.values = other_values
    os.replace = stopping(int(n), folder, lambda: os.kill(os.getpid(), signal.SIGKILL))
    export.dump_weights(run, folder, include_softmax=True, vocab_file=vocabulary)
