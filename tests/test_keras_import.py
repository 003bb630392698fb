"""Importing Keras after bilm."""

import json

import keras
from command_runs import output_of, run

from bilm.layers.scalar_mix import ScalarMix

READ = """
import json, sys, bilm, keras
assert "bilm.layers.scalar_mix" not in sys.modules
print(keras.saving.deserialize_keras_object(json.loads(sys.argv[1])).do_layer_norm)
"""


def test_keras_finds_the_layers_of_bilm_in_a_new_process():
    stored = keras.saving.serialize_keras_object(ScalarMix(do_layer_norm=True))
    assert output_of(READ, json.dumps(stored)).split() == ["True"]


def test_keras_backend_that_cannot_be_imported_names_the_variable(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat\n")
    arguments = "--model=novels-en", f"--input={text}"
    done = run("bilm score", *arguments, KERAS_BACKEND="nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    message = "bilm score: error: Keras cannot import its backend nonsense ("
    assert done.stderr.splitlines()[-1].startswith(message)
