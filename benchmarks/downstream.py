#!/usr/bin/env python
"""Accuracy of taggers and classifiers with the vectors of biLMs, subword vectors, or neither.

Examples:
  python benchmarks/downstream.py --output downstream
  python benchmarks/downstream.py --tasks sentiment --vectors none,novels-en,mine=runs/mine

Tasks, each in a folder of --data with train.tsv and dev.tsv:
  tagging    parts of speech, UD English EWT (en_ewt_pos), accuracy, 4 epochs
  entities   named entities, WNUT 17 (wnut17_ner), F1 of whole entities, 8 epochs
  sentiment  sentences of film reviews (movie_polarity), accuracy, 3 epochs
The networks are those of examples/tagger.py and of examples/sentence_classifier.py --word_vectors.
Each task is trained once per seed and evaluated on dev after the last epoch; dev chooses nothing.

--vectors lists the rows of the table: models or NAME=MODEL, and
  none       learned vectors only, in taggers also of affixes; other rows add theirs to these
  fasttext   skip-gram vectors of words and of their character n-grams, trained by gensim on
             --fasttext_text, with as many dimensions as the vectors of novels-en
Each task learns to mix the layers: gamma * sum_j softmax(w)_j * layer_j; fastText has one layer.

The output folder contains downstream.csv and downstream.md, with the relative error reduction
against `none`: the share of the errors (100 minus the score) that disappears. The same command
continues after an interruption. Requires pandas, and gensim for fasttext.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import common
import numpy as np
from absl import app, flags

from bilm.data.shards import matching_files
from bilm.support.files import replacing

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import running
import sentence_classifier
import tagger

if TYPE_CHECKING:
    import pandas as pd


class Task(NamedTuple):
    """A task: folder of its texts, functions of its example, passes over the training texts."""

    folder: str
    read: Callable[[str, int | None], list[Any]]
    train_once: Callable[..., tuple[str, float]]
    example: Any  # the module
    flags: Sequence[str]  # of the example
    n_epochs: int


TASKS = {
    "tagging": Task("en_ewt_pos", tagger.read_sentences, tagger.train_once, tagger, (), 4),
    "entities": Task("wnut17_ner", tagger.read_sentences, tagger.train_once, tagger, (), 8),
    "sentiment": Task(
        "movie_polarity",
        sentence_classifier.read_texts,
        lambda *arguments: ("accuracy", sentence_classifier.train_once(*arguments)[0]),
        sentence_classifier,
        ["--word_vectors"],
        3,
    ),
}
NONE, FASTTEXT = "none", "fasttext"

FLAGS = flags.FLAGS
flags.DEFINE_list("tasks", [*TASKS], "Tasks.")
flags.DEFINE_list("vectors", [NONE, FASTTEXT, "novels-en"], "Rows: models or NAME=MODEL.")
flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds.")
flags.DEFINE_string("output", "downstream", "Folder of results.")
flags.DEFINE_string("data", str(common.CLASSICS.parent), "Folder of the folders of the tasks.")
flags.DEFINE_string("fasttext_text", str(common.CLASSICS / "train" / "*"), "Text of fasttext.")
flags.DEFINE_integer("fasttext_dim", 256, "Dimensions of fasttext.", 1)
flags.DEFINE_integer("epochs", None, "Passes over the training texts, for all tasks.", 1)


class FastText:
    """Vectors of words and of their character n-grams; `embed_sentences` as in `ElmoEmbedder`."""

    def __init__(self, path: Path):
        """Load the vectors, or train and store them."""
        from gensim.models import FastText as Model
        from gensim.models.fasttext import FastTextKeyedVectors

        if not path.exists():
            files = matching_files(FLAGS.fasttext_text)
            sentences = [words for file in files for words in common.sentences(file)]
            model = Model(
                sentences, vector_size=FLAGS.fasttext_dim, sg=1, min_count=3, bucket=500_000,
                seed=0, workers=len(os.sched_getaffinity(0)),
            )  # fmt: skip
            with replacing(path) as part:
                model.wv.save(str(part), separately=[])  # one file
        self._vectors = FastTextKeyedVectors.load(str(path))

    def embed_sentences(self, sentences: Iterable[list[str]]) -> Iterator[np.ndarray]:
        """Yield the vectors of each sentence, float32 (1, T, D)."""
        vector = lru_cache(maxsize=None)(self._vectors.get_vector)
        for words in sentences:
            yield np.stack([vector(word) for word in words])[None]


def rows() -> dict[str, str]:
    """Return the model of each row of the table."""
    pairs = [text.rpartition("=") for text in FLAGS.vectors]
    return {name or model: model for name, _, model in pairs}


def train(name: str, vectors: str, model: str, seeds: list[int]) -> Iterator[dict[str, Any]]:
    """Train a task with vectors of a model, once per seed; yield the results."""
    import keras

    import bilm

    task = TASKS[name]
    folder = Path(FLAGS.data) / task.folder
    files = [str(folder / f"{part}.tsv") for part in ("train", "dev")]
    n_epochs = FLAGS.epochs or task.n_epochs
    known = ["--train", files[0], "--dev", files[1], "--epochs", str(n_epochs), *task.flags]
    known.append("--no_elmo")  # the vectors are not computed in training
    args = task.example.define_flags().parse_args(known)
    texts = [task.read(file, None) for file in files]
    if model != NONE:
        fasttext_file = Path(FLAGS.output) / "fasttext"
        embedder = FastText(fasttext_file) if model == FASTTEXT else bilm.ElmoEmbedder(model)
        texts = [running.with_vectors(part, embedder) for part in texts]
    for seed in seeds:
        keras.backend.clear_session()
        start = time.perf_counter()
        metric, score = task.train_once(seed, *texts, args)
        yield {
            "task": name, "metric": metric, "vectors": vectors, "model": model, "seed": seed,
            "score": score, "seconds": time.perf_counter() - start,
        }  # fmt: skip


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Return one line per task and row: mean, scores and relative error reduction, in percent."""
    keys = ["task", "metric", "vectors", "model"]
    table = results.pivot(index=keys, columns="seed", values="score")
    table.columns = [f"seed_{seed}" for seed in table.columns]
    table.insert(0, "mean", table.mean(axis=1))
    table = table.reset_index()
    without = table[table["vectors"] == NONE].set_index("task")["mean"]
    base = table["task"].map(without).where(table["vectors"] != NONE)
    table["error_reduction"] = 100 * (table["mean"] - base) / (100 - base)
    order = {name: i for i, name in enumerate([*TASKS, *rows()])}
    return table.sort_values(["task", "vectors"], key=lambda column: column.map(order))


