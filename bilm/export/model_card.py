"""The model card of an export: facts about run and files, Markdown with model hubs' YAML head."""

from collections.abc import Mapping
from pathlib import Path

from absl import logging

import bilm
from bilm.export.hdf5 import missing_for_allennlp
from bilm.options.model_options import EVALUATION, PROFILE
from bilm.scoring.verdict import Measurement
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import replacing, sha256_of
from bilm.support.model_files import CARD
from bilm.tensors import sizes_of

TEMPLATE = Path(__file__).with_name("model_card.template")
KEPT = EVALUATION, PROFILE  # keys of options whose content is listed in words
MAX_SHARDS = 20  # maximum number of listed files
SIZES = (
    "reads", "directions", "lstm_layers", "lstm_dim", "projection_dim", "vector_dim", "parameters",
    "vocabulary", "max_word_bytes",
)  # fmt: skip


def write_card(model: StoredModel, written: list[Path]) -> Path | None:
    """Write the card of an export, the result of `dump_weights`: `README.md` beside `weights.hdf5`,
    else `<stem>_README.md`. Return its path; None, with a warning, if the file exists."""
    weight_file, options_file, *softmax_files = written
    is_usual = weight_file.stem == "weights"
    path = weight_file.with_name(CARD if is_usual else f"{weight_file.stem}_{CARD}")
    if path.exists():
        logging.warning("%s: exists and was not replaced; remove it to get a new card", path)
        return None

    # The programs that load the files.
    options = open_model(options_file, weight_file).options
    readers = "AllenNLP's `Elmo` and bilm-tf load the same two files."
    if reasons := missing_for_allennlp(options):
        readers = f"AllenNLP's `Elmo` cannot load it: {'; '.join(reasons)}."
    for file in softmax_files:
        readers += f" `{file.name}` is the softmax, for `bilm score` and `bilm substitutes`."

    # The facts about the model and the files.
    sizes = sizes_of(options, model.n_words)
    facts = {name: sizes[name] for name in SIZES}
    facts["directions"] = ", ".join(options.directions)
    facts |= {key: value for key, value in options.other.items() if key not in KEPT}
    measured = Measurement.of(model)
    facts |= _training(model, measured)
    if model.profile is not None:
        facts |= model.profile.table()
    if measured is not None and measured.verdict is not None:
        facts["verdict"] = "; ".join(measured.verdict.lines)
    files = {}
    for file in written:
        files[file.name] = f"{file.stat().st_size:,} bytes, SHA-256 `{sha256_of(file)}`"

    text = TEMPLATE.read_text(encoding="utf-8").format(
        name=weight_file.absolute().parent.name if is_usual else weight_file.stem,
        source=model.description,
        version=bilm.__version__,
        options=options_file.name,
        weights=weight_file.name,
        vocabulary=', vocab_file="vocab.txt"' if options.reads_words else "",
        readers=readers,
        facts=_table(facts),
        files=_table(files),
    )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _training(model: StoredModel, measured: Measurement | None) -> dict[str, object]:
    checkpoint = model.checkpoint
    if checkpoint is None or checkpoint.is_reference:
        return {}
    record, options = checkpoint.record, checkpoint.record.options
    n_epochs = record.step * record.n_rows * options["unroll_steps"] / options["n_train_tokens"]
    facts: dict[str, object] = {
        "corpus": "; ".join(record.shards[:MAX_SHARDS]),
        "files of the corpus": len(record.shards),
        "steps": f"{record.step:,} of {record.n_steps:,}",
        "n_epochs": f"{n_epochs:.2f} read",
        "rows per step": record.n_rows,
        "seed": record.seed,
    }
    if measured is not None:
        perplexity, n = measured.perplexity, measured.perplexity.n_predictions
        facts["held-out perplexity"] = f"{perplexity} (running text), over {n:,} predictions"
    elif record.best is not None:
        facts["best held-out perplexity up to this step"] = f"{record.best:,.2f}"
    if record.auto is not None:
        facts["encoder started from"] = record.auto.encoder
    if record.finetuning is not None:
        facts["fine-tuned from"] = ", ".join(map(str, record.finetuning.source))
    return facts


def _table(facts: Mapping[str, object]) -> str:
    lines = ["| | |", "| --- | --- |"]
    for name, value in facts.items():
        if value is None or value == "":
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            text = f"{value:,}"
        else:
            text = " ".join(str(value).split()).replace("|", "\\|")
        lines.append(f"| {name} | {text} |")
    return "\n".join(lines)
