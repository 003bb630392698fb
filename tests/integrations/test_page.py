"""Run the Python blocks of docs/clients.md."""

import re
from importlib.util import find_spec
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports require TensorFlow", allow_module_level=True)
if any(find_spec(name) is None for name in ("sklearn", "spacy", "onnxruntime", "tf2onnx")):
    pytest.skip(
        "needs the extras sklearn, spacy and onnx: make test-clients", allow_module_level=True
    )
from bilm import Elmo
from bilm.export.onnx import export_onnx

pytestmark = pytest.mark.clients

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def test_python_blocks_of_the_clients_page_run(tmp_path, monkeypatch):
    export_onnx(Elmo("novels-en"), tmp_path / "elmo.onnx")
    monkeypatch.chdir(tmp_path)
    text, names = PAGE.read_text(encoding="utf-8"), {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["mean"].shape == (2, names["doc"].tensor.shape[1])
