"""`bilm test`: the perplexity of held-out text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloup.constraints import If, constraint, mutually_exclusive, require_all

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import show

if TYPE_CHECKING:
    from bilm.data.shards import Shards
    from bilm.data.vocabulary import Vocabulary
    from bilm.language_model import BiLM
    from bilm.storage.stored_model import StoredModel

NOTE = """
All figures are of the full softmax. READING is "running text", which carries the LSTM states from
sentence to sentence in a row, so the result depends on --batch_size, or "single sentences"
(--stateless), which start from zero state, as in "bilm score". PERPLEXITY WITHOUT UNKNOWN WORDS
omits words outside the vocabulary: <UNK> is easy to predict if many are unknown. WORD FREQUENCIES
PERPLEXITY predicts each word by the frequencies in the rest of the text. --json has the names in
lower case as keys, such as average_perplexity. WITH MEMORY: of the mixture.
"""


@command(notes=[NOTE, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@scoring.model_options
@opt.group(
    "Text",
    opt.text_input("Held-out text: a file or a quoted pattern.", "more than once"),
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
    files: scoring.Files, input_: str, on_bad_utf8: str, batch_size: int | None, stateless: bool,
    start: str | None, memory: str | None, decimals: int, json: bool
) -> None:  # fmt: skip
    """Measure the perplexity of held-out text.

    Examples:
      bilm test --model run --input 'heldout/*.txt'
      bilm test --model run --input dev.txt --vocab vocab.txt --stateless
    """
    from absl import logging

    from bilm.data.shards import resolve_shards
    from bilm.scoring import perplexity as measures
    from bilm.storage.stored_model import open_model

    # The model and the text
    stored = open_model(files.model, files.weights, files.softmax)
    model, vocabulary = stored.build_language_model(), stored.vocabulary(files.vocab)
    batch_size = batch_size or stored.options.other.get("batch_size", 128)
    text = resolve_shards(input_, on_bad_utf8)
    text.examine()
    state = _checkpoint_state(stored, model, batch_size) if start == "checkpoint" else None

    # Perplexities
    reading = "single sentences" if stateless else "running text"
    figures: dict[str, Any] = {"READING": reading}
    if memory is not None:
        figures["PERPLEXITY WITH MEMORY"] = _perplexity_with_memory(model, vocabulary, memory, text)
    dataset = measures.heldout_dataset(text, vocabulary, len(model.directions) == 2)
    result = measures.perplexity(model, dataset, batch_size, stateless=stateless, state=state)
    for direction, value in result.directions.items():
        figures[f"{direction.upper()} PERPLEXITY"] = value

    # What they are compared with
    ids = measures.text_ids(text, vocabulary)
    unigram = measures.unigram_perplexity(ids, vocabulary.size)
    unknown = measures.unknown_percent(ids, vocabulary)
    figures |= {
        "WORD FREQUENCIES PERPLEXITY": unigram,
        "PERCENT OF UNKNOWN WORDS": unknown,
        "PERPLEXITY WITHOUT UNKNOWN WORDS": result.known,
        "PREDICTIONS PER DIRECTION": result.n_predictions,
        "AVERAGE PERPLEXITY": result.mean,
    }
    logging.info(
        "perplexity %s (%s); word frequencies alone: %.2f; %.1f %% of the words unknown; without "
        "them: %.2f", result, reading, unigram, unknown, result.known,
    )  # fmt: skip
    keyed = {name.lower().replace(" ", "_"): value for name, value in figures.items()}
    lines = [_line(name, value, decimals) for name, value in figures.items()]
    show(keyed, "\n".join(lines), json)


def _checkpoint_state(stored: StoredModel, model: BiLM, batch_size: int) -> Any:
    """Return the state of each row in a run's checkpoint. Raises: BilmError for other rows."""
    from bilm.errors import BilmError

    state = stored.require_run("continue from the states of a checkpoint").state
    n_rows = len(state[0])
    if n_rows != batch_size:
        raise BilmError(
            f"--batch_size={batch_size}: the checkpoint has {n_rows} rows; use "
            f"--batch_size={n_rows}"
        )
    return model.pack_state(state)


def _perplexity_with_memory(
    model: BiLM, vocabulary: Vocabulary, memory: str, text: Shards
) -> float:
    """Return the perplexity of the mixture of a model and a memory, for single sentences."""
    from bilm.scoring.memory.file import StoredMemory
    from bilm.scoring.scorer import Scorer, perplexity_of_scores
    from bilm.support.progress import progress

    words = vocabulary.words
    recall = StoredMemory.load(memory, words).memory
    scores = Scorer(model, words).score(text.sentences())
    with progress("scoring with the memory", "sentences") as bar:
        mixed = perplexity_of_scores(score.mixed(recall) for score in bar.over(scores))
    return mixed.mean


def _line(name: str, value: object, decimals: int) -> str:
    """Return the line of a figure."""
    return f"{name} = {value:.{decimals}f}" if isinstance(value, float) else f"{name} = {value}"
