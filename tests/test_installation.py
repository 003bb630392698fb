"""The TensorFlow 1 package `bilm` in the same folder is noticed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stored_files import OPTIONS, WEIGHTS

ROOT = Path(__file__).parent.parent


@pytest.fixture
def both(tmp_path):
    """A folder for packages with ours in it and what pip notes about the other one."""
    (tmp_path / "bilm").mkdir()
    for path in (ROOT / "bilm").iterdir():
        (tmp_path / "bilm" / path.name).symlink_to(path)
    (tmp_path / "bilm" / "installation.py").unlink()
    source = (ROOT / "bilm" / "installation.py").read_text()
    (tmp_path / "bilm" / "installation.py").write_text(source)
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


def test_a_command_refuses_to_run(both):
    done = run(both, "-m", "bilm", "vocab", "--input=x", "--output=y")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "") and line.startswith("bilm vocab: error: ")
    assert_named(line, both)


def test_the_library_warns_once_and_only_when_it_is_used(both):
    program = "import bilm; print('imported', flush=True); bilm.Vocabulary; bilm.Batcher"
    done = run(both, "-c", f"import sys; sys.stderr = sys.stdout; {program}")
    imported, line = done.stdout.splitlines()
    assert imported == "imported"
    assert_named(line, both)


def test_what_is_not_that_package_is_no_conflict(both):
    notes = both / "bilm-0.1.post5.dist-info" / "RECORD"
    notes.write_text("bilm/__init__.py,,\nbilm/data/__init__.py,,\n")
    done = run(both, "-c", "import bilm; bilm.Vocabulary")
    assert (done.returncode, done.stderr) == (0, "")


def test_models_in_the_package_are_installed(tmp_path):
    pytest.importorskip("setuptools", reason="pip brings it where it builds the package")
    project, built = tmp_path / "project", tmp_path / "built"
    shutil.copytree(ROOT / "bilm", project / "bilm", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "options", project / "options")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    model = project / "bilm" / "models" / "tiny"
    model.mkdir(parents=True)
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, model)
    (model / "vocab.txt").write_text("x\n")
    done = run(project, "setup.py", "-q", "build_py", "--build-lib", str(built))
    assert done.returncode == 0, done.stderr
    found = sorted(path.name for path in (built / "bilm" / "models" / "tiny").iterdir())
    assert found == ["options.json", "vocab.txt", "weights.hdf5"]
