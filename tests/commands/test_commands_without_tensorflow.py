"""Commands that compute nothing with a model start without TensorFlow and Keras."""

import pytest
from command_runs import output_of

SCRIPT = """
import sys
from bilm.commands.main import cli, run
status = run(cli, "bilm", sys.argv[1:])
assert status == 0, status
assert not {"tensorflow", "keras"} & set(sys.modules)
"""
COMMANDS = {
    "info": ["info", "novels-en"],
    "info --json": ["info", "novels-en", "--json"],
    "models": ["models"],
    "models --cached": ["models", "--cached"],
    "text": ["text", "--input", "{text}", "--output", "{folder}/out.txt"],
    "vocab": ["vocab", "--input", "{text}", "--output", "{folder}/vocab.txt"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_imports_neither_tensorflow_nor_keras(name, tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("the cat sat .\n")
    words = [word.format(text=text, folder=tmp_path) for word in COMMANDS[name]]
    assert output_of(SCRIPT, *words)
