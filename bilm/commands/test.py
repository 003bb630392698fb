"""`bilm test`: the perplexity of held-out text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloup.constraints import If, constraint, mutually_exclusive, require_all

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command, start_tensorflow
from bilm.commands.output import show
from bilm.errors import BilmError

if TYPE_CHECKING:
    from bilm.data.shards import Shards
    from bilm.scoring.perplexity import Perplexity

NOTE = """
All figures are of the full softmax. READING is "running text", which carries the LSTM states from
sentence to sentence in a row, so the result depends on --batch_size, or "single sentences"
(--stateless), which start from zero state, as in "bilm score". PERPLEXITY WITHOUT UNKNOWN WORDS
omits words outside the vocabulary: <UNK> is easy to predict if many are unknown. The same words are
predicted by bigrams and word frequencies of the training text, which runs and their exports with
softmax contain; for other models, by the frequencies in the rest of the tested text. The log states
which is better, by how much, and what to do. --json has the names in lower case as keys, such as
average_perplexity. WITH MEMORY: of the mixture; with --memory, figures omit sentences of three
words or more that its text contains.
"""


@command(tensorflow=False, notes=[NOTE, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@scoring.model_options
@opt.group(
    "Text",
    opt.text_input("Held-out text: a file or a quoted pattern.", rereads=True),
    opt.bad_utf8_option,
)
@opt.group(
    "Measurement",
    opt.option("--batch_size", opt.Integer(1), "Number of rows; each sentence is assigned to "
               "the row that ends first.", "that of training, or 128"),
    opt.flag("--stateless", "Start each sentence from zero state."),
    opt.option("--start", opt.OneOf(["zero", "checkpoint"]), "State at the start of each row: "
               "zero, or the state in the run's checkpoint.", "zero"),
    scoring.memory_option,
    opt.option("--decimals", opt.Integer(0), "Decimals of the printed figures.", default=2),
)  # fmt: skip
@constraint(mutually_exclusive, ["stateless", "start"])
@constraint(If("memory", require_all), ["stateless"])
@opt.json_option
def test(
    model: scoring.Model, input_: str, on_bad_utf8: str, batch_size: int | None,
    stateless: bool, start: str | None, decimals: int, json: bool
) -> None:  # fmt: skip
    """Measure the perplexity of held-out text.

    Examples:
      bilm test --model run --input 'heldout/*.txt'
      bilm test --model run --input dev.txt --vocab vocab.txt --stateless
    """
    from absl import logging

    from bilm.data.shards import resolve_shards
    from bilm.data.stream import describe_shards
    from bilm.scoring.ngrams import Ngrams, text_ids
    from bilm.scoring.perplexity import TextLosses
    from bilm.scoring.verdict import Comparison, Measurement, Verdict
    from bilm.storage.run_record import RunRecord
    from bilm.support.progress import Progress

    vocabulary = model.vocabulary
    text = resolve_shards(input_, on_bad_utf8)
    text.examine(vocabulary, model.stored.profile)
    checkpoint = model.stored.checkpoint
    record = RunRecord.read(checkpoint.path) if checkpoint else None
    if record is not None and not set(record.shards).isdisjoint(describe_shards(text.paths)):
        logging.warning("%s: is training text of the run: use held-out text", text.name)
    ids = text_ids(text, vocabulary)

    figures: dict[str, Any] = {"reading": "single sentences" if stateless else "running text"}
    n_rows = None
    if not stateless:
        n_rows = batch_size or model.stored.options.other.get("batch_size", 128)
    if n_rows and (start == "checkpoint" or model.backend(len(ids)) == "keras"):
        result = _of_keras(model, text, n_rows, start)
    else:
        scorer = model.scorer(len(ids))
        sentences = text.sentences()
        scores = scorer.score_rows(sentences, n_rows) if n_rows else scorer.score(sentences)
        losses = TextLosses(model.memory)
        for score in Progress("scoring", "sentences").over(scores):
            losses.add(score)
        result, with_memory = losses.perplexities(text.name)
        text = text.leaving_out(losses.left_out)
        if with_memory is not None:
            figures["perplexity with memory"] = with_memory.mean
            ids = text_ids(text, vocabulary)
    for direction, value in result.directions.items():
        figures[f"{direction} perplexity"] = value

    compared = Comparison.of(ids, vocabulary, Ngrams.of_model(model.stored))
    measured = Measurement.of(model.stored)
    if measured is not None and measured.compared is not None:
        compared = measured.compared.replace(**compared.to_dict())
    for name, perplexities in compared.baselines.items():
        for end, value in zip(("", " without unknown words"), perplexities, strict=True):
            figures[f"{name} perplexity{end}"] = value
    figures |= {
        "percent of unknown words": 100 * compared.unknown,
        "perplexity without unknown words": result.known,
        "predictions per direction": result.n_predictions,
        "average perplexity": result.mean,
    }

    judged = Verdict(result.mean, result.known, compared).lines
    for line in judged:
        logging.info("%s", line)
    lines = []
    for name, value in figures.items():
        rounded = f"{value:.{decimals}f}" if isinstance(value, float) else value
        lines.append(f"{name.upper()} = {rounded}")
    keyed = {name.replace(" ", "_"): value for name, value in figures.items()}
    show(keyed | {"verdict": judged}, "\n".join(lines), json)


def _of_keras(model: scoring.Model, text: Shards, n_rows: int, start: str | None) -> Perplexity:
    """Return the perplexity of text whose rows carry the state. Raises: BilmError."""
    start_tensorflow()
    from bilm.scoring.running_text import heldout_dataset, perplexity

    built = model.stored.weights(has_softmax=True).build()
    state = None
    if start == "checkpoint":
        state = model.stored.require_run().state
        n_stored = len(state[0])
        if n_stored != n_rows:
            raise BilmError(
                f"--batch_size={n_rows}: the checkpoint has {n_stored} rows; use "
                f"--batch_size={n_stored}"
            )
    dataset = heldout_dataset(text, model.vocabulary, len(built.directions) == 2)
    return perplexity(built, dataset, n_rows, state=state)
