"""`examine`: the checks of `bilm doctor`, in order, and their report."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec

from bilm.support.imports import DISTRIBUTION
from bilm.support.probes import ProbeFailure, ask
from bilm.support.process import available_cores

PROBES = "bilm.doctor.probes"
SHORT, LONG = 120.0, 300.0  # seconds that a probe may take
BACKENDS = ("tensorflow", "torch", "jax")  # of Keras
INT8 = ("onnx", "onnxruntime")  # packages that int8 requires
SETTINGS = ("TF_", "KERAS_", "XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "OMP_", "OPENBLAS_", "BILM_CACHE")
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.1}  # largest difference of vectors
LIST_GPUS = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"

Show = Callable[[str], object]
Values = dict[str, str | None]


@dataclass
class Report:
    """The result of `bilm doctor`. Its fields are the keys of `bilm doctor --json`.

    Fields:
        checks: names and values of each check, by its title.
        problems: what prevents bilm from working, or makes it inexact: `found` and `fix`.
    """

    checks: dict[str, Values] = field(default_factory=dict)
    problems: list[dict[str, str]] = field(default_factory=list)

    def problem(self, found: str, fix: str) -> None:
        """Add what was found and expected, and what the user can do."""
        self.problems.append({"found": found, "fix": fix})

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report as text."""
        for title, values in self.checks.items():
            yield title
            width = max(map(len, values), default=0)
            for name, value in values.items():
                yield f"  {name:<{width}}  {'-' if value is None else value}"
        yield "problems" if self.problems else "no problems found"
        for number, problem in enumerate(self.problems, 1):
            yield f"  {number}. {problem['found']}"
            yield f"     Fix: {problem['fix']}"


def examine(timed: bool = True, show: Show = lambda text: None) -> Report:
    """Examine this installation.

    Args:
        timed: whether to time embedding, which takes some seconds.
        show: is called with the name of each step before it starts.
    """
    report = Report()
    report.checks["versions"] = _versions(report)
    report.checks["machine and settings"] = _settings()
    show("devices")
    report.checks["devices"], gpus = _devices(report)
    report.checks["vectors compared with bilm-tf"] = _vectors(report, gpus, show)
    if timed and gpus is not None:
        show("speed")
        report.checks["speed"] = _speed(report)
    return report


def _versions(report: Report) -> Values:
    """Compare the installed packages with the versions that bilm and its extras require."""
    from packaging.requirements import Requirement

    values: Values = {
        "bilm": _version(DISTRIBUTION) or "not installed as a package",
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        **{name: version for name in BACKENDS if (version := _version(name))},
    }
    required = metadata.requires(DISTRIBUTION) if _version(DISTRIBUTION) else None
    for requirement in map(Requirement, required or ()):
        name, version = requirement.name, _version(requirement.name)
        is_optional = requirement.marker is not None  # belongs to an extra
        if name == "tensorflow" and any(map(_version, BACKENDS[1:])):
            is_optional = True  # inference runs on another backend
        if version is None and is_optional:
            continue
        values[name] = version
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            report.problem(
                f"{name} {version or 'is missing'}; bilm requires {requirement.specifier or name}",
                f"pip install --upgrade '{name}{requirement.specifier}'",
            )
    return values


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _settings() -> Values:
    """Describe the machine and the settings in the environment."""
    cores, load = f"{available_cores()} of {os.cpu_count()}", f"{os.getloadavg()[0]:.1f}"
    names = [name for name in sorted(os.environ) if name.startswith(SETTINGS)]
    return {"cores": cores, "load": load, **{name: os.environ[name] for name in names}}


def _devices(report: Report) -> tuple[Values, list[str] | None]:
    """Import TensorFlow; return its description and the names of the GPUs that it uses, None if it
    does not work."""
    if find_spec("tensorflow") is None:
        return {"TensorFlow": "not installed"}, None
    try:
        found = ask(PROBES, "tensorflow", timeout=SHORT)
    except ProbeFailure as error:
        report.problem(
            f"TensorFlow cannot be imported: {error}",
            "pip install --force-reinstall 'tensorflow>=2.16' in a new environment",
        )
        return {"TensorFlow": "failed"}, None
    gpus = found["gpus"]
    if not gpus and shutil.which("nvidia-smi"):
        report.problem(
            "this host has NVIDIA's driver, but TensorFlow lists no GPU",
            "pip install 'tensorflow[and-cuda]', and check CUDA_VISIBLE_DEVICES. TensorFlow names "
            f'missing libraries: TF_CPP_MIN_LOG_LEVEL=0 python -c "{LIST_GPUS}"',
        )
    values: Values = {f"GPU {number}": name for number, name in enumerate(gpus)}
    return {"TensorFlow was built for": found["built for"], "GPUs": str(len(gpus))} | values, gpus


def _vectors(report: Report, gpus: list[str] | None, show: Show) -> Values:
    """Compute a golden case with every backend and in every precision."""
    values: Values = {}
    for name, precision, environment in _ways(gpus):
        label = f"{name}, {precision}"
        show(f"vectors: {label}")
        try:
            found = ask(PROBES, "golden", precision, timeout=SHORT, **environment)["difference"]
        except ProbeFailure as error:
            values[label] = "failed"
            report.problem(
                f"{label}: computing vectors fails: {error}",
                "use another backend (KERAS_BACKEND), device (CUDA_VISIBLE_DEVICES) or precision, "
                "and report this text",
            )
            continue
        values[label] = f"largest difference {found:.1e}"
        if not found <= TOLERANCES[precision]:  # also if it is nan
            report.problem(
                f"{label}: vectors differ from bilm-tf's by {found:.1e}, expected at most "
                f"{TOLERANCES[precision]:.0e}",
                "do not use this backend, device or precision for embeddings; report this text",
            )
    return values


def _ways(gpus: list[str] | None) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the ways to compute vectors: device, precision, and the environment that selects
    the device."""
    installed = [name for name in BACKENDS if find_spec(name) is not None]
    devices = [(f"{name} on the CPU", {"KERAS_BACKEND": name, **NO_GPU}) for name in installed]
    if gpus is None and "tensorflow" in installed:
        del devices[0]
    if gpus:
        devices.append((f"tensorflow on {gpus[0]}", {"KERAS_BACKEND": "tensorflow"}))
    for name, environment in devices:
        for precision in ("float32", "bfloat16"):
            yield name, precision, environment
    if gpus is not None and all(find_spec(name) is not None for name in INT8):
        yield "ONNX Runtime on the CPU", "int8", {"KERAS_BACKEND": "tensorflow", **NO_GPU}


def _speed(report: Report) -> Values:
    """Time embedding on TensorFlow's first device."""
    try:
        found = ask(PROBES, "embedding", timeout=LONG, KERAS_BACKEND="tensorflow")
    except ProbeFailure as error:
        report.problem(f"timing fails: {error}", "report this text")
        return {"embedding": "failed"}
    return {"embedding": f"{found['rate']:,.0f} words/s, novels-en"}
