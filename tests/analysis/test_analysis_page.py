"""Run the example of docs/analysis.md: surprisal joined with reading times in pandas."""

import re
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the commands are TensorFlow's", allow_module_level=True)

pytestmark = pytest.mark.clients

PAGE = Path(__file__).parents[2] / "docs" / "analysis.md"
TEXT = "She rose from her chair .\nThe carriage stopped at the door .\n"


def test_python_blocks_of_the_analysis_page_run(run_here, tmp_path, monkeypatch, capfd):
    pytest.importorskip("pandas", reason="make test-clients")
    monkeypatch.chdir(tmp_path)
    Path("story.txt").write_text(TEXT)
    files = ("--input", "story.txt", "--output", "story.csv")
    assert run_here("bilm surprisal", "--model", "novels-en", *files).returncode == 0
    keys = [(s, p) for s, line in enumerate(TEXT.splitlines()) for p in range(len(line.split()))]
    rows = [f"{reader},{s},{p},{300 + 10 * p}\n" for reader in (1, 2) for s, p in keys]
    Path("times.csv").write_text("reader,sentence,position,ms\n" + "".join(rows))
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    joined = names["joined"]
    assert len(joined) == 2 * (len(keys) - 2)  # without the first word of each sentence
    assert joined["forward_before"].iloc[0] == pytest.approx(names["found"].forward[0], abs=1e-5)
    assert names["results"].overall.n_pairs == 2
    assert "chair" in capfd.readouterr().out
