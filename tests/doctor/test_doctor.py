"""`bilm doctor`: versions, settings, devices, vectors and the report."""

import json
import sys

import keras
import pytest
from command_runs import run

from bilm.doctor import examination
from bilm.doctor.examination import Report, examine
from bilm.precisions import PRECISIONS


@pytest.fixture
def environments():
    return []


@pytest.fixture
def probes(monkeypatch, environments):
    """Answer the probes without processes; return the answers, by name."""
    answers = {
        "tensorflow": {"gpus": [], "CUDA": "12"},
        "torch": {"gpus": [], "CUDA": None},
        "float32": {"difference": 1e-7},
        "bfloat16": {"difference": 1e-2},
        "int8": {"difference": 1e-2},
    }

    def answer(report, found, fix, name, *precision, **environment):
        environments.append(environment)
        return answers[precision[0] if precision else environment["KERAS_BACKEND"]]

    installed = {"tensorflow", "torch", "keras", "onnx", "onnxruntime"}
    monkeypatch.setattr(Report, "ask", answer)
    monkeypatch.setattr(examination, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    return answers


def test_steps_are_logged_and_installation_that_works_has_no_problem(probes, log):
    report = examine()
    assert report.problems == []
    assert list(report.checks)[-1] == "vectors compared with bilm-tf"
    assert log.messages == [
        "checking devices",
        "checking vectors: numpy on the CPU, float32",
        "checking vectors: tensorflow on the CPU, float32",
        "checking vectors: tensorflow on the CPU, bfloat16",
        "checking vectors: torch on the CPU, float32",
        "checking vectors: torch on the CPU, bfloat16",
        "checking vectors: ONNX Runtime on the CPU, int8",
    ]


@pytest.mark.parametrize("difference", [1.0, float("nan")])
def test_vectors_that_differ_from_bilm_tf_are_a_problem(probes, difference):
    probes["int8"] = {"difference": difference}
    (problem,) = examine().problems
    assert problem["found"].startswith("ONNX Runtime on the CPU, int8: vectors differ")


@pytest.mark.parametrize(("visible", "devices"), [(None, ["0", "1"]), ("3,GPU-5", ["3", "GPU-5"])])
def test_gpus_are_listed_and_used_for_vectors(probes, environments, monkeypatch, visible, devices):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    probes["torch"]["gpus"] = ["A100", "H100"]
    report = examine()
    assert report.checks["devices"] == {
        "tensorflow": "0 GPUs, built for CUDA 12",
        "torch": "2 GPUs",
        "torch GPU 0": "A100",
        "torch GPU 1": "H100",
    }
    vectors = report.checks["vectors compared with bilm-tf"]
    assert {"torch on GPU 0, A100, float32", "torch on GPU 1, H100, bfloat16"} <= vectors.keys()
    on_gpu = [each for each in environments if "JAX_PLATFORMS" not in each][3:]
    expected = [device for device in devices for _ in PRECISIONS]
    assert [each.get("CUDA_VISIBLE_DEVICES") for each in on_gpu] == expected


def test_driver_without_gpu_in_tensorflow_is_a_problem_with_a_fix(probes, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    (problem,) = examine().problems
    assert "TensorFlow lists no GPU" in problem["found"]
    assert "tensorflow[and-cuda]" in problem["fix"]


def test_versions_are_those_of_installed_packages(tmp_path, monkeypatch):
    old = tmp_path / "keras-3.3.3.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 3.3.3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(examination, "PACKAGES", ("keras", "numpy", "no-such-package"))
    versions = examination._versions()
    assert versions["keras"] == "3.3.3" and "numpy" in versions
    assert "no-such-package" not in versions


@pytest.mark.parametrize("installed", [(), ("torch",), ("keras", "torch")])
def test_missing_tensorflow_is_no_problem(installed, probes, monkeypatch):
    monkeypatch.setattr(examination, "find_spec", lambda name: name if name in installed else None)
    report = examine()
    assert report.checks["without TensorFlow"]["bilm"].startswith("embeds and scores")
    assert len(report.checks["vectors compared with bilm-tf"]) == (3 if "keras" in installed else 1)
    assert report.problems == []


def test_report_lists_problems_with_their_fix():
    report = Report({"versions": {"keras": "3.3", "jax": "0.4"}})
    report.problem("keras is too old", "pip install keras")
    assert list(report.lines()) == [
        "versions",
        "  keras  3.3",
        "  jax    0.4",
        "problems",
        "  1. keras is too old",
        "     Fix: pip install keras",
    ]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no bananas >&2; exit 1", "no bananas"),
        ("kill -ABRT $$", "died with <Signals.SIGABRT"),
        ("exec sleep 60", "timed out after 1"),
    ],
)
def test_reason_of_a_failed_probe_is_its_message(tmp_path, monkeypatch, script, message):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(examination, "TIMEOUT", 1.0)
    report = Report()
    assert report.ask("jax", "remove it", "devices") is None
    (problem,) = report.problems
    assert problem["found"].startswith("jax: ") and message in problem["found"]


@pytest.mark.slow
def test_doctor_finds_no_problem_in_this_environment_and_vectors_equal_those_of_bilm_tf():
    done = run("bilm doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["problems"] == []
    assert "tensorflow on the CPU, float32" in report["checks"]["vectors compared with bilm-tf"]
    assert report["checks"]["versions"]["keras"] == keras.__version__


@pytest.mark.slow
def test_doctor_reports_broken_hdf5_and_exits_with_1(tmp_path, monkeypatch):
    (tmp_path / "h5py.py").write_text("raise ImportError('libhdf5.so.310: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run("bilm doctor")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "libhdf5.so.310: cannot open" in done.stdout
