"""Held-out text: the best checkpoint, interrupted evaluations, other texts, parts of a text."""

import gzip
import json
import shlex
import shutil

import numpy as np
import pytest
from tiny_runs import HELDOUT, TEXT, VOCABULARY, WORDS, assert_same_weights, damage, load_run, run

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.export.hdf5 import dump_weights
from bilm.scoring.ngrams import Ngrams, text_ids
from bilm.scoring.perplexity import Perplexity
from bilm.scoring.scorer import load_scorer
from bilm.storage.checkpoint import CheckpointContent, latest_checkpoint
from bilm.training import run as training
from bilm.training.history import read_history
from bilm.training.run_folder import RunFolder
from bilm.training.texts import Inputs, count


def measured_as(monkeypatch, *values):
    scores = iter(values)

    def evaluate(*_):
        score = next(scores)
        return Perplexity({"forward": score}, score, 10)

    monkeypatch.setattr(training.Evaluator, "__call__", evaluate)


def test_best_checkpoint_resumes_like_any_other(tmp_path):
    run(tmp_path / "straight", 5)
    run(tmp_path / "run", 3)
    run(tmp_path / "run", 3, heldout=HELDOUT)  # measured after it had ended
    best = latest_checkpoint(tmp_path / "run" / "best")
    assert best.record.step == 3 and best.position is not None
    run(tmp_path / "run" / "best", 5)
    assert_same_weights(tmp_path / "run" / "best", tmp_path / "straight")


def test_best_score_survives_a_restart(tmp_path, monkeypatch, log):
    measured_as(monkeypatch, 9.0, 5.0, 7.0, 6.0, 4.0)
    run(tmp_path, 3, heldout=HELDOUT, eval_steps=1)
    assert latest_checkpoint(tmp_path / "best").record.step == 2
    assert {path.name for path in (tmp_path / "best").iterdir()} >= {"options.json", "vocab.txt"}
    run(tmp_path, 4, heldout=HELDOUT, eval_steps=1)
    assert latest_checkpoint(tmp_path / "best").record.step == 2
    assert latest_checkpoint(tmp_path).record.best == 5.0
    run(tmp_path, 5, heldout=HELDOUT, eval_steps=1)
    best = latest_checkpoint(tmp_path / "best").record
    assert (best.step, best.best) == (5, 4.0)
    assert log.text.count("the best so far") == 3
    load_run(tmp_path / "best")


def test_end_of_run_logs_best_checkpoint_and_export_command(tmp_path, monkeypatch, log):
    folder = tmp_path / "a run"
    measured_as(monkeypatch, 9.0, 5.0, 7.0, 4.0)
    run(folder, 3, heldout=HELDOUT, eval_steps=1)
    assert "perplexity 5.00 at step 2" in log.text and "the last: 7.00 at step 3" in log.text
    program, name, *flags = shlex.split(log.messages[-1].removeprefix("to export: "))
    assert (program, name) == ("bilm", "export")
    model, output, with_softmax = flags
    assert (model, with_softmax) == (f"--model={folder}/best", "--include_softmax")
    dump_weights(folder / "best", output.removeprefix("--output="), include_softmax=True)
    assert load_scorer(folder / "export").words[0] == "<S>"
    log.clear()
    run(folder, 3, heldout=HELDOUT)  # told again
    assert "perplexity 5.00 at step 2" in log.text
    log.clear()
    run(folder, 4, heldout=HELDOUT, eval_steps=1)
    assert log.messages[-1].startswith(f"to export: bilm export '--model={folder}' ")


def test_damaged_best_checkpoint_does_not_end_the_run(a_run, log):
    damage(a_run / "best", 3, "cut")
    assert run(a_run, 4, heldout=HELDOUT).step == 4
    assert "best/model.ckpt-3: not a whole checkpoint" in log.text
    best = RunFolder(a_run).find_best()
    assert best is None or best.record.step == 4


def test_kill_after_saving_the_best_checkpoint_keeps_its_inputs(tmp_path, monkeypatch):
    write = CheckpointContent.write

    def write_and_stop(self, folder, record, keep):
        write(self, folder, record, keep)
        if folder.name == "best":
            raise KeyboardInterrupt

    monkeypatch.setattr(CheckpointContent, "write", write_and_stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 2, heldout=HELDOUT)
    load_run(tmp_path / "best")
    assert (tmp_path / "best" / "vocab.txt").read_bytes() == VOCABULARY.read_bytes()


def test_interrupted_evaluation_is_repeated_on_resume(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training.Evaluator, "__call__", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, n_steps=2, heldout=HELDOUT)
    assert not (tmp_path / "best").exists()
    result = run(tmp_path, n_steps=2, heldout=HELDOUT)
    assert result.step == 2 and result.finished and result.heldout.mean > 1
    assert (tmp_path / "best" / "model.ckpt-2.index").exists()
    # Told again, not made again.
    assert run(tmp_path, n_steps=2, heldout=HELDOUT).heldout == result.heldout


