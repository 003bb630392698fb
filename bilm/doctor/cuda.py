"""Checks of NVIDIA's driver, of CUDA's libraries, and of the kernels in TensorFlow's package.

Libraries are loaded one by one in a process of its own: see `bilm.doctor.probes`. The names of the
libraries follow NVIDIA's releases: a library's own major version can differ from CUDA's.
"""

from __future__ import annotations

import ctypes
import glob
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bilm.doctor.report import Check

DRIVER = Path("/proc/driver/nvidia/version")  # exists on Linux if NVIDIA's driver is loaded
INSTALL = "pip install 'tensorflow[and-cuda]' installs NVIDIA's libraries of the right versions"
DRIVER_LIBRARY = "libcuda.so.1"  # belongs to the driver
# File names by major version of CUDA, without cuDNN, whose version is separate.
LIBRARIES = {
    11: ("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10",
         "libcusolver.so.11", "libcusparse.so.11"),
    12: ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11",
         "libcusolver.so.11", "libcusparse.so.12", "libcupti.so.12", "libnccl.so.2"),
    13: ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcufft.so.12",
         "libcusolver.so.12", "libcusparse.so.12", "libcupti.so.13", "libnccl.so.2"),
}  # fmt: skip


class Gpu(NamedTuple):
    """A GPU that the driver reports.

    Fields: `name`; `capability`, such as (8, 0); `driver`, the version of the driver.
    """

    name: str
    capability: tuple[int, int]
    driver: str


def driver_gpus() -> list[Gpu]:
    """Return the GPUs that `nvidia-smi` lists; an empty list without it.

    Raises: OSError if `nvidia-smi` exists and fails; its message is that of the program.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired as error:
        raise OSError("nvidia-smi does not answer within 60 seconds") from error
    if found.returncode:
        message = (found.stdout + found.stderr).strip().splitlines()
        raise OSError(message[0] if message else f"nvidia-smi ends with {found.returncode}")
    gpus = []
    for line in found.stdout.splitlines():
        name, capability, driver = (part.strip() for part in line.rsplit(",", 2))
        numbers = re.fullmatch(r"(\d+)\.(\d+)", capability)
        gpus.append(Gpu(name, (int(numbers[1]), int(numbers[2])) if numbers else (0, 0), driver))
    return gpus


def library_names(cuda: str, cudnn: str) -> list[str]:
    """Return the files of libraries that TensorFlow loads.

    Args:
        cuda, cudnn: versions that TensorFlow was built with, such as "12.5.1" and "9".
    """
    major = int(cuda.split(".")[0])
    known = LIBRARIES.get(major, LIBRARIES[max(LIBRARIES)])
    return [DRIVER_LIBRARY, *known, f"libcudnn.so.{cudnn.split('.')[0]}"]


def find_library(name: str) -> str | None:
    """Load a library and return where it is; None if it cannot be loaded.

    TensorFlow also looks in the packages `nvidia-*` of pip.
    """
    places = [name]
    for folder in {*site.getsitepackages(), *sys.path}:
        places += sorted(glob.glob(f"{glob.escape(folder)}/nvidia/*/lib/{name}"))
    for place in places:
        try:
            ctypes.CDLL(place)
        except OSError:
            continue
        return place
    return None


def check_gpus(
    gpus: Sequence[Gpu] | OSError,
    build: dict,
    libraries: dict[str, str | None],
    seen: Sequence[str],
) -> Check:
    """Report GPUs, and why TensorFlow does not use them.

    Args:
        gpus: result of `driver_gpus`, or the error that it raised.
        build: `tf.sysconfig.get_build_info()`.
        libraries: for each name of `library_names`, the result of `find_library`.
        seen: names of the GPUs that TensorFlow lists.
    """
    check = Check("GPUs")
    cuda = build.get("cuda_version") if build.get("is_cuda_build") else None
    check.values["TensorFlow was built for"] = (
        f"CUDA {cuda}, cuDNN {build.get('cudnn_version')}" if cuda else "the CPU only"
    )
    if isinstance(gpus, OSError):
        check.values["nvidia-smi"] = str(gpus)
        check.problem(
            f"nvidia-smi fails: {gpus}",
            "install NVIDIA's driver again, or reload it (reboot), and start nvidia-smi",
        )
        return check
    for number, gpu in enumerate(gpus):
        check.values[f"GPU {number}"] = (
            f"{gpu.name}, compute capability {gpu.capability[0]}.{gpu.capability[1]}, "
            f"driver {gpu.driver}"
        )
    check.values["GPUs of TensorFlow"] = ", ".join(seen) or "none"
    if not gpus and not DRIVER.exists():
        check.values["NVIDIA driver"] = "none"
        return check
    if not cuda:
        check.problem(
            "this host has an NVIDIA GPU, but TensorFlow was built for the CPU only",
            f"pip uninstall tensorflow-cpu tensorflow; {INSTALL}",
        )
        return check
    check.values |= {name: place or "missing" for name, place in libraries.items()}
    missing = [name for name, place in libraries.items() if place is None]
    if DRIVER_LIBRARY in missing:
        check.problem(
            f"{DRIVER_LIBRARY}, which is part of NVIDIA's driver, cannot be loaded",
            "install the driver on the host; in a container, start it with the NVIDIA container "
            "toolkit (docker run --gpus all)",
        )
        missing.remove(DRIVER_LIBRARY)
    if missing:
        check.problem(f"missing libraries of CUDA: {', '.join(missing)}", INSTALL)
    elif not seen and libraries.get(DRIVER_LIBRARY):
        check.problem(
            "all libraries load, but TensorFlow lists no GPU",
            "compare the driver's version with the one that CUDA "
            f"{cuda} requires, and check CUDA_VISIBLE_DEVICES",
        )
    for gpu in gpus:
        _check_kernels(check, gpu, build.get("cuda_compute_capabilities") or ())
    return check


def _check_kernels(check: Check, gpu: Gpu, kernels: Sequence[str]) -> None:
    """Compare a GPU with the kernels that TensorFlow's package contains.

    Machine code (`sm_80`) runs on GPUs of the same major version and the same or a higher minor
    one. Intermediate code (`compute_90`) is compiled for newer GPUs at the first start.
    """
    found = {
        (kind, divmod(int(number), 10))
        for kernel in kernels
        for kind, number in re.findall(r"(sm|compute)_(\d+)", kernel)
    }
    if not found or gpu.capability == (0, 0):
        return
    major, minor = gpu.capability
    if any(kind == "sm" and own[0] == major and own[1] <= minor for kind, own in found):
        return
    listed = ", ".join(kernels)
    if any(kind == "compute" and own <= gpu.capability for kind, own in found):
        check.problem(
            f"TensorFlow contains no machine code for {gpu.name} ({major}.{minor}), only {listed}; "
            "it compiles its kernels at the first start, for up to half an hour, and some may fail",
            "set CUDA_CACHE_MAXSIZE=4294967296 so that the result is kept, or install a newer "
            "TensorFlow",
        )
    else:
        check.problem(
            f"TensorFlow contains no kernels for {gpu.name} ({major}.{minor}), only {listed}",
            "install a version of TensorFlow that supports this GPU, or pass --n_gpus=0",
        )
