"""What docs/clients.md shows works."""

import re
from importlib.util import find_spec
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)
if any(find_spec(name) is None for name in ("sklearn", "spacy", "onnxruntime", "tf2onnx")):
    pytest.skip(
        "needs the extras sklearn, spacy and onnx: make test-clients", allow_module_level=True
    )
from bilm import Elmo
from bilm.onnx_model import export_onnx

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def test_python_runs(tmp_path, monkeypatch):
    export_onnx(Elmo("novels-en"), tmp_path / "elmo.onnx")
    monkeypatch.chdir(tmp_path)
    text, names = PAGE.read_text(encoding="utf-8"), {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["mean"].shape == (2, names["doc"].tensor.shape[1])
