"""`bilm test`: the perplexity of held-out text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloup.constraints import AnySet, If, accept_none, constraint, mutually_exclusive

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import show

if TYPE_CHECKING:
    from bilm.scoring.adaptation import Adaptation

N_ROWS = 128
NOTE = """
The LSTM states are carried from sentence to sentence within a row, so the result depends on
--batch_size. --stateless starts each sentence from zero state. --start=checkpoint starts each row
from its state in the checkpoint. The last line on standard output is AVERAGE PERPLEXITY =
<number>; --json has the keys forward_perplexity, backward_perplexity, percent_of_unknown_words,
predictions_per_direction and average_perplexity.

With --adapt or --cache the text is read a second time, in one row, by a model that adapts to what
it has read; each word is scored before the model adapts to it, and each direction has weights and
a cache of its own. The lines ADAPTED FORWARD, BACKWARD and AVERAGE PERPLEXITY (keys
adapted_forward_perplexity ...) report the result. All other lines are of the model that does not
adapt, also read in one row (--batch_size 1). The stored model does not change.
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
               "the row that ends first.", "128; 1 with --adapt or --cache"),
    opt.flag("--stateless", "Start each sentence from zero state."),
    opt.option("--start", opt.OneOf(["zero", "checkpoint"]), "State at the start of each row: "
               "zero, or the state in the run's checkpoint.", "zero"),
)  # fmt: skip
@scoring.adaptation_options
@constraint(If(AnySet("adapt", "cache"), accept_none), ["stateless", "start", "batch_size"])
@constraint(mutually_exclusive, ["stateless", "start"])
@opt.json_option
def test(
    files: scoring.Files, input_: str, on_bad_utf8: str, batch_size: int | None, stateless: bool,
    start: str | None, adaptation: Adaptation | None, json: bool
) -> None:  # fmt: skip
    """Measure the perplexity of held-out text.

    Probabilities are computed with the full softmax.

    Examples:
      bilm test --model run --input 'heldout/*.txt'
      bilm test --model run --input dev.txt --vocab vocab.txt --stateless
      bilm test --model elmo --input dev.txt
      bilm test --model elmo --input dev.txt --adapt 0.0003 --cache 0.1
    """
    from bilm.data.shards import resolve_shards
    from bilm.data.survey import check_tokenization
    from bilm.errors import BilmError
    from bilm.scoring.perplexity import (
        heldout_dataset,
        perplexity,
        unknown_percent,
        word_counts,
    )
    from bilm.storage.stored_model import open_model

    batch_size = batch_size or (N_ROWS if adaptation is None else 1)
    stored = open_model(files.model, files.weights, files.softmax)
    found, vocabulary = stored.build_language_model(), stored.vocabulary(files.vocab)
    text = resolve_shards(input_, on_bad_utf8)
    check_tokenization(text)
    state = None
    if start == "checkpoint":
        state, n_rows = stored.row_states(found)
        if n_rows != batch_size:
            raise BilmError(
                f"--batch_size={batch_size}: the checkpoint has {n_rows} rows; use "
                f"--batch_size={n_rows}"
            )
    dataset = heldout_dataset(text, vocabulary, len(found.options.directions) == 2)
    result = perplexity(found, dataset, batch_size, stateless=stateless, state=state)
    figures: dict[str, float] = {}
    if adaptation is not None:
        from bilm.scoring.adaptation import adapted_perplexity

        adapted = adapted_perplexity(found, dataset, adaptation)
        for name, value in {**adapted.directions, "average": adapted.mean}.items():
            figures[f"ADAPTED {name.upper()} PERPLEXITY"] = value
    figures |= {
        **{f"{name.upper()} PERPLEXITY": value for name, value in result.directions.items()},
        "PERCENT OF UNKNOWN WORDS": unknown_percent(word_counts(text, vocabulary), vocabulary),
        "PREDICTIONS PER DIRECTION": result.n_predictions,
        "AVERAGE PERPLEXITY": result.mean,
    }
    keyed = {name.lower().replace(" ", "_"): value for name, value in figures.items()}
    show(keyed, "\n".join(f"{name} = {value}" for name, value in figures.items()), json)
