"""Run each example as a command on a few generated sentences."""

import importlib.util
import random
import re
import sys
from pathlib import Path

import pytest
from command_runs import printed_by, run_words, succeeded
from stored_files import CASE, OPTIONS, WEIGHTS

import bilm

# Optional packages; without them, only the numbers are tested.
PLOTS = all(map(importlib.util.find_spec, ("matplotlib", "sklearn")))
EXAMPLES = Path(__file__).parent.parent / "examples"
MODEL = ["--model", OPTIONS, "--weights", WEIGHTS]


def run(name, *arguments):
    return printed_by([sys.executable, EXAMPLES / name, *arguments])


def finished(name, *arguments):
    return run_words([sys.executable, EXAMPLES / name, *arguments])


def tagged(path, tags):
    """Write sentences whose words determine their tags; return the path."""
    lines = []
    row = "{k}\tw{n}\t_\t{tag}" if path.suffix == ".conllu" else "w{n}\t{tag}"
    for i in range(24):
        numbers = [(k, (i * k) % 6) for k in range(1, 3 + i % 4)]
        lines += [*(row.format(k=k, n=n, tag=tags[n]) for k, n in numbers), ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pos.conllu", ["--no_elmo"]),
        ("pos.tsv", [*MODEL, "--elmo_output"]),
        ("pos.tsv", [*MODEL, "--precision", "bfloat16"]),
    ],
)
def test_tagger_learns_part_of_speech_tags(tmp_path, name, arguments):
    data = tagged(tmp_path / name, ["N", "V", "N", "A", "D", "P"])
    files = "--train", data, "--dev", data
    out = run("tagger.py", *files, "--epochs", "40", "--units", "16", *arguments)
    accuracy = float(re.fullmatch(r"dev accuracy .*: mean ([\d.]+) .*", out.strip())[1])
    assert accuracy > 60


@pytest.mark.slow
def test_tagger_refuses_conllu_without_tags(tmp_path):
    path = tmp_path / "pos.conllu"
    path.write_text("1\tThe\t_\tDET\n2\tbank\t_\t_\n", encoding="utf-8")
    done = finished("tagger.py", "--train", path, "--dev", path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"error: {path}: 'bank' has no UPOS tag")


def films(path):
    """Write texts whose words determine their labels; return the path."""
    kinds = [("pos", "good"), ("neg", "bad")]
    rows = [f"{kinds[i % 2][0]}\t{kinds[i % 2][1]} film {i}" for i in range(40)]
    path.write_text("\n".join(["label\ttext", *rows]), encoding="utf-8")
    return path


@pytest.mark.clients
@pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="make test-clients")
def test_classify_learns(tmp_path):
    data = films(tmp_path / "films.tsv")
    out = run("classify.py", *MODEL, "--train", data, "--folds", "2")
    means = re.findall(r"^accuracy, (ELMo|bag).*: mean ([\d.]+) \(", out, re.MULTILINE)
    assert [name for name, _ in means] == ["ELMo", "bag"]
    assert all(float(mean) == 100 for _, mean in means)


@pytest.mark.clients
def test_search_prints_the_sentence_itself_first(tmp_path):
    pytest.importorskip("sentence_transformers", reason="make test-clients")
    (tmp_path / "corpus.txt").write_text("The bank closed .\nDogs bark .\nThe river has a bank .\n")
    arguments = ["--model", CASE, "--corpus", tmp_path / "corpus.txt", "--query", "Dogs bark ."]
    lines = run("search.py", *arguments, "--n", "2").splitlines()
    assert lines[0] == "1.000  Dogs bark ." and len(lines) == 2


@pytest.mark.slow
def test_sentence_classifier_prints_layer_weights_and_accuracy(tmp_path):
    data = films(tmp_path / "polarity.tsv")
    out = run("sentence_classifier.py", *MODEL, "--train", data, "--dev", data, "--epochs", "2")
    assert re.search(r"weights of the layers.*\[.*\]\ndev accuracy: [\d.]+\n$", out)


@pytest.mark.slow
def test_polysemy_prints_similar_usages_and_writes_png(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    arguments = ["--word", "bank", "--sentence", "a bank b", "--sentence", "the bank ."]
    png = tmp_path / "bank.png" if PLOTS else ""
    out = run("polysemy.py", *MODEL, *arguments, "--png", png)
    assert re.search(r"^a bank b\n +-?\d\.\d\d  the bank \.$", out, re.MULTILINE)
    assert not png or png.read_bytes().startswith(b"\x89PNG")


def proteins(path):
    """Write 110 random sequences and three families of eight mutated copies of an ancestor."""
    rng = random.Random(0)

    def drawn(n):
        return rng.choices("ACDEFGHIKLMNPQRSTVWY", k=n)

    records = [(f"Protein {i} OS=Homo", drawn(rng.randrange(20, 40))) for i in range(110)]
    for name, ancestor in {n: drawn(60) for n in ("Kinase", "Globin (Fragment)", "Ligase")}.items():
        for _ in range(8):
            mutated = [rng.choice([*[letter] * 9, *drawn(1)]) for letter in ancestor]
            records.append((f"{name} OS=Mus", mutated))
    lines = [f">sp|P{i}|X {name}\n{''.join(s)}\n" for i, (name, s) in enumerate(records)]
    path.write_text("".join(lines))
    return path


@pytest.mark.slow
def test_proteins_compares_families_and_writes_vectors(tmp_path):
    fasta, folder = proteins(tmp_path / "p.fasta"), tmp_path / "run"
    arguments = ["--fasta", fasta, "--output", folder, "--png", "families.png" if PLOTS else ""]
    done = finished("proteins.py", *arguments)
    assert done.returncode == 1 and "0 names are shared by 25 proteins or more" in done.stderr
    out = run("proteins.py", *arguments, "--family_size", "8", "--n_steps", "3")
    assert "134 proteins; 3 families have 24 of them" in out
    found = dict(re.findall(r"by (.*) \(\d+ features\) +([\d.]+) %, whitened [\d.]+ %", out))
    assert list(found) == ["amino acids", "pairs of amino acids", "biLM"]
    assert min(map(float, found.values())) > 60  # 30 by chance
    assert bilm.read_ids(folder / "families.hdf5")[:2] == ["sp|P110|X", "sp|P111|X"]
    assert not PLOTS or (folder / "families.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_demo_trains_exports_and_finds_neighbours(tmp_path):
    folder = tmp_path / "demo"
    done = succeeded(finished("demo.py", "--work_dir", folder, "--n_steps", "60"))
    n_words = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    alone = re.search(r"frequencies of words alone: ([\d.]+)$", done.stdout, re.MULTILINE)[1]
    last = r"^held-out perplexity: unigram ([\d.]+), biLM ([\d.]+)$"
    unigram, model = re.search(last, done.stdout, re.MULTILINE).groups()
    assert alone == unigram
    assert 1 < float(unigram) < n_words and 1 < float(model) < n_words
    logged = re.search(r"step 60 of 60: held-out perplexity ([\d.]+)", done.stderr)
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
