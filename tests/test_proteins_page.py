"""What docs/proteins.md does with a FASTA file before training."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from bilm.data.records import read_corpus

PAGE = Path(__file__).parent.parent / "docs" / "proteins.md"


@pytest.mark.parametrize("k, second", [(1, "G A T T A C A"), (3, "GAT TAC A")])
def test_text_of_a_fasta_file(tmp_path, k, second):
    command = re.search(
        r"^ {4}gzip .*?> proteins\.txt$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "proteins.fasta.gz").write_bytes(gzip.compress(b">a x\nMKac\nWY\n>b\nGATT\nACA\n"))
    subprocess.run(command[0].replace(".{1}", f".{{{k}}}"), shell=True, check=True, cwd=tmp_path)
    sequences = ["".join(words) for words in read_corpus(tmp_path / "proteins.fasta.gz")]
    found = list(read_corpus(tmp_path / "proteins.txt"))
    assert list(map("".join, found)) == sequences == ["MKACWY", "GATTACA"]
    assert found[1] == second.split()
