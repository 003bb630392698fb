"""`examine`: the checks of `bilm doctor`, in order, and their report."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from absl import logging

from bilm.precisions import PRECISIONS
from bilm.support.imports import DISTRIBUTION, WITHOUT_TENSORFLOW
from bilm.support.process import (
    LIBRARIES,
    LOG_LEVEL,
    QUIET,
    available_cores,
    gpu_driver,
    load_average,
)

INT8 = ("onnx", "onnxruntime")  # packages that int8 requires
PACKAGES = (*LIBRARIES, "keras", "numpy", "h5py", *INT8)  # whose versions are listed
SETTINGS = ("TF_", "KERAS_", "XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "OMP_", "OPENBLAS_", "BILM_CACHE")
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.1}  # largest difference of vectors
TIMEOUT = 120.0  # seconds that a probe may take
LIST_GPUS = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"

Values = dict[str, str]


@dataclass
class Report:
    """The result of `bilm doctor`. Its fields are the keys of `bilm doctor --json`."""

    checks: dict[str, Values] = field(default_factory=dict)  # names and values, by title
    problems: list[dict[str, str]] = field(default_factory=list)  # `found` and `fix` of each

    def problem(self, found: str, fix: str) -> None:
        """Add a problem and what the user can do."""
        self.problems.append({"found": found, "fix": fix})

    def ask(self, found: str, fix: str, *probe: str, **environment: str) -> dict[str, Any] | None:
        """Return the result of a function of `probes` and its arguments in a new process; None if
        it fails, which is a problem: `found`, and the reason."""
        command = [sys.executable, "-m", "bilm.doctor.probes", *probe]
        variables = {LOG_LEVEL: QUIET, **os.environ, **environment}
        try:
            done = subprocess.run(command, capture_output=True, env=variables, timeout=TIMEOUT)
            done.check_returncode()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            *_, last = (error.stderr or b"").strip().split(b"\n")
            self.problem(f"{found}: {error} {last.decode(errors='replace')}", fix)
            return None
        return json.loads(done.stdout.splitlines()[-1])

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report as text."""
        for title, values in self.checks.items():
            yield title
            width = max(map(len, values), default=0)
            for name, value in values.items():
                yield f"  {name:<{width}}  {value}"
        yield "problems" if self.problems else "no problems found"
        for number, problem in enumerate(self.problems, 1):
            yield f"  {number}. {problem['found']}"
            yield f"     Fix: {problem['fix']}"


def examine() -> Report:
    """Examine this installation; log the name of each step before it starts."""
    report = Report()
    report.checks["versions"] = _versions()
    variables = [name for name in sorted(os.environ) if name.startswith(SETTINGS)]
    report.checks["machine and settings"] = {
        "cores": f"{available_cores()} of {os.cpu_count()}",
        "load": f"{load_average():.1f}",
        **{name: os.environ[name] for name in variables},
    }
    if find_spec("tensorflow") is None:
        report.checks["without TensorFlow"] = {"bilm": WITHOUT_TENSORFLOW}
    logging.info("checking devices")
    report.checks["devices"], gpus = _devices(report)
    report.checks["vectors compared with bilm-tf"] = _vectors(report, gpus)
    return report


def _versions() -> Values:
    values = {
        "bilm": "not installed as a package",
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
    }
    for name in ("bilm", *PACKAGES):
        with suppress(metadata.PackageNotFoundError):
            values[name] = metadata.version(DISTRIBUTION if name == "bilm" else name)
    return values


def _devices(report: Report) -> tuple[Values, dict[str, list[str]]]:
    """Return a description of the backends, and the names of the GPUs of those that work."""
    values: Values = {}
    gpus: dict[str, list[str]] = {}
    for backend in filter(find_spec, LIBRARIES):
        fix = f"pip install --force-reinstall {backend} in a new environment"
        problem = f"{backend} cannot be imported"
        answer = report.ask(problem, fix, "devices", KERAS_BACKEND=backend)
        if answer is None:
            values[backend] = "failed"
            continue
        gpus[backend] = answer["gpus"]
        built = f", built for CUDA {answer['CUDA']}" if answer["CUDA"] else ""
        values[backend] = f"{len(gpus[backend])} GPUs{built}"
        values |= {f"{backend} GPU {number}": name for number, name in enumerate(gpus[backend])}
    if gpus.get("tensorflow") == [] and gpu_driver() == "nvidia-smi":
        report.problem(
            "this host has NVIDIA's driver, but TensorFlow lists no GPU",
            "pip install 'tensorflow[and-cuda]', and check CUDA_VISIBLE_DEVICES. TensorFlow names "
            f'missing libraries: TF_CPP_MIN_LOG_LEVEL=0 python -c "{LIST_GPUS}"',
        )
    return values, gpus


def _vectors(report: Report, gpus: dict[str, list[str]]) -> Values:
    values: Values = {}
    for device, precision, environment in _ways(gpus):
        way = f"{device}, {precision}"
        logging.info("checking vectors: %s", way)
        fix = (
            "use another backend (KERAS_BACKEND), device (CUDA_VISIBLE_DEVICES) or precision, and "
            "report this text"
        )
        problem = f"{way}: computing vectors fails"
        answer = report.ask(problem, fix, "golden", precision, **environment)
        if answer is None:
            values[way] = "failed"
            continue
        difference, tolerance = answer["difference"], TOLERANCES[precision]
        values[way] = f"largest difference {difference:.1e}"
        if not difference <= tolerance:  # also if it is nan
            report.problem(
                f"{way}: vectors differ from bilm-tf's by {difference:.1e}, expected at most "
                f"{tolerance:.0e}",
                "for float32 on TensorFlow and a GPU, NVIDIA_TF32_OVERRIDE=0; otherwise do not use "
                "this backend, device or precision for embeddings, and report this text",
            )
    return values


def _ways(gpus: dict[str, list[str]]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield library and device, precision, and the environment that selects them."""
    yield "numpy on the CPU", "float32", {"KERAS_BACKEND": ""}
    if find_spec("keras") is None:
        return
    for backend, names in gpus.items():
        library = {"KERAS_BACKEND": backend}
        devices = {f"{backend} on the CPU": library | NO_GPU}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(len(names))))
        for (number, name), device in zip(enumerate(names), visible.split(","), strict=False):
            devices[f"{backend} on GPU {number}, {name}"] = library | {
                "CUDA_VISIBLE_DEVICES": device
            }
        for device, environment in devices.items():
            for precision in PRECISIONS:
                yield device, precision, environment
    if "tensorflow" in gpus and all(map(find_spec, INT8)):
        yield "ONNX Runtime on the CPU", "int8", {"KERAS_BACKEND": "tensorflow", **NO_GPU}
