"""Commands start without Keras and TensorFlow if their work is short."""

import json

from command_runs import output_of

# In one process: a command that imports Keras or TensorFlow shows it, and so do those after it.
RUN = """
import json, sys
from bilm.commands.main import cli, run
from bilm.studies.gaps import fitting
fitting.N_STEPS = 1
for words in json.loads(sys.argv[1]):
    status = run(cli, "bilm", words)
    print("ended:", words[0], status, "keras" in sys.modules, "tensorflow" in sys.modules)
"""
SENTENCE = "She rose from her chair ."
PAIR = {
    "sentence_good": "She rose .", "sentence_bad": "Rose she .", "linguistics_term": "order",
    "UID": "swap",
}  # fmt: skip
TEXTS = {
    "one.txt": SENTENCE,
    "two.txt": f"{SENTENCE}\nHe rose .",
    "gap.txt": "She [MASK] from her chair .",
    "pairs.jsonl": json.dumps(PAIR),
}
SHORT = [
    ["score", "--input", "one.txt"],
    ["surprisal", "--input", "one.txt", "--top", "2"],
    ["fill", "--input", "gap.txt"],
    ["substitutes", "--sentence", SENTENCE, "--position", "1"],
    ["minimal-pairs", "--input", "pairs.jsonl"],
    ["memory", "--input", "two.txt", "--heldout", "one.txt", "--output", "memory.hdf5"],
    ["embed", "--input", "two.txt", "--output", "vectors.hdf5"],
    ["test", "--input", "one.txt"],
    ["test", "--input", "one.txt", "--stateless"],
]
WITHOUT_A_MODEL_TO_COMPUTE = [
    ["info", "novels-en", "--json"],
    ["models", "--cached"],
    ["text", "--input", "one.txt", "--output", "a.txt"],
    ["vocab", "--input", "one.txt", "--output", "b.txt"],
]


def test_commands_of_short_work_import_neither_keras_nor_tensorflow(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(f"{text}\n")
    commands = [[*words, "--model", "novels-en"] for words in SHORT] + WITHOUT_A_MODEL_TO_COMPUTE
    printed = output_of(RUN, json.dumps(commands), cwd=tmp_path, BILM_CACHE=str(tmp_path))
    ended = [line for line in printed.splitlines() if line.startswith("ended: ")]
    assert ended == [f"ended: {words[0]} 0 False False" for words in commands]
