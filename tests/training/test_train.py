"""`bilm.train` and `bilm.finetune` from Python: the same as the commands."""

from pathlib import Path

import pytest
from command_runs import succeeded
from tiny_runs import HELDOUT, TEXT, VOCABULARY, WORDS, assert_same_weights, tiny_options

import bilm
from bilm.errors import ArgumentError, OptionsError
from bilm.options import schema
from bilm.scoring.verdict import Verdict
from bilm.training.history import read_history


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a run that do not contain times."""
    names = ("options.json", "vocab.txt", "heldout.txt", "ngrams.hdf5", "heldout.json")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def assert_same_runs(first: Path, second: Path) -> None:
    assert files_of(first) == files_of(second)
    assert_same_weights(first, second)
    rows = [read_history(folder / "history.csv") for folder in (first, second)]
    for row in (*rows[0], *rows[1]):
        del row["tokens_per_s"]
    assert rows[0] == rows[1]


def test_train_equals_the_command(tmp_path, run_here):
    schema.write(tmp_path / "options.json", tiny_options(**WORDS).to_dict())
    done = run_here(
        "bilm train", "--input", TEXT, "--output", tmp_path / "command", "--heldout", HELDOUT,
        "--vocab", VOCABULARY, "--options", tmp_path / "options.json", "--n_steps=4", "--seed=5",
        "--batch_size=3", "--n_gpus=0", "--log_steps=1",
    )  # fmt: skip
    succeeded(done)
    result = bilm.train(
        TEXT, tmp_path / "python", heldout=HELDOUT, vocab=VOCABULARY,
        options=tmp_path / "options.json", n_steps=4, seed=5, batch_size=3, n_gpus=0, log_steps=1,
    )  # fmt: skip
    assert (result.step, result.finished) == (4, True)
    assert_same_runs(tmp_path / "command", tmp_path / "python")


def test_train_makes_vocabulary_and_heldout_part_as_the_command_does(tmp_path, run_here):
    schema.write(tmp_path / "options.json", tiny_options(**WORDS).to_dict())
    text = tmp_path / "text.txt"
    lines = (f"the {word} sat on w{k % 7} .\n" for k, word in enumerate("abcdef" * 9))
    text.write_text("".join(lines))
    given = ["--input", text, "--options", tmp_path / "options.json", "--n_steps=2", "--n_gpus=0"]
    succeeded(run_here("bilm train", *given, "--output", tmp_path / "command"))
    options = tmp_path / "options.json"
    result = bilm.train(text, tmp_path / "python", options=options, n_steps=2, n_gpus=0)
    assert_same_runs(tmp_path / "command", tmp_path / "python")
    assert (tmp_path / "python" / "heldout.txt").read_text()
    assert isinstance(result.verdict, Verdict) and result.verdict.perplexity == result.heldout.mean
    assert result.model in (tmp_path / "python", tmp_path / "python" / "best")
    assert bilm.train(text, tmp_path / "python", n_steps=2, n_gpus=0) == result  # told again


def test_finetune_equals_the_command(tmp_path, run_here, a_run):
    files = ["--model", a_run, "--input", TEXT, "--heldout", HELDOUT, "--output"]
    flags = ["--n_steps=2", "--n_gpus=0", "--dropout=0.3"]
    done = succeeded(run_here("bilm finetune", *files, tmp_path / "command", *flags))
    how = {"n_steps": 2, "n_gpus": 0, "dropout": 0.3}
    result = bilm.finetune(a_run, TEXT, tmp_path / "python", heldout=HELDOUT, **how)
    assert_same_runs(tmp_path / "command", tmp_path / "python")
    before, after = done.stdout.split()[3::4]
    assert (before, after) == (f"{result.before.mean:.2f}", f"{result.heldout.mean:.2f}")


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"droput": 0.1}, TypeError, "unexpected keyword argument 'droput'"),
        ({"dropout": 2.0}, OptionsError, r"dropout: found 2\.0, expected a number in \[0, 1\)"),
        ({"hours": 1.0, "options": "tiny"}, ArgumentError, "--hours requires --options auto"),
        ({"hours": 1.0, "n_steps": 3, "options": "auto"}, ArgumentError, "--hours and --n_steps"),
    ],
)
def test_argument_that_cannot_be_used_leaves_nothing(tmp_path, arguments, error, match):
    arguments = {"options": tiny_options(**WORDS)} | arguments
    with pytest.raises(error, match=match):
        bilm.train(TEXT, tmp_path / "run", vocab=VOCABULARY, n_gpus=0, **arguments)
    assert not (tmp_path / "run").exists()
