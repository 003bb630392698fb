"""The packages of bilm-keras, which pyproject.toml cannot declare; it contains the rest."""

from setuptools import find_packages, setup

setup(
    # options/ is at the root of the checkout, and in the package once it is installed.
    packages=[
        *find_packages(include=["bilm", "bilm.*"]),
        "bilm.doctor.golden_case",
        "bilm.models",
        "bilm._options",
    ],
    package_dir={"bilm._options": "options"},
    package_data={
        "bilm": ["py.typed"],
        "bilm.export": ["model_card.template"],
        "bilm.studies.usages": ["page.html"],
        "bilm.doctor.golden_case": ["*"],
        "bilm.models": ["*/*"],
        "bilm.storage.finding": ["published.json"],
        "bilm.storage.formats": ["manylangs_published.json"],
        "bilm.data": ["signs.tsv"],
        "bilm._options": ["*.json"],
    },
)
