"""The settings of a run that are not options of the model or of its training."""

import math
from dataclasses import dataclass

from bilm.data.text import ON_BAD_UTF8
from bilm.options import schema
from bilm.options.run_options import MAX_SEED
from bilm.options.schema import NUMBER, Checked, choice, integer, key, number
from bilm.precisions import PRECISIONS

MAX_STEPS = schema.MAX_INT32  # step numbers are int32 in the graph
RESUME = ("auto", "never", "must")
MINUTES = number(0, math.inf, "a number from 0")


@dataclass(frozen=True, kw_only=True)
class RunSettings(Checked):
    """Length, evaluations, checkpoints and logs of a run.

    Args:
        n_steps: total steps of the run; None derives them from `n_epochs`.
        eval_steps: steps between evaluations; None for an epoch, or more if held-out text is long.
        seed: determines the initial weights, the order of the text, dropout and negatives.
        resume: "auto" resumes a run if the folder contains one, "never" refuses a folder that
            contains a run, "must" refuses a folder that contains none.
        checkpoint_steps, checkpoint_minutes: intervals between checkpoints, of which the shorter
            counts. A run also saves before each evaluation and at its end.
        keep_checkpoints: number of recent checkpoints to keep, in addition to the best one.
        log_steps: steps between reports; None for one every few seconds.
        precision: dtype of matrix-multiplication inputs, see `BiLM`; None for float32, or for that
            which `auto` chooses. A resumed run may have another one.
        ignore_memory: whether to train even if the estimated memory is 1.5 times the machine's.
        on_bad_utf8: "error", or "replace" to read bytes that are not UTF-8 as U+FFFD.
    Raises: OptionsError for a value that is not allowed.
    """

    n_steps: int | None = key(integer(1, MAX_STEPS), None)
    eval_steps: int | None = key(NUMBER, None)
    seed: int = key(integer(0, MAX_SEED), 0)
    resume: str = key(choice(*RESUME), "auto")
    checkpoint_steps: int = key(NUMBER, 1_000)
    checkpoint_minutes: float = key(MINUTES, 15.0)
    keep_checkpoints: int = key(NUMBER, 3)
    log_steps: int | None = key(NUMBER, None)
    precision: str | None = key(choice(*PRECISIONS), None)
    ignore_memory: bool = key(schema.BOOLEAN, False)
    on_bad_utf8: str = key(choice(*ON_BAD_UTF8), "error")
