"""The model card of an export, from the facts in the run and in the files.

It is Markdown with the YAML head that model hubs read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from absl import logging

import bilm
from bilm.options.model_options import ModelOptions, dense_sizes
from bilm.options.run_options import OPT_IN, load_model_options
from bilm.options.schema import read_object
from bilm.storage.checkpoint import Checkpoint
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import replacing, sha256_of
from bilm.support.model_files import CARD
from bilm.training.run_folder import RunFolder

HEAD = """---
library_name: "bilm-keras"
pipeline_tag: "feature-extraction"
tags: ["elmo", "bilm", "language-model", "word-embeddings"]
---"""
MARK = "<!-- written by bilm export, not changed since: {} -->\n"
RECIPE = (
    "optimizer", "learning_rate", "warmup_steps", "decay", "decay_start", "decay_floor",
    "softmax_bias", "all_clip_norm_val",
    "batch_size", "unroll_steps", "n_negative_samples_batch", "share_negatives",
    "sample_softmax", "state_reset_probability",
    *OPT_IN,
)  # fmt: skip
MAX_SHARDS = 20  # maximum number of listed files
INTENDED = (
    "To be written by the author: what the text is and in which language, under which licence the "
    "model is given away, and what it is meant for. Language and licence also belong in the head "
    "of this file (`language:`, `license:`)."
)
WITH_BILM = """With bilm:

```python
import bilm

embedder = bilm.ElmoEmbedder("{}", "{}"{})
vectors = embedder.embed_sentence(["A", "sentence", "."])
```"""
WITH_OTHERS = """With AllenNLP:

```python
from allennlp.modules.elmo import Elmo

elmo = Elmo("{0}", "{1}", num_output_representations=1)
```

With bilm-tf, on TensorFlow 1:

```python
from bilm import BidirectionalLanguageModel

model = BidirectionalLanguageModel("{0}", "{1}")
```"""
CITATION = """```bibtex
@inproceedings{peters-etal-2018-deep,
  title = {Deep Contextualized Word Representations},
  author = {Peters, Matthew E. and Neumann, Mark and Iyyer, Mohit and Gardner, Matt and
            Clark, Christopher and Lee, Kenton and Zettlemoyer, Luke},
  booktitle = {Proceedings of NAACL-HLT 2018, Volume 1 (Long Papers)},
  pages = {2227--2237},
  year = {2018},
  doi = {10.18653/v1/N18-1202},
}
```"""


def missing_for_allennlp(options: ModelOptions) -> list[str]:
    """Return the reasons why AllenNLP's `Elmo` cannot load a model; empty if it can."""
    lstm, cnn = options.lstm, options.char_cnn
    length = cnn and cnn.max_characters_per_token
    lacks = {
        "it reads words, not characters": cnn is None,
        "it reads forwards only": len(options.directions) == 1,
        f"it spells words in {length} characters, not 50": length not in (None, 50),
        "its token encoder has no CNN_proj": cnn
        and sum(n for _, n in cnn.filters) == lstm.projection_dim,
        "its LSTM has no projection W_P_0": lstm.projection_dim == lstm.dim,
        "its layers have no skip connections": not lstm.use_skip_connections,
    }
    return [reason for reason, holds in lacks.items() if holds]


def write_card(model: str | Path | StoredModel, written: list[Path]) -> Path | None:
    """Write the card of an export: `README.md` beside `weights.hdf5`, else `<stem>_README.md`.

    A card that was edited is not replaced; a warning is logged.

    Args:
        model: the run, as for `dump_weights`.
        written: the result of `dump_weights`.
    Returns: the path of the card; None if an edited card exists.
    Raises: BilmError; OSError if the card cannot be written.
    """
    weight_file, options_file = written[:2]
    stem = weight_file.stem
    path = weight_file.with_name(CARD if stem == "weights" else f"{stem}_{CARD}")
    if path.exists() and not _is_unchanged(path):
        logging.warning("%s: not written by bilm export, or edited; it was not replaced", path)
        return None
    name = weight_file.absolute().parent.name if stem == "weights" else stem
    blocks = _blocks(open_model(model), load_model_options(options_file), written)
    text = "\n\n".join([HEAD, f"# {name}", *blocks]) + "\n\n"
    with replacing(path) as temporary:
        temporary.write_text(text + MARK.format(_digest(text)), encoding="utf-8")
    return path


