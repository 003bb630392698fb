"""Importing Keras after bilm; `tests/elmo/test_layer.py` loads a model."""

import subprocess
import sys

from command_runs import environment


def test_keras_backend_that_cannot_be_imported_names_the_variable(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat\n")
    command = [sys.executable, "-m", "bilm", "score", "--model=novels-en", f"--input={text}"]
    variables = environment(KERAS_BACKEND="nonsense")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables)
    assert (done.returncode, done.stdout) == (1, "")
    message = "bilm score: error: KERAS_BACKEND is 'nonsense', a backend that Keras cannot import ("
    assert done.stderr.splitlines()[-1].startswith(message)
