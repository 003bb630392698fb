"""Missing extras, and the files of the package."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest
from command_runs import run_words
from stored_files import OPTIONS, WEIGHTS

import bilm

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "package", "expected"),
    [
        ("vectorizer", "sklearn", r"bilm\.ElmoVectorizer requires (sklearn\S*).*\[sklearn\]'"),
        ("spacy_pipe", "spacy", r"The spaCy component bilm requires (spacy\S*).*\[spacy\]'"),
    ],
)
def test_missing_extra_is_named(module, package, expected, monkeypatch):
    loaded = [name for name in sys.modules if name.split(".")[0] == package]
    for name in (*loaded, f"bilm.integrations.{module}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # importing it raises ImportError
    with pytest.raises(ImportError, match=f"^{expected}$") as error:
        importlib.import_module(f"bilm.integrations.{module}")
    assert ", which is not installed: in a checkout of bilm, run pip install " in str(error.value)


def test_public_names_that_require_an_extra_are_not_in_all():
    assert "ElmoVectorizer" not in bilm.__all__ and "ElmoVectorizer" in dir(bilm)


def test_build_contains_the_models_of_the_package(tmp_path):
    pytest.importorskip("setuptools", reason="pip installs it to build packages")
    project, built = tmp_path / "project", tmp_path / "built"
    shutil.copytree(ROOT / "bilm", project / "bilm", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "options", project / "options")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    model = project / "bilm" / "models" / "tiny-en"
    model.mkdir(parents=True)
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, model)
    (model / "vocab.txt").write_text("x\n")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", built]
    done = run_words(command, cwd=project)
    assert done.returncode == 0 and "is absent from the `packages`" not in done.stderr, done.stderr
    found = sorted(path.name for path in (built / "bilm" / "models" / "tiny-en").iterdir())
    assert found == ["options.json", "vocab.txt", "weights.hdf5"]
