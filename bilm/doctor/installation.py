"""Checks of packages, folders, settings and the processor; none of them imports TensorFlow."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from bilm.doctor.report import Check
from bilm.errors import BilmError
from bilm.storage.finding.cache import cache_folder
from bilm.support.imports import DISTRIBUTION, conflict
from bilm.support.process import THREADS, available_cores, machine_load

BACKENDS = ("tensorflow", "torch", "jax")  # of Keras
PYTHONS = (3, 10), (3, 13)
OPTIONAL = (
    "torch", "jax", "pandas", "pyarrow", "scikit-learn", "scipy", "spacy", "onnxruntime", "tf2onnx",
    "huggingface_hub", "gensim", "plotly", "matplotlib", "fsspec", "s3fs",
)  # fmt: skip
SETTINGS = re.compile(
    r"(TF_(?!CLI_)|KERAS_|XLA_|CUDA_|NVIDIA_|OMP_|MKL_|OPENBLAS_|JAX_|BILM_|XDG_CACHE_HOME$|TMPDIR$|"
    r"LD_LIBRARY_PATH$|PYTHONPATH$)"
)
SECRET = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD)")
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds, per period
CPU_INFO = Path("/proc/cpuinfo")
FAST_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def check_packages() -> Check:
    """Compare the installed packages with the versions that bilm requires."""
    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion

    check = Check("versions")
    check.values["bilm"] = _version(DISTRIBUTION) or "not installed as a package"
    check.values["python"] = f"{platform.python_version()} ({sys.executable})"
    check.values["system"] = platform.platform()
    (low, high), found = PYTHONS, sys.version_info[:2]
    if not low <= found <= high:
        check.problem(
            f"Python {platform.python_version()} is not tested with bilm; expected "
            f"{low[0]}.{low[1]} to {high[0]}.{high[1]}",
            "create an environment with one of these versions",
        )
    try:
        required = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        required = []
    others = [name for name in BACKENDS[1:] if _version(name)]
    for requirement in required:
        if requirement.marker is not None:  # belongs to an extra
            continue
        name, version = requirement.name, _version(requirement.name)
        check.values[name] = version
        wanted = f"{name}{requirement.specifier}"
        if version is None:
            if name == "tensorflow" and others:
                continue  # inference runs on another backend
            check.problem(f"{name} is not installed", f"pip install '{wanted}'")
            continue
        try:
            fits = requirement.specifier.contains(version, prereleases=True)
        except InvalidVersion:
            fits = False
        if not fits:
            check.problem(
                f"{name} {version} is installed; bilm requires {requirement.specifier}",
                f"pip install --upgrade '{wanted}'",
            )
    check.values |= {name: version for name in OPTIONAL if (version := _version(name))}
    if message := conflict():
        check.problem(message, f"pip uninstall bilm {DISTRIBUTION}, then install it again")
    return check


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check_processor() -> Check:
    """Report the processor, the memory, and settings in the environment."""
    check = Check("processor and settings")
    usable = available_cores()
    check.values["processor"] = _processor()
    check.values["cores"] = f"{usable} of {os.cpu_count()}"
    check.values["load"] = _load()
    flags = _flags()
    check.values["instructions"] = " ".join(name for name in FAST_FLAGS if name in flags) or None
    if (limit := _cpu_limit()) is not None:
        check.values["limit of the container"] = f"{limit:g} cores"
        if limit < usable:
            check.problem(
                f"this container may use {limit:g} cores, but TensorFlow starts threads for "
                f"{usable}; they wait for each other",
                f"export {' '.join(f'{name}={max(1, round(limit))}' for name in THREADS)}",
            )
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    check.values["memory"] = f"{pages / 1e9:,.1f} GB"
    for name in sorted(filter(SETTINGS.match, os.environ)):
        check.values[name] = "(hidden)" if SECRET.search(name) else os.environ[name]
    return check


def _load() -> str | None:
    """Describe the load of the machine; None if the system does not report it."""
    if (load := machine_load()) is None:
        return None
    note = (
        "; other programs use the cores, which lowers all speeds"
        if load > (os.cpu_count() or 1)
        else ""
    )
    return f"{load:.1f}{note}"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def has_bfloat16() -> bool:
    """Return whether the processor has instructions for products in bfloat16."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(_flags())


def _flags() -> set[str]:
    try:
        found = re.search(r"^flags\s*: (.*)$", CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        return set()
    return set(found[1].split()) if found else set()


def _cpu_limit() -> float | None:
    """Return the number of cores that a container's limit allows; None without a limit."""
    try:
        quota, period = CPU_LIMIT.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return None


def check_folders() -> Check:
    """Check that the cache and the folder of temporary files can be written."""
    check = Check("folders")
    try:
        cache: Path | None = cache_folder()
    except BilmError as error:
        cache = None
        check.problem(str(error), "export BILM_CACHE=FOLDER")
    if cache is not None:
        check.values["cache"] = str(cache)
        if (reason := _unwritable(_existing(cache))) is not None:
            check.problem(
                f"{cache}: the cache of downloaded models cannot be written: {reason}",
                "export BILM_CACHE=FOLDER with a folder that you can write",
            )
    try:
        check.values["temporary files"] = tempfile.gettempdir()
    except OSError as error:
        check.problem(f"no folder for temporary files: {error}", "export TMPDIR=FOLDER")
    return check


def _existing(folder: Path) -> Path:
    """Return the first of a folder and the folders above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _unwritable(folder: Path) -> str | None:
    """Return why no file can be created in a folder; None if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
