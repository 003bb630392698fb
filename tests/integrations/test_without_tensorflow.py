"""Embedding and scoring in a Python without TensorFlow, on PyTorch and JAX."""

import importlib.util
import subprocess
import sys

import keras
import numpy as np
import pytest
from command_runs import environment

if keras.backend.backend() != "tensorflow":
    pytest.skip("starts processes with other backends", allow_module_level=True)
pytestmark = pytest.mark.clients

WITHOUT = "import sys; sys.modules['tensorflow'] = None  # importing it raises an error\n"
COMMAND = WITHOUT + "from bilm.commands.main import main; main()"
SENTENCE = ["She", "rose", "from", "her", "chair", "."]
VECTORS = f"""
import bilm, keras, sys
vectors = bilm.ElmoEmbedder("novels-en").embed_sentence({SENTENCE!r})
elmo = bilm.Elmo("novels-en")
print(keras.backend.backend(), *vectors[2, :, 0])
"""


def start(code, *arguments, **variables):
    variables = {"PYTHONWARNINGS": "ignore", **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True,
        env=environment(**variables), timeout=300,
    )  # fmt: skip


def require(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")


@pytest.mark.parametrize("backend", ["", "torch", "jax"])
def test_vectors_without_tensorflow_equal_those_of_tensorflow(backend, tmp_path):
    """Without KERAS_BACKEND, PyTorch is chosen."""
    import bilm

    require(backend or "torch")
    variables = {"KERAS_BACKEND": backend} if backend else {"KERAS_HOME": str(tmp_path)}
    done = start(WITHOUT + VECTORS, **variables)
    assert done.returncode == 0, done.stderr
    name, *found = done.stdout.split()
    assert name == (backend or "torch")
    expected = bilm.ElmoEmbedder("novels-en").embed_sentence(SENTENCE)[2, :, 0]
    np.testing.assert_allclose(np.array(found, float), expected, atol=1e-5)


def test_commands_of_exported_models_run_without_tensorflow(tmp_path):
    require("torch")
    text, output = tmp_path / "text.txt", tmp_path / "vectors.npz"
    text.write_text("She rose .\nHe left .\n" * 30)
    model = "--model", "novels-en", "--input", text
    for arguments in (
        ["embed", *model, "--output", output],
        ["surprisal", *model],
        ["test", *model],
        ["info", "novels-en"],
        ["models"],
    ):
        done = start(COMMAND, *arguments, KERAS_BACKEND="torch")
        assert done.returncode == 0, (arguments, done.stderr)
    assert output.exists()


def test_commands_that_require_tensorflow_say_so_in_one_line(tmp_path):
    require("torch")
    text, vocab = tmp_path / "text.txt", tmp_path / "vocab.txt"
    text.write_text("a b\n")
    vocab.write_text("<S>\n</S>\n<UNK>\na\nb\n")
    done = start(
        COMMAND, "train", "--input", text, "--vocab", vocab, "--output", tmp_path / "run",
        "--options", "tiny", KERAS_BACKEND="torch",
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "requires TensorFlow, which is not installed: pip install tensorflow" in line
