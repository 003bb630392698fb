"""The packages of bilm-keras; everything else is in pyproject.toml, which cannot say this."""

from setuptools import find_packages, setup

setup(
    # options/ lies at the root where people look for it; installed, it is beside the modules.
    packages=[*find_packages(include=["bilm", "bilm.*"]), "bilm._options"],
    package_dir={"bilm._options": "options"},
    package_data={"bilm": ["py.typed", "models/*/*"], "bilm._options": ["*.json"]},
)
