"""What needs an extra says so where the extra is missing."""

import re
import subprocess
import sys

import pytest
from command_runs import run

WITHOUT = """
import sys
sys.modules["sklearn"] = sys.modules["spacy"] = None  # to import them is an error
import bilm
from bilm import *  # leaves out what is not installed
try:
    {action}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("bilm.ElmoVectorizer", r"bilm\.ElmoVectorizer needs (sklearn\S*).*\[sklearn\]'"),
        (
            "import bilm.integrations.spacy_pipe",
            r"The spaCy component bilm needs (spacy\S*).*\[spacy\]'",
        ),
    ],
)
def test_a_missing_extra_is_named(action, expected):
    program = WITHOUT.format(action=action)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(expected, done.stdout.strip()), done.stdout
    assert ", which is not installed: pip install 'bilm-keras[" in done.stdout


def test_completion_without_its_extra_says_so(tmp_path):
    (tmp_path / "shtab.py").write_text("raise ModuleNotFoundError('gone', name='shtab')")
    done = run("bilm --print-completion", "bash", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and done.stdout == ""
    expected = "bilm: error: --print-completion needs shtab, which is not installed: "
    assert done.stderr == f"{expected}pip install 'bilm-keras[completion]'\n"
