"""`examine`: all checks of `bilm doctor`, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from bilm.doctor import cuda
from bilm.doctor.installation import (
    BACKENDS,
    check_folders,
    check_packages,
    check_processor,
)
from bilm.doctor.probes import ask
from bilm.doctor.report import Check, Report
from bilm.support.probes import ProbeFailure

SHORT, LONG = 120.0, 300.0  # seconds that a probe may take
LEAST_SHARE = 0.2  # of the device's product that embedding usually exceeds
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
INT8 = ("onnx", "onnxruntime")  # packages that int8 requires
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.1}  # largest difference of vectors

Show = Callable[[str], object]


def examine(timed: bool = True, show: Show = lambda text: None) -> Report:
    """Examine this installation.

    Args:
        timed: whether to time training and embedding, which takes about half a minute.
        show: is called with the name of each check, and of each step of a long one, before it
            starts.
    """
    report = Report()
    for title, check in _Examination(show).checks(timed):
        show(title)
        report.checks.append(check())
    return report


class _Examination:
    """The checks, and the answers of earlier ones on which later ones depend.

    Args:
        show: see `examine`.
    """

    def __init__(self, show: Show):
        self._show = show
        self._reads_hdf5 = False
        self._gpus: list[str] | None = None  # None if TensorFlow does not work

    def checks(self, timed: bool) -> Iterator[tuple[str, Callable[[], Check]]]:
        """Yield the name of each check, and the check."""
        yield "versions", check_packages
        yield "processor", check_processor
        yield "folders", check_folders
        yield "HDF5", self._check_hdf5
        yield "GPUs", self._check_tensorflow
        yield "vectors", self._check_vectors
        if timed and self._gpus is not None:
            yield "speed", self._check_speed

    def _check_hdf5(self) -> Check:
        check = Check("HDF5")
        try:
            found = ask("hdf5", timeout=SHORT)
        except ProbeFailure as error:
            check.problem(
                f"HDF5 files cannot be read: {error}",
                "pip install --force-reinstall --no-cache-dir h5py, or another version of it",
            )
            return check
        self._reads_hdf5 = True
        check.values |= {"h5py": found["h5py"], "HDF5": found["hdf5"]}
        if not found["equal"]:
            check.problem("HDF5 returns other values than were written", "reinstall h5py")
        return check

    def _check_tensorflow(self) -> Check:
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
        self._gpus = found["gpus"]
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

    def _check_vectors(self) -> Check:
        """Compute a golden case with every backend, on every device and in every precision."""
        check = Check("vectors compared with bilm-tf")
        if not self._reads_hdf5:
            check.values["not compared"] = "HDF5 files cannot be read"
            return check
        for name, precision, environment in self._ways():
            label = f"{name}, {precision}"
            self._show(f"vectors: {label}")
            try:
                found = ask("golden", precision, timeout=SHORT, **environment)["difference"]
            except ProbeFailure as error:
                check.values[label] = "failed"
                check.problem(
                    f"{label}: computing vectors fails: {error}",
                    "use another backend, device (KERAS_BACKEND, CUDA_VISIBLE_DEVICES) or "
                    "precision, and report this text",
                )
                continue
            check.values[label] = f"largest difference {found:.1e}"
            if not found <= TOLERANCES[precision]:  # also if it is nan
                check.problem(
                    f"{label}: vectors differ from bilm-tf's by {found:.1e}, expected at most "
                    f"{TOLERANCES[precision]:.0e}",
                    "do not use this backend, device or precision for embeddings, and report this "
                    "text",
                )
        return check

    def _ways(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield the ways to compute vectors: device, precision, and the environment that selects
        the device."""
        for name, environment in self._devices():
            for precision in ("float32", "bfloat16"):
                yield name, precision, environment
        if self._gpus is not None and all(find_spec(name) is not None for name in INT8):
            yield "ONNX Runtime on the CPU", "int8", {"KERAS_BACKEND": "tensorflow", **NO_GPU}

    def _devices(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each backend and device with the environment that selects it."""
        installed = [name for name in BACKENDS if find_spec(name) is not None]
        for backend in installed:
            if backend == "tensorflow" and self._gpus is None:
                continue
            yield f"{backend} on the CPU", {"KERAS_BACKEND": backend, **NO_GPU}
        for number, gpu in enumerate(self._gpus or ()):
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            device = visible[number] if number < len(visible) and visible[number] else str(number)
            yield f"tensorflow on {gpu}", {
                "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": device,
            }  # fmt: skip

    def _check_speed(self) -> Check:
        """Time embedding and training on TensorFlow's first device."""
        check = Check("speed")
        environment = {"KERAS_BACKEND": "tensorflow"}
        gpus = self._gpus or []
        check.values["device"] = next(iter(gpus), "CPU")
        try:
            self._show("speed: matrix product")
            rates = ask("product", timeout=LONG, **environment)
            for dtype, rate in rates.items():
                check.values[f"matrix product, {dtype}"] = f"{rate:,.0f} GFLOP/s"
            for name, unit in (("embedding", "words"), ("training", "tokens")):
                self._show(f"speed: {name}")
                found = ask(name, timeout=LONG, **environment)
                share = found["gflops"] / rates["float32"]
                check.values[name] = (
                    f"{found['rate']:,.0f} {unit}/s, {share:.2f} of the matrix product's rate"
                )
                if share < LEAST_SHARE and not gpus:
                    check.problem(
                        f"{name} reaches {share:.2f} of the rate of a matrix product, expected at "
                        f"least {LEAST_SHARE}",
                        "stop other programs, and compare the number of cores and the settings "
                        "above",
                    )
        except ProbeFailure as error:
            check.problem(f"timing fails: {error}", "report this text")
        return check
