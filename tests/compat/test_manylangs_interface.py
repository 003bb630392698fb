"""`bilm.compat.manylangs`: ELMoForManyLangs' numbers, with and without Keras."""

import numpy as np
import pytest
from command_runs import output_of
from conftest import GOLDEN, golden_cases
from golden_models import expected_of
from moved_scripts import TESTS, run_moved

from bilm.compat.manylangs import Embedder
from bilm.errors import DataError, OptionsError

CASES = golden_cases("manylangs") if (GOLDEN / "manylangs").is_dir() else []
LIMIT = {"atol": 1e-5, "rtol": 0}
MOVE = "from elmoformanylangs import Embedder", "from bilm.compat.manylangs import Embedder"


@pytest.mark.parametrize("case", CASES)
def test_golden_script_for_manylangs_runs_with_another_import(case, tmp_path, monkeypatch):
    given, expected = (case, case / "sentences.json", tmp_path / "out.npz"), expected_of(case)
    run_moved(monkeypatch, "manylangs_features.py", *MOVE, *given)
    with np.load(given[-1]) as found:
        layers = np.concatenate(expected, axis=1)
        np.testing.assert_allclose(found["layers"], layers, **LIMIT)
        np.testing.assert_allclose(found["first"], layers[1], **LIMIT)
        for row, layers in zip(found["features"], expected, strict=True):
            np.testing.assert_allclose(row[: layers.shape[1]], layers.mean(axis=0), **LIMIT)


@pytest.mark.parametrize("case", CASES)
def test_golden_manylangs_without_keras_and_tensorflow(case, tmp_path):
    script = (TESTS / "reference_scripts" / "manylangs_features.py").read_text(encoding="utf-8")
    without = "import sys; sys.modules['keras'] = sys.modules['tensorflow'] = None\n"
    code = without + script.replace(*MOVE).replace("batch_size=16", 'backend="numpy"')
    output = tmp_path / "out.npz"
    output_of(code, case, case / "sentences.json", output)
    layers = np.concatenate(expected_of(case), axis=1)
    np.testing.assert_allclose(np.load(output)["layers"], layers, **LIMIT)


def test_manylangs_refuses_other_layers_and_text(stored_model):
    embedder = Embedder(stored_model)
    assert embedder.sents2elmo([]) == []
    with pytest.raises(OptionsError, match=r"output_layer is 3, expected one of -2, -1, 0, 1, 2"):
        embedder.sents2elmo([["a"]], output_layer=3)
    with pytest.raises(DataError, match=r"sentence 0 is 'a b'.*split a string"):
        embedder.sents2elmo(["a b"])