def markdown(table: pd.DataFrame) -> str:
    """Return the table of results."""
    columns: dict[str, dict[str, str]] = {}
    for line in table.to_dict("records"):
        seeds = [value for key, value in line.items() if key.startswith("seed_")]
        scores = f"{line['mean']:.2f} ({', '.join(f'{score:.2f}' for score in seeds)})"
        reduction = line["error_reduction"]
        shown = "" if np.isnan(reduction) else f"{reduction:.1f} %"
        for title, cell in ((line["metric"], scores), ("error reduction", shown)):
            columns.setdefault(f"{line['task']}, {title}", {})[line["vectors"]] = cell
    body = [[name, *(cells.get(name, "") for cells in columns.values())] for name in rows()]
    return common.markdown(["vectors", *columns], body)


def main(_: list[str]) -> None:
    import pandas as pd

    for task in FLAGS.tasks:
        if task not in TASKS:
            sys.exit(f"--tasks: found {task}, expected {', '.join(TASKS)}")
    output = Path(FLAGS.output)
    common.require_settings(output, "data", "fasttext_text", "fasttext_dim", "epochs")
    stored = output / "results.json"
    results = json.loads(stored.read_text()) if stored.exists() else []
    seeds = [int(seed) for seed in FLAGS.seeds]
    wanted = []
    for task in FLAGS.tasks:
        for vectors, model in rows().items():
            finished = {
                r["seed"] for r in results
                if (r["task"], r["vectors"], r["model"]) == (task, vectors, model)
            }  # fmt: skip
            missing = [seed for seed in seeds if seed not in finished]
            for result in train(task, vectors, model, missing) if missing else ():
                results.append(result)
                with replacing(stored) as part:
                    part.write_text(json.dumps(results, indent=1), encoding="utf-8")
                print(", ".join(f"{key} {value}" for key, value in result.items()), flush=True)
            wanted += [(task, vectors, model, seed) for seed in seeds]
    frame = pd.DataFrame(results)
    keys = pd.MultiIndex.from_frame(frame[["task", "vectors", "model", "seed"]])
    table = summary(frame[keys.isin(wanted)])
    table.to_csv(output / "downstream.csv", index=False, float_format="%.3f")
    text = markdown(table)
    (output / "downstream.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    app.run(main)
