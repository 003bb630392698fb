"""Missing extras, the TensorFlow 1 package `bilm` in the same folder, files of the package."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stored_files import OPTIONS, WEIGHTS

import bilm
from bilm.support.imports import MissingExtraError, needed

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
    with pytest.raises(ImportError) as error:
        importlib.import_module(f"bilm.integrations.{module}")
    assert re.fullmatch(expected, str(error.value))
    assert ", which is not installed: in a checkout of bilm, run pip install '.[" in str(
        error.value
    )


def test_public_names_that_require_an_extra_are_not_in_all():
    assert "ElmoVectorizer" not in bilm.__all__ and "ElmoVectorizer" in dir(bilm)


@pytest.fixture
def both(tmp_path):
    """A site-packages folder with this package and pip's record of the TensorFlow 1 package."""
    (tmp_path / "bilm").mkdir()
    for path in (ROOT / "bilm").iterdir():
        if path.name != "support":
            (tmp_path / "bilm" / path.name).symlink_to(path)
    shutil.copytree(ROOT / "bilm" / "support", tmp_path / "bilm" / "support")  # uses its __file__
    notes = tmp_path / "bilm-0.1.post5.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: bilm\nVersion: 0.1.post5\n")
    (notes / "RECORD").write_text("bilm/__init__.py,,\nbilm/data.py,,\nbilm/model.py,,\n")
    return tmp_path


def run(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=folder
    )


def assert_named(line, folder):
    for part in (f"{folder}/bilm: ", "bilm 0.1.post5", "bilm-keras", "pip uninstall bilm"):
        assert part in line


def test_command_fails_if_the_tensorflow_1_package_is_installed(both):
    done = run(both, "-m", "bilm", "vocab", "--input=x", "--output=y")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "") and line.startswith("bilm vocab: error: ")
    assert_named(line, both)


def test_library_warns_once_on_first_use_if_the_tensorflow_1_package_is_installed(both):
    program = "import bilm; print('imported', flush=True); bilm.Vocabulary; bilm.Batcher"
    done = run(both, "-c", f"import sys; sys.stderr = sys.stdout; {program}")
    imported, line = done.stdout.splitlines()
    assert imported == "imported"
    assert_named(line, both)


def test_other_distribution_named_bilm_is_accepted(both):
    notes = both / "bilm-0.1.post5.dist-info" / "RECORD"
    notes.write_text("bilm/__init__.py,,\nbilm/data/__init__.py,,\n")
    done = run(both, "-c", "import bilm; bilm.Vocabulary")
    assert (done.returncode, done.stderr) == (0, "")


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
    done = run(project, "setup.py", "-q", "build_py", "--build-lib", str(built))
    assert done.returncode == 0 and "is absent from the `packages`" not in done.stderr, done.stderr
    found = sorted(path.name for path in (built / "bilm" / "models" / "tiny-en").iterdir())
    assert found == ["options.json", "vocab.txt", "weights.hdf5"]


def test_extra_that_is_installed_but_broken_is_reported_with_its_reason():
    expected = pytest.raises(
        MissingExtraError, match=r"extra onnx cannot be imported: libx: .* again"
    )
    with expected, needed("onnx", "precision int8"):
        raise ImportError("libx: cannot open")