def _is_unchanged(path: Path) -> bool:
    text, mark, rest = path.read_text("utf-8", "replace").rpartition(MARK.partition("{")[0])
    return mark + rest == MARK.format(_digest(text))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _blocks(model: StoredModel, options: ModelOptions, written: list[Path]) -> Iterator[str]:
    """Yield the sections of the card."""
    run, saved = RunFolder(model.folder), _saved(model)
    trained = "bilm" if saved else "the TensorFlow 1 reference"
    yield (
        f"A language model of the kind behind ELMo, trained with {trained} and exported with bilm "
        f"{bilm.__version__}. It gives each word of a sentence a vector that depends on the "
        "sentence."
    )
    yield "## Model\n\n" + _table(_known(_sizes(options, model.n_words)))
    yield "## Training\n\n" + _table(_training(run, options, saved))
    if saved is not None and saved.shards:
        listed = [f"- {_plain(shard)}" for shard in saved.shards[:MAX_SHARDS]]
        more = len(saved.shards) - MAX_SHARDS
        yield "Files of the corpus:\n\n" + "\n".join(
            listed + ([f"- and {more:,} more"] if more > 0 else [])
        )
    files = ((p.name, f"{p.stat().st_size:,} bytes, SHA-256 `{sha256_of(p)}`") for p in written)
    yield "## Files\n\n" + _table(sorted(files))
    yield "## Use\n\n" + _use(written, missing_for_allennlp(options))
    yield f"## Intended use\n\n{INTENDED}"
    yield f"## How to cite ELMo\n\n{CITATION}"


def _sizes(options: ModelOptions, n_words: int | None) -> dict[str, object]:
    """Return the sizes of a model; `n_words` is the size of its vocabulary."""
    lstm, cnn = options.lstm, options.char_cnn
    n_table = 0 if cnn else (n_words or 0) * lstm.projection_dim
    return {
        "reads": "characters" if cnn else "words",
        "directions": list(options.directions),
        "lstm_layers": lstm.n_layers,
        "lstm_dim": lstm.dim,
        "projection_dim": lstm.projection_dim,
        "vector_dim": len(options.directions) * lstm.projection_dim,
        "parameters": sum(dense_sizes(options)) + n_table,
        "vocabulary": n_words,
        "max_word_bytes": cnn.max_characters_per_token - 2 if cnn else None,
    }


def _saved(model: StoredModel) -> Checkpoint | None:
    """Return the exported checkpoint; None if it is the TensorFlow 1 reference's."""
    found = model.checkpoint
    return found if isinstance(found, Checkpoint) and not found.is_reference else None


def _training(
    run: RunFolder, options: ModelOptions, saved: Checkpoint | None
) -> Iterator[tuple[str, object]]:
    """Yield the known facts about the corpus, the steps, the recipe and the perplexity."""
    other = options.other
    yield from _known({
        "predictions per epoch and direction": other.get("n_train_tokens"),
        "words to predict": other.get("n_tokens_vocab"),
        "epochs requested": other.get("n_epochs"),
    })  # fmt: skip
    if saved is not None:
        yield "steps", f"{saved.step:,}" + (f" of {saved.n_steps:,}" if saved.n_steps else "")
        yield from _known({"rows per step": saved.n_rows, "seed": saved.seed})
    yield from _known({key: other.get(key) for key in RECIPE})
    measured = run.read_measured()
    if measured is not None and saved is not None and measured[0] == saved.step:
        found = measured[1]
        yield "held-out perplexity", f"{found}, over {found.n_predictions:,} predictions"
    elif saved is not None and math.isfinite(saved.best):
        yield "best held-out perplexity up to this step", f"{saved.best:,.2f}"
    if run.tuning_file.exists():
        record = read_object(run.tuning_file)
        yield from _known({"fine-tuned from": ", ".join(map(str, record.get("source") or []))})
        if isinstance(before := record.get("before"), dict):
            yield from _known({"held-out perplexity before fine-tuning": before.get("mean")})


def _known(values: dict[str, object]) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in values.items() if value not in (None, ""))


def _use(written: list[Path], lacks: list[str]) -> str:
    weights, options, *rest = (path.name for path in written)
    words = ', vocab_file="vocab.txt"' if "it reads words, not characters" in lacks else ""
    parts = [WITH_BILM.format(options, weights, words)]
    if rest:
        parts.append(f"`{rest[0]}` is the softmax, for `bilm score` and `bilm substitutes`.")
    if lacks:
        parts.append(f"AllenNLP's `Elmo` cannot load it: {'; '.join(lacks)}.")
    else:
        parts.append(WITH_OTHERS.format(options, weights))
    return "\n\n".join(parts)


def _table(rows: Iterable[tuple[str, object]]) -> str:
    lines = [f"| {_plain(name)} | {_plain(_shown(value))} |" for name, value in rows]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    """Return a text without line breaks and with escaped column separators."""
    return " ".join(text.split()).replace("|", "\\|")
