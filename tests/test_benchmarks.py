"""Run each benchmark briefly and check that it prints its figures."""

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from command_runs import printed_by, run, run_words
from stored_files import CASE
from tiny_runs import HELDOUT, TEXT, VOCABULARY, tiny_run

from bilm.data.shards import resolve_shards
from bilm.studies.reading import load_trigrams

pytestmark = pytest.mark.slow
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SMALL_SOFTMAX = "--negatives", "64", "--n_tokens", "2000"
CORPUS = "--input", TEXT, "--vocab", str(VOCABULARY), "--heldout", HELDOUT


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("train.py", [*SMALL_SOFTMAX, "--seconds", "1"], "tokens_per_s"),
        (
            "latency.py",
            ["--model", "tiny", "--precision", "float32", "--n_sentences", "2", "--rounds", "1"],
            r"bilm float32, cached +\d",
        ),
        ("precision.py", ["--n_tokens", "2000", "--n_steps", "1"], "loss_change.*mean_cosine"),
        ("precision.py", ["--trained", "novels-en"], "least_cosine: +(1|0.999)"),
        pytest.param(
            "int8.py",
            ["--n_times", "1", "--n_sentences", "20"],
            "int8: .*int8 / float32: ",
            marks=pytest.mark.skipif(not find_spec("onnxruntime"), reason="requires onnxruntime"),
        ),
        ("host.py", ["--n_sentences", "30", "--n_times", "1"], "pooled.*hdf5.*training"),
        (
            "time_to_perplexity.py",
            ["--options", "tiny", *CORPUS, "--n_steps", "2", "--eval_steps", "1"],
            "adagrad: .* at 1, .* at 2",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith(".py") else "",
)
def test_benchmark_prints_its_figures(name, flags, expected):
    printed = printed_by([sys.executable, BENCHMARKS / name, *flags])
    assert re.search(expected, printed, re.DOTALL), printed


def write_tasks(folder):
    """Write small texts for each task of downstream.py."""
    tags = {"en_ewt_pos": ("DET", "NOUN", "VERB"), "wnut17_ner": ("O", "B-person", "I-person")}
    texts = {
        name: "".join(f"the\t{a}\ncat\t{b}\nsat{i}\t{c}\n\n" for i in range(6))
        for name, (a, b, c) in tags.items()
    }
    films = (f"{kind}\ta {kind} film {i}" for i in range(3) for kind in ("neg", "pos"))
    texts["movie_polarity"] = "\n".join(["label\ttext", *films])
    for name, text in texts.items():
        (folder / name).mkdir(parents=True)
        for part in ("train", "dev"):
            (folder / name / f"{part}.tsv").write_text(text, encoding="utf-8")


@pytest.mark.skipif(not find_spec("pandas"), reason="requires pandas")
def test_reading_times_that_follow_trigrams_are_predicted_by_them(tmp_path):
    lines, counts = list(resolve_shards(TEXT).sentences()), tmp_path / "counts.hdf5"
    files = "--input", TEXT, "--output", tmp_path / "v", "--ngrams", counts
    assert run("bilm vocab", *files, "--min_count", "1").returncode == 0

    # Each line is a story. The model has hardly been trained.
    draw = np.random.default_rng(0)
    words, times = ["word\tzone\titem"], ["item\tzone\tRT"]
    trigrams = load_trigrams(counts)
    for item, line in enumerate(lines, 1):
        bits = trigrams(line)["trigram"]
        words += [f"{word}\t{zone}\t{item}" for zone, word in enumerate(line, 1)]
        for zone, log in enumerate(6 + 0.05 * bits + draw.normal(0, 0.1, len(line)), 1):
            times += [f"{item}\t{zone}\t{np.exp(log)}"] * 2
    (tmp_path / "all_stories.tok").write_text("\n".join(words) + "\n")
    (tmp_path / "processed_RTs.tsv").write_text("\n".join(times) + "\n")
    command = [
        sys.executable, BENCHMARKS / "reading_times.py", tmp_path, "--ngrams", counts,
        "--model", tiny_run("words"), "--tokenize", "",
    ]  # fmt: skip
    printed = printed_by(command)
    low, _, gain = map(float, printed.splitlines()[-1].split()[-3:])  # trigrams less model
    assert gain > low > 0, printed


@pytest.mark.skipif(not find_spec("pandas"), reason="requires pandas")
def test_downstream_writes_table_and_resumes(tmp_path):
    write_tasks(tmp_path / "data")
    rows = "none,a biLM=" + str(CASE) + (",fasttext" if find_spec("gensim") else "")
    command = [
        sys.executable, BENCHMARKS / "downstream.py", "--vectors", rows, "--epochs", "1",
        "--data", tmp_path / "data", "--output", tmp_path / "out",
        "--fasttext_text", TEXT, "--fasttext_dim", "8",
    ]  # fmt: skip
    for tasks, seeds in (("sentiment", "0"), ("tagging,entities,sentiment", "0,1")):
        printed = printed_by([*command, "--tasks", tasks, "--seeds", seeds])
        n_rows = rows.count(",") + 1
        table = (tmp_path / "out" / "downstream.csv").read_text(encoding="utf-8").splitlines()
        assert len(table) == 1 + n_rows * len(tasks.split(","))
        if tasks == "sentiment":
            path = tmp_path / "out" / "results.json"
            results = [result | {"score": 12.5} for result in json.loads(path.read_text())]
            path.write_text(json.dumps(results))  # scores to recognize in the table
    assert printed.count("task sentiment") == n_rows  # only those of seed 1
    line = r"^\| a biLM \| \d.*\| [\d.]+ \(12\.50, [\d.]+\) \| (-?[\d.]+ %|) \|$"
    text = (tmp_path / "out" / "downstream.md").read_text(encoding="utf-8")
    assert re.search(line, text, re.MULTILINE), text


def test_gpu_computes_each_part_on_the_cpu(tmp_path):
    shutil.copytree(CASE, tmp_path / "golden" / "inference" / CASE.name)
    outfile = tmp_path / "gpu.md"
    command = [
        sys.executable, BENCHMARKS / "gpu.py", "--tiny", "--model", "tiny", "--output", outfile,
        "--backend", "tensorflow", "--minutes", "60",
    ]  # fmt: skip
    done = run_words(command, timeout=3600, BILM_GOLDEN=str(tmp_path / "golden"))
    assert done.returncode == 0, done.stdout
    table = outfile.read_text(encoding="utf-8")
    assert table in done.stdout
    rows = [
        rf"tensorflow \| tiny \| CPU \| {CASE.name} \| \d\.?\d*e-0[678] ",
        *(rf"tensorflow \| tiny \| CPU \| {mode} \|" for mode in ("float32", "TF32", "bfloat16")),
        r"tensorflow \| tiny \| CPU \| 2 \| 0 \| 0 \|",  # resume
    ]
    for row in rows:
        assert re.search(row, table), (row, table)


def test_gpu_reports_each_part_that_fails(tmp_path):
    (tmp_path / "inference" / "empty").mkdir(parents=True)
    command = [
        sys.executable, BENCHMARKS / "gpu.py", "--part", "golden", "--backend", "torch",
        "--backend", "tensorflow", "--model", "tiny",
    ]  # fmt: skip
    done = run_words(command, BILM_GOLDEN=str(tmp_path))
    assert done.returncode == 1, done.stderr[-2000:]
    for backend in ("torch", "tensorflow"):
        row = rf"\| golden \| {backend} \| tiny \| GPU \| .*(options.json|No module|cannot)"
        assert re.search(row, done.stdout), done.stdout
