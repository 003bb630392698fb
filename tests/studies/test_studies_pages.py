"""Run the examples of the pages about usages, change, surprisal and minimal pairs."""

import shlex
from pathlib import Path

import pytest
from command_runs import succeeded
from pages import blocks, run_blocks

from bilm.studies.reading import word_surprisals

pytestmark = pytest.mark.clients

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("usages", "change", "surprisal", "minimal_pairs")]
THEN = "They came in the spring .\nA spring of fresh water .\nThe light of the present day .\n"
NOW = "Every spring is short .\nHe presents a letter .\nThe spring came late .\n"
TABLE = "words.usages.parquet"
TEXT = "She rose from her chair .\nThe carriage stopped at the door .\n"


def test_python_blocks_of_the_analysis_pages_run(run_here, tmp_path, monkeypatch, capfd):
    pytest.importorskip("pandas", reason="make test-clients")
    for name in ("pyarrow", "scipy", "sklearn", "matplotlib", "plotly"):
        pytest.importorskip(name, reason="make test-clients")
    monkeypatch.chdir(tmp_path)
    Path("then.txt").write_text(THEN)
    Path("now.txt").write_text(NOW)
    Path("words.txt").write_text("spring\npresent: present presents\n/li[gv]ht(er|est)?/\n")
    shell = (block for page in PAGES for _, block in blocks("sh", page.read_text("utf-8")))
    commands = (block.replace("\\\n", " ") for block in shell)
    lines = (line for command in commands for line in command.splitlines())
    for words in map(shlex.split, lines):
        if (
            words[1:2]
            and words[1] in ("usages", "neighbours", "change", "explore")
            and {"words.txt", "then.txt", TABLE} & set(words)
        ):
            words = ["novels-en" if word == "tuned" else word for word in words]
            succeeded(run_here(" ".join(words[:2]), *words[2:]))
    for name in ("change.csv", "change.png", "words.html", "spring.png"):
        assert Path(name).stat().st_size > 100
    Path("story.txt").write_text(TEXT)
    files = ("--input", "story.txt", "--output", "story.csv")
    assert run_here("bilm surprisal", "--model", "novels-en", *files).returncode == 0
    keys = [(s, p) for s, line in enumerate(TEXT.splitlines()) for p in range(len(line.split()))]
    rows = [f"{reader},{s},{p},{300 + 10 * p}\n" for reader in (1, 2) for s, p in keys]
    Path("times.csv").write_text("reader,sentence,position,ms\n" + "".join(rows))
    names = {}
    for page in PAGES:
        names.update(run_blocks(page.read_text("utf-8"), page))
    joined = names["joined"]
    assert len(joined) == 2 * (len(keys) - 2)  # without the first word of each sentence
    first = next(word_surprisals(names["scorer"], TEXT.splitlines()))["forward"][0]
    assert joined["forward_before"].iloc[0] == pytest.approx(first, abs=1e-4)
    assert names["usages"].counts.loc["spring"].to_dict() == {"then": 2, "now": 2}
    assert names["vectors"].shape[0] == 6
    assert names["results"].overall.n_pairs == 2
    assert "chair" in capfd.readouterr().out
