"""Run the command of docs/proteins.md that converts FASTA to training text."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "proteins.md"


@pytest.mark.parametrize("k, second", [(1, "G A T T A C A"), (3, "GAT TAC A")])
def test_fasta_is_converted_to_one_sequence_per_line(tmp_path, k, second):
    command = re.search(
        r"^ {4}gzip .*?> proteins\.txt$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "proteins.fasta.gz").write_bytes(gzip.compress(b">a x\nMKac\nWY\n>b\nGATT\nACA\n"))
    subprocess.run(command[0].replace(".{1}", f".{{{k}}}"), shell=True, check=True, cwd=tmp_path)
    lines = (tmp_path / "proteins.txt").read_text().splitlines()
    assert [line.replace(" ", "") for line in lines] == ["MKACWY", "GATTACA"]
    assert lines[1].split() == second.split()