def test_kill_after_an_evaluation_keeps_its_row_of_the_history(tmp_path, monkeypatch):
    """Whichever file of the evaluation was the last to be written."""
    names = "run", "with record", "without record"
    folder, with_record, without_record = (RunFolder(tmp_path / name) for name in names)
    write = RunFolder.write_measured

    def copy_and_write(self, measured):
        if measured.step == 2:
            for killed in (with_record, without_record):
                shutil.copytree(folder.path, killed.path)
            write(with_record, measured)
        write(self, measured)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_measured", copy_and_write)
        run(folder.path, 4, heldout=HELDOUT, eval_steps=2, log_steps=1)
    rows = []
    for each in (folder, with_record, without_record):
        if each is not folder:
            run(each.path, 4, heldout=HELDOUT, eval_steps=2, log_steps=1)
        rows.append(read_history(each.history_file))
        for row in rows[-1]:
            del row["tokens_per_s"]
    assert rows[0] == rows[1] == rows[2]


def lines_of(pattern):
    return [" ".join(words) for words in resolve_shards(pattern).sentences()]


def test_sentences_of_the_training_text_are_left_out(tmp_path, log):
    copied = [line for line in lines_of(TEXT) if len(line.split()) > 2][:3]
    with gzip.open(tmp_path / "mixed.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join([*copied, *(f" {line}" for line in lines_of(HELDOUT)), copied[0]]))
    mixed = str(tmp_path / "mixed.gz")
    expected = run(tmp_path / "plain", 2, heldout=HELDOUT).heldout
    assert "sentences; " not in log.text  # w1, which both contain, is too short

    found = run(tmp_path / "run", 2, heldout=mixed).heldout
    assert found == expected
    assert "mixed.gz: the training text contains 4 of the 34 sentences; held-out" in log.text
    assert "with the sentences of the training text: perplexity" in log.text
    assert RunFolder(tmp_path / "run").find_best().record.best == expected.mean
    assert len(latest_checkpoint(tmp_path / "run").record.heldout.repeated) == 3


def test_resumed_run_leaves_out_the_same_sentences(tmp_path, monkeypatch):
    mixed = tmp_path / "mixed.txt"
    mixed.write_text("\n".join(lines_of(HELDOUT) + lines_of(TEXT)[:2]), encoding="utf-8")
    expected = run(tmp_path / "straight", 3, heldout=str(mixed)).heldout
    run(tmp_path / "run", 2, heldout=str(mixed))
    monkeypatch.setattr("bilm.data.survey.SAMPLE_TOKENS", 1)  # is not read whole again
    assert run(tmp_path / "run", 3, heldout=str(mixed)).heldout == expected
    assert expected.n_predictions == run(tmp_path / "run", 3, heldout=HELDOUT).heldout.n_predictions


def test_run_without_a_comparison_compares_when_it_is_resumed(tmp_path, log):
    mixed = tmp_path / "mixed.txt"
    mixed.write_text("\n".join(lines_of(HELDOUT) + lines_of(TEXT)[:2]), encoding="utf-8")
    long = WORDS | {"n_train_tokens": 10**8}  # not read whole
    every = run(tmp_path / "run", 1, heldout=str(mixed), changes=long).heldout
    assert "the training text contains" not in log.text
    (record,) = (tmp_path / "run").glob("*-1.json")
    content = json.loads(record.read_text())
    del content["heldout"]  # as in runs of earlier versions
    record.write_text(json.dumps(content))
    found = run(tmp_path / "run", 2, heldout=str(mixed)).heldout
    assert "mixed.txt: the training text contains 2 of the 32 sentences" in log.text
    assert "earlier scores no longer count" in log.text
    assert found.n_predictions < every.n_predictions


def test_heldout_text_that_is_the_training_text_is_measured_whole(tmp_path, log):
    copy = tmp_path / "copy.txt"
    copy.write_text("\n".join(line for line in lines_of(TEXT) if line.count(" ") > 1), "utf-8")
    n_sentences = copy.read_text("utf-8").count("\n") + 1
    assert run(tmp_path / "run", 1, heldout=str(copy)).heldout.n_predictions > n_sentences
    expected = f"contains {n_sentences} of the {n_sentences} sentences; use other text"
    assert expected in log.text


def another_text(tmp_path):
    """A part of the held-out text, in capitals."""
    path = tmp_path / "other.txt"
    words = next(resolve_shards(HELDOUT).sentences())
    path.write_text((" ".join(words).upper() + "\n") * 20)
    return str(path)


def test_finished_run_measures_another_heldout_text(a_run, tmp_path, log):
    before, other = RunFolder(a_run).read_measured()[1], another_text(tmp_path)
    found = run(a_run, 3, heldout=other).heldout
    assert found.n_predictions != before.n_predictions
    assert "heldout.json: the held-out text was" in log.text and "other.txt, " in log.text
    assert "in the text of the model" in log.text
    log.clear()
    assert run(a_run, 3, heldout=other).heldout == found
    assert "the held-out text was" not in log.text
    assert RunFolder(a_run).find_best().record.best == found.mean


def test_best_score_of_another_heldout_text_is_ignored(tmp_path, monkeypatch):
    measured_as(monkeypatch, 5.0, 7.0, 6.5)
    run(tmp_path / "run", 1, heldout=HELDOUT)
    run(tmp_path / "run", 2, heldout=another_text(tmp_path))
    assert RunFolder(tmp_path / "run").find_best().record.best == 7.0
    run(tmp_path / "run", 3, heldout=another_text(tmp_path))
    assert RunFolder(tmp_path / "run").find_best().record.best == 6.5


@pytest.mark.parametrize("moment", ["while it is measured", "between evaluations"])
def test_heldout_text_that_changes_during_training_is_refused(tmp_path, monkeypatch, moment):
    heldout = tmp_path / "heldout.txt"
    heldout.write_text("the cat sat\n" * 4)

    def edit_after(function):
        def call(*given):
            found = function(*given)
            heldout.write_text("the cat sat\n" * 9)
            return found

        return call

    owner, method = {
        "while it is measured": (training.Evaluator, "__call__"),
        "between evaluations": (RunFolder, "write_measured"),
    }[moment]
    monkeypatch.setattr(owner, method, edit_after(getattr(owner, method)))
    match = r"heldout\.txt: has changed during training: found .*108 bytes, .* but .*48 bytes, "
    with pytest.raises(DataError, match=match):
        run(tmp_path / "run", 6, heldout=str(heldout), eval_steps=2)
    folder = RunFolder(tmp_path / "run")
    rows = read_history(folder.history_file)
    measured = [row["step"] for row in rows if row["heldout_perplexity"]]
    assert measured == (["2"] if moment == "between evaluations" else [])
    assert latest_checkpoint(folder.path).record.step == (4 if measured else 2)


def test_signs_in_the_text_of_a_new_run_are_warned_of(tmp_path, log):
    (tmp_path / "train").write_text("Not tokenized, as one sees.\n" * 20)
    (tmp_path / "vocab").write_text("<S>\n</S>\n<UNK>\nas\none\n")
    train, vocab = resolve_shards(tmp_path / "train"), Vocabulary(tmp_path / "vocab")
    count(Inputs(train, None, vocab), None, check_order=False)
    assert "such as 'tokenized,'" in log.text


def test_bigrams_of_the_training_text_are_the_baseline(tmp_path):
    texts = {"train": "a b\na c\n", "heldout": "a d\n", "vocab": "<S>\n</S>\n<UNK>\na\nb\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    train, heldout = (resolve_shards(tmp_path / name) for name in ("train", "heldout"))
    vocab = Vocabulary(tmp_path / "vocab")
    facts = count(Inputs(train, heldout, vocab), None, check_order=False)
    compared = facts.compared
    # Pairs: </S> a (twice), a b, b </S>, a <UNK>, <UNK> </S>. Words by the pairs that end in them:
    # </S> 2; <UNK>, a and b 1; each of the 5 has a part of 0.75 (4 + 1).
    end, other = (2 - 0.75 + 0.75) / 5.75, (1 - 0.75 + 0.75) / 5.75
    expected = (2 - 0.75 + 0.75 * 2 * other) / 2.75  # a after </S>
    expected *= (1 - 0.75 + 0.75 * 3 * other) / 2.75  # <UNK> after a
    expected *= (1 - 0.75 + 0.75 * 2 * end) / 1.75  # </S> after <UNK>
    assert compared.bigrams == pytest.approx(expected ** (-1 / 3))
    known = (expected / ((1 - 0.75 + 0.75 * 3 * other) / 2.75)) ** (-1 / 2)
    assert compared.known_bigrams == pytest.approx(known)
    # a 2, </S> 2, b 1 and <UNK> 1, each with 1 added, of 6 + 5
    assert compared.words == pytest.approx((3 * 2 * 3 / 11**3) ** (-1 / 3))
    assert compared.known_words == pytest.approx(11 / 3)
    assert str(compared) == f"bigrams alone: {compared.bigrams:.2f}; 50.0 % of its words unknown"


@pytest.mark.parametrize("is_complete", [True, False], ids=["no unknown words", "unknown words"])
def test_bigrams_predict_unknown_words_of_a_text_without_them(tmp_path, is_complete):
    """Every other word that occurs once, b and e, then counts as <UNK>."""
    words = ["<S>", "</S>", "<UNK>", *("abcdef" if is_complete else "abcde")]
    (tmp_path / "vocab").write_text("\n".join(words) + "\n")
    (tmp_path / "train").write_text("a b c\na c d e\na f c\n")
    vocab = Vocabulary(tmp_path / "vocab")
    train = text_ids(resolve_shards(tmp_path / "train"), vocab)
    pairs = np.insert(np.arange(vocab.size), np.arange(vocab.size), 3)  # 3 before each word
    after = Ngrams.of(train, vocab).probabilities(pairs)[::2]
    assert sum(after) == pytest.approx(1) and min(after) > 0
    unknown, b, d = (after[vocab.word_to_id(word)] for word in ("<UNK>", "b", "d"))
    assert unknown > d and (d > b) == is_complete
