"""Packaging of bilm: `pip install .` gives the package, its options files and the commands."""

import re
from glob import glob
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (HERE / "bilm/__init__.py").read_text())[1]
README = HERE / "README.md"

setup(
    name="bilm",
    version=VERSION,
    description="The biLM behind ELMo on TensorFlow 2 and Keras 3: train, measure, export, embed",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
    ],
    # options/ lies at the root where people look for it; installed, it is beside the modules.
    packages=[*find_packages(include=["bilm", "bilm.*"]), "bilm._options"],
    package_dir={"bilm._options": "options"},
    package_data={"bilm._options": ["*.json"]},
    scripts=sorted(glob("bin/*.py")),
    # TensorFlow brings Keras, also one that is too old: 3.3 takes no None by position.
    install_requires=["tensorflow>=2.16", "keras>=3.4", "numpy", "h5py", "absl-py"],
    extras_require={
        "test": ["pytest", "pytest-xdist", "hypothesis", "ruff"],
        "plot": ["matplotlib"],
        "tensorboard": ["tensorboard"],  # TensorFlow writes its files and does not bring it
        "cuda": ["tensorflow[and-cuda]"],  # the libraries of NVIDIA, which TensorFlow alone lacks
    },
)
