"""`examine`: all checks of `bilm doctor`, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from bilm.doctor import cuda
from bilm.doctor.installation import (
    BACKENDS,
    check_folders,
    check_packages,
    check_processor,
)
from bilm.doctor.probes import TOLERANCE, ask
from bilm.doctor.report import Check, Report
from bilm.support.probes import ProbeFailure

SHORT, LONG = 120.0, 300.0  # seconds that a probe may take
LEAST_SHARE = 0.2  # of the device's product that embedding usually exceeds
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
BFLOAT16_TOLERANCE = 0.1  # largest difference of vectors with bfloat16

Show = Callable[[str], object]


def examine(timed: bool = True, show: Show = lambda text: None) -> Report:
    """Examine this installation.

    Args:
        timed: whether to time training and embedding, which takes about half a minute.
        show: is called with the name of each part before it starts.
    """
    report = Report()
    for title, check in _checks(timed):
        show(title)
        report.checks.append(check())
    return report


def _checks(timed: bool) -> Iterator[tuple[str, Callable[[], Check]]]:
    """Yield the parts of the report. Later parts depend on the answers of earlier ones."""
    yield "versions", check_packages
    yield "processor", check_processor
    yield "folders", check_folders
    answers: dict[str, Any] = {}
    yield "HDF5", lambda: _check_hdf5(answers)
    yield "GPUs", lambda: _check_tensorflow(answers)
    yield "vectors", lambda: _check_vectors(answers)
    if timed and "gpus" in answers:
        yield "speed", lambda: _check_speed(answers)


def _check_hdf5(answers: dict[str, Any]) -> Check:
    check = Check("HDF5")
    try:
        found = ask("hdf5", timeout=SHORT)
    except ProbeFailure as error:
        check.problem(
            f"HDF5 files cannot be read: {error}",
            "pip install --force-reinstall --no-cache-dir h5py, or another version of it",
        )
        return check
    answers["hdf5"] = True
    check.values |= {"h5py": found["h5py"], "HDF5": found["hdf5"]}
    if not found["equal"]:
        check.problem("HDF5 returns other values than were written", "reinstall h5py")
    return check


def _check_tensorflow(answers: dict[str, Any]) -> Check:
    """Import TensorFlow, and find out which GPUs it uses."""
    if find_spec("tensorflow") is None:
        check = Check("GPUs")
        check.values["TensorFlow"] = "not installed"
        return check
    try:
        found = ask("tensorflow", timeout=SHORT)
    except ProbeFailure as error:
        check = Check("GPUs")
        check.problem(
            f"TensorFlow cannot be imported: {error}",
            "pip install --force-reinstall 'tensorflow>=2.16' in a new environment",
        )
        return check
    answers["gpus"] = found["gpus"]
    build = found["build"]
    try:
        gpus: list[cuda.Gpu] | OSError = cuda.driver_gpus()
    except OSError as error:
        gpus = error
    libraries = {}
    if build.get("is_cuda_build") and (gpus or cuda.DRIVER.exists()):
        try:
            versions = str(build["cuda_version"]), str(build["cudnn_version"])
            libraries = ask("libraries", *versions, timeout=SHORT)
        except ProbeFailure as error:
            check = cuda.check_gpus(gpus, build, {}, found["gpus"])
            check.problem(f"loading CUDA's libraries fails: {error}", cuda.INSTALL)
            return check
    return cuda.check_gpus(gpus, build, libraries, found["gpus"])


def _check_vectors(answers: dict[str, Any]) -> Check:
    """Compute a golden case with every backend and on every device."""
    check = Check("vectors compared with bilm-tf")
    if "hdf5" not in answers:
        check.values["not compared"] = "HDF5 files cannot be read"
        return check
    for name, environment in _devices(answers):
        for precision, most in (("float32", TOLERANCE), ("bfloat16", BFLOAT16_TOLERANCE)):
            label = f"{name}, {precision}"
            try:
                found = ask("golden", precision, timeout=SHORT, **environment)["difference"]
            except ProbeFailure as error:
                check.values[label] = "failed"
                check.problem(
                    f"{label}: computing vectors fails: {error}",
                    "use another backend or device (KERAS_BACKEND, CUDA_VISIBLE_DEVICES), and "
                    "report this text",
                )
                continue
            check.values[label] = f"largest difference {found:.1e}"
            if not found <= most:  # also if it is nan
                check.problem(
                    f"{label}: vectors differ from bilm-tf's by {found:.1e}, expected at most "
                    f"{most:.0e}",
                    "do not use this backend or device for embeddings, and report this text",
                )
    return check


def _devices(answers: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each backend and device with the environment that selects it."""
    installed = [name for name in BACKENDS if find_spec(name) is not None]
    for backend in installed:
        if backend == "tensorflow" and "gpus" not in answers:
            continue
        yield f"{backend} on the CPU", {"KERAS_BACKEND": backend, **NO_GPU}
    for number, gpu in enumerate(answers.get("gpus", ())):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        device = visible[number] if number < len(visible) and visible[number] else str(number)
        yield f"tensorflow on {gpu}", {
            "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": device,
        }  # fmt: skip


def _check_speed(answers: dict[str, Any]) -> Check:
    """Time embedding and training on TensorFlow's first device."""
    check = Check("speed")
    environment = {"KERAS_BACKEND": "tensorflow"}
    try:
        rates = ask("product", timeout=LONG, **environment)
        check.values["device"] = next(iter(answers["gpus"]), "CPU")
        for dtype, rate in rates.items():
            check.values[f"matrix product, {dtype}"] = f"{rate:,.0f} GFLOP/s"
        for name, unit in (("embedding", "words"), ("training", "tokens")):
            found = ask(name, timeout=LONG, **environment)
            share = found["gflops"] / rates["float32"]
            check.values[name] = (
                f"{found['rate']:,.0f} {unit}/s, {share:.2f} of the matrix product's rate"
            )
            if share < LEAST_SHARE and not answers["gpus"]:
                check.problem(
                    f"{name} reaches {share:.2f} of the rate of a matrix product, expected at "
                    f"least {LEAST_SHARE}",
                    "stop other programs, and compare the number of cores and the settings above",
                )
    except ProbeFailure as error:
        check.problem(f"timing fails: {error}", "report this text")
    return check
