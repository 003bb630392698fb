"""Run the demo as a command, with few steps."""

import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the demo trains on TensorFlow", allow_module_level=True)

ROOT = Path(__file__).parent.parent


def run_demo(*arguments):
    command = [sys.executable, ROOT / "examples" / "demo.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_demo_trains_exports_and_finds_neighbours(tmp_path):
    folder = tmp_path / "demo"
    done = run_demo("--work_dir", folder, "--n_steps", "60")
    assert done.returncode == 0, done.stderr[-2000:]

    n_words = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    alone = re.search(r"frequencies of words alone: ([\d.]+)$", done.stdout, re.MULTILINE)[1]
    last = r"^held-out perplexity: unigram ([\d.]+), biLM ([\d.]+)$"
    unigram, model = re.search(last, done.stdout, re.MULTILINE).groups()
    assert alone == unigram
    assert 1 < float(unigram) < n_words and 1 < float(model) < n_words
    logged = re.search(r"step 60: held-out perplexity .*, mean ([\d.]+)", done.stderr)
    assert abs(float(logged[1]) - float(model)) < 0.06  # one or two decimals

    assert (folder / "model" / "weights.hdf5").is_file()
    _, *contexts = done.stdout.split("\n\n")
    assert len(contexts) == 2
    for context in contexts:
        head, *rows = context.strip().splitlines()
        word = re.match(r"words used most like '(\w+)' in: .*\[\1\]", head)[1]
        assert len(rows) == 5
        found = [re.fullmatch(r"  (-?[\d.]+)  (\S+) +(.*)", row).groups() for row in rows]
        cosines = [float(cosine) for cosine, _, _ in found]
        assert cosines == sorted(cosines, reverse=True) and -1 <= cosines[-1] <= cosines[0] <= 1
        assert all(f"[{other}]" in sentence for _, other, sentence in found)
        assert len({other.lower() for _, other, _ in found} | {word}) == 6


@pytest.mark.slow
def test_demo_refuses_folder_with_other_files(tmp_path):
    (tmp_path / "vocab.txt").write_text("mine\n")
    done = run_demo("--work_dir", tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and str(tmp_path) in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]
