"""`bilm doctor`: versions, folders, HDF5, CUDA's driver, libraries and kernels, vectors."""

import json
import os
import stat

import pytest
from command_runs import run

from bilm.doctor import cuda, examination, installation
from bilm.doctor.cuda import Gpu, check_gpus, driver_gpus, find_library, library_names
from bilm.doctor.examination import examine
from bilm.doctor.installation import check_folders, check_packages, check_processor
from bilm.doctor.probes import ask
from bilm.doctor.report import Check, Report
from bilm.support.probes import ProbeFailure

BUILD = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}
A100, NEWER, OLDER = (
    Gpu("A100", (8, 0), "550.1"), Gpu("RTX 5090", (12, 0), "570.1"), Gpu("K80", (3, 7), "470.1"),
)  # fmt: skip


def found(check):
    return [problem.found for problem in check.problems]


def loaded(*missing):
    return {name: None if name in missing else name for name in library_names("12.5.1", "9")}


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Return a function that puts a program nvidia-smi on the path."""

    def write(script):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return write


@pytest.fixture
def shadow(tmp_path, monkeypatch):
    """Return a function that puts a module in front of the installed one, in new processes."""

    def write(name, code):
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return write


# --- versions, folders, settings ---


def test_installed_versions_that_fit_are_no_problem():
    check = check_packages()
    assert found(check) == []
    assert check.values["tensorflow"] and check.values["keras"]


def test_keras_that_is_too_old_is_a_problem_with_the_command_that_upgrades_it(
    tmp_path, monkeypatch
):
    old = tmp_path / "keras-3.3.3.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 3.3.3\n")
    monkeypatch.syspath_prepend(tmp_path)
    check = check_packages()
    assert check.problems[0].found == "keras 3.3.3 is installed; bilm requires >=3.4"
    assert "pip install --upgrade 'keras>=3.4'" in check.problems[0].fix


@pytest.mark.parametrize(("others", "n_problems"), [((), 1), (("torch",), 0)])
def test_missing_tensorflow_is_a_problem_unless_another_backend_is_installed(
    others, n_problems, monkeypatch
):
    version = installation._version

    def without(name):
        if name in installation.BACKENDS:
            return "2.6" if name in others else None
        return version(name)

    monkeypatch.setattr(installation, "_version", without)
    assert len(check_packages().problems) == n_problems


def test_cache_below_a_home_that_is_not_a_folder_is_a_problem(monkeypatch):
    monkeypatch.delenv("BILM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    (problem,) = check_folders().problems
    assert problem.found.startswith("/dev/null/cache/bilm: the cache of downloaded models cannot")
    assert "BILM_CACHE" in problem.fix


def test_read_only_home_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "bilm"))

    def refuse(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(installation.tempfile, "TemporaryFile", refuse)
    (problem,) = check_folders().problems
    assert problem.found.endswith("cannot be written: Permission denied")


def test_container_with_fewer_cores_than_the_machine_is_a_problem(monkeypatch, tmp_path):
    limit = tmp_path / "cpu.max"
    limit.write_text("50000 100000\n")
    monkeypatch.setattr(installation, "CPU_LIMIT", limit)
    (problem,) = check_processor().problems
    assert "this container may use 0.5 cores" in problem.found
    assert "TF_NUM_INTRAOP_THREADS=1" in problem.fix
    limit.write_text("max 100000\n")
    assert not check_processor().problems


@pytest.mark.parametrize(("load", "is_noted"), [(0.0, False), (1e6, True)])
def test_load_of_other_programs_is_reported_and_no_problem(load, is_noted, monkeypatch):
    monkeypatch.setattr(installation, "machine_load", lambda: load)
    check = check_processor()
    assert check.values["load"].startswith(f"{load:.1f}") and not check.problems
    assert ("other programs use the cores" in check.values["load"]) is is_noted


def test_values_of_secret_variables_are_hidden(monkeypatch):
    monkeypatch.setenv("TF_API_TOKEN", "hush")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    values = check_processor().values
    assert values["TF_API_TOKEN"] == "(hidden)" and values["KERAS_BACKEND"] == "torch"


# --- GPUs ---


def test_gpus_are_read_from_nvidia_smi(nvidia_smi):
    nvidia_smi('echo "NVIDIA A100-SXM4, 80GB, 8.0, 550.54.15"')
    assert driver_gpus() == [Gpu("NVIDIA A100-SXM4, 80GB", (8, 0), "550.54.15")]


def test_failing_nvidia_smi_is_a_problem_with_its_message(nvidia_smi):
    nvidia_smi('echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    with pytest.raises(OSError, match="version mismatch") as raised:
        driver_gpus()
    (problem,) = check_gpus(raised.value, BUILD, {}, []).problems
    assert "version mismatch" in problem.found and "driver" in problem.fix


def test_host_without_nvidia_hardware_has_no_problem():
    check = check_gpus([], BUILD, {}, [])
    assert not check.problems and check.values["NVIDIA driver"] == "none"


def test_missing_cuda_library_is_named_with_the_command_that_installs_it():
    check = check_gpus([A100], BUILD, loaded("libcudnn.so.9"), [])
    assert found(check) == ["missing libraries of CUDA: libcudnn.so.9"]
    assert "tensorflow[and-cuda]" in check.problems[0].fix
    assert check.values["libcudnn.so.9"] == "missing"


def test_missing_library_of_the_driver_is_a_problem_of_its_own():
    first, second = check_gpus([A100], BUILD, loaded("libcuda.so.1", "libcufft.so.11"), []).problems
    assert "part of NVIDIA's driver" in first.found
    assert second.found == "missing libraries of CUDA: libcufft.so.11"


def test_libraries_that_load_while_tensorflow_lists_no_gpu_are_a_problem():
    assert "TensorFlow lists no GPU" in check_gpus([A100], BUILD, loaded(), []).problems[0].found


def test_tensorflow_for_the_cpu_on_a_host_with_a_gpu_is_a_problem():
    (problem,) = check_gpus([A100], {"is_cuda_build": False}, {}, []).problems
    assert "built for the CPU only" in problem.found


def test_driver_without_nvidia_smi_is_noticed(monkeypatch, tmp_path):
    (tmp_path / "version").touch()
    monkeypatch.setattr(cuda, "DRIVER", tmp_path / "version")
    assert found(check_gpus([], BUILD, loaded("libcudart.so.12"), []))


@pytest.mark.parametrize(
    ("gpu", "message"),
    [(A100, None), (NEWER, "contains no machine code"), (OLDER, "contains no kernels")],
)
def test_kernels_of_the_package_are_compared_with_the_gpu(gpu, message):
    messages = found(check_gpus([gpu], BUILD, loaded(), [gpu.name]))
    assert messages == [] if message is None else message in messages[0]


def test_libraries_are_looked_for_by_file_name():
    assert find_library("libdoes_not_exist.so.3") is None
    assert library_names("13.0.2", "9")[-1] == "libcudnn.so.9"
    assert "libcublas.so.13" in library_names("13.0.2", "9")


# --- probes ---


def test_probe_of_hdf5_answers():
    assert ask("hdf5", timeout=60)["equal"] is True


def test_broken_hdf5_library_is_reported_with_the_message_of_the_loader(shadow):
    shadow("h5py", "raise ImportError('libhdf5.so.310: cannot open shared object file')")
    with pytest.raises(ProbeFailure, match=r"libhdf5\.so\.310: cannot open"):
        ask("hdf5", timeout=60)


def test_library_that_aborts_the_process_ends_only_the_probe(shadow):
    shadow("h5py", "import os; os.abort()")
    with pytest.raises(ProbeFailure, match="ended by SIGABRT"):
        ask("hdf5", timeout=60)


def test_probe_that_hangs_is_stopped(shadow):
    shadow("h5py", "import time; time.sleep(60)")
    with pytest.raises(ProbeFailure, match="no answer after 1 seconds"):
        ask("hdf5", timeout=1)


# --- the whole examination ---


@pytest.fixture
def answered(monkeypatch):
    """Answer the probes without processes; return the probes that were asked."""
    asked = []

    def answer(name, *arguments, timeout, **environment):
        asked.append((name, *arguments))
        if name == "golden":
            return {"difference": 1.0 if arguments == ("int8",) else 0.0}
        return {
            "hdf5": {"h5py": "3", "hdf5": "1.14", "equal": True},
            "tensorflow": {"gpus": [], "build": {}},
            "product": {"float32": 100.0, "bfloat16": 200.0},
        }.get(name, {"rate": 1000.0, "gflops": 50.0})

    monkeypatch.setattr(examination, "ask", answer)
    monkeypatch.setattr(cuda, "driver_gpus", list)
    installed = {"tensorflow", "onnx", "onnxruntime"}
    monkeypatch.setattr(examination, "find_spec", lambda name: name if name in installed else None)
    return asked


def test_each_step_of_a_long_check_is_shown_before_it_starts(answered):
    shown = []
    examine(show=lambda text: shown.append((text, len(answered))))
    texts = [text for text, _ in shown]
    assert texts[texts.index("vectors") :] == [
        "vectors",
        "vectors: tensorflow on the CPU, float32",
        "vectors: tensorflow on the CPU, bfloat16",
        "vectors: ONNX Runtime on the CPU, int8",
        "speed",
        "speed: matrix product",
        "speed: embedding",
        "speed: training",
    ]
    before = dict(shown)
    assert before["speed: training"] == len(answered) - 1


def test_int8_vectors_that_differ_from_bilm_tf_are_a_problem(answered):
    report = examine(timed=False)
    (problem,) = report.problems
    assert problem.found.startswith("ONNX Runtime on the CPU, int8: vectors differ")
    assert not {("product",), ("training",)} & set(answered)


# --- the command ---


def test_report_lists_problems_with_their_fix():
    check = Check("versions", {"keras": "3.3", "jax": None})
    check.problem("keras is too old", "pip install keras")
    report = Report([check])
    assert list(report.lines()) == [
        "versions",
        "  keras  3.3",
        "  jax    -",
        "problems",
        "  1. keras is too old",
        "     Fix: pip install keras",
    ]
    assert report.as_dict()["problems"] == [
        {"found": "keras is too old", "fix": "pip install keras"}
    ]


@pytest.mark.slow
def test_doctor_finds_no_problem_in_this_environment_and_vectors_equal_those_of_bilm_tf():
    done = run("bilm doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["problems"] == []
    vectors = report["checks"]["vectors compared with bilm-tf"]
    assert "tensorflow on the CPU, float32" in vectors
    assert {"embedding", "training"} <= set(report["checks"]["speed"])


@pytest.mark.slow
def test_doctor_reports_broken_hdf5_and_exits_with_1(shadow):
    shadow("h5py", "raise ImportError('libhdf5.so.310: cannot open shared object file')")
    done = run("bilm doctor", "--fast")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "1. HDF5 files cannot be read" in done.stdout
