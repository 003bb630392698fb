"""Measure the perplexity of a trained biLM on held-out text, by the full softmax.

Examples:
  bilm test --model run --input 'heldout/*.txt'
  bilm test --model run --input dev.txt --vocab vocab.txt --stateless
  bilm test --model elmo --input dev.txt

The LSTM state is carried from sentence to sentence within a row, so the figure depends on
--batch_size; --stateless starts each sentence from zero state, --start=checkpoint where training
left its rows. The last line on standard output is AVERAGE PERPLEXITY = <number>; --json has the
keys forward_perplexity, backward_perplexity, predictions_a_direction and average_perplexity.
"""

from __future__ import annotations

import os
from argparse import Namespace

from bilm.commands.flags import Flags, WrongUse
from bilm.commands.model_flags import MODEL, SOFTMAX, define_scorer
from bilm.commands.results import define_json, show
from bilm.commands.text_flags import define_on_bad_utf8

__doc__ = f"{__doc__}{MODEL}{SOFTMAX}"


def define_flags(flags: Flags) -> None:
    define_scorer(flags)
    flags.group("text")
    flags.path("input", "Glob of the text.", "GLOB", required=True, old=["test_prefix"])
    define_on_bad_utf8(flags)
    flags.group("measurement")
    flags.integer("batch_size", "Rows among which the sentences are dealt.", 1, default=128)
    flags.switch("stateless", "Start each sentence from zero state.")
    flags.choice("start", "The state that rows start from.", ["zero", "checkpoint"], default="zero")
    define_json(flags)


def main(args: Namespace) -> None:
    from bilm.ask import load_language_model
    from bilm.data.shards import count_tokens, resolve_shards
    from bilm.data.tokenization_check import check_tokenization
    from bilm.errors import BilmError
    from bilm.evaluation import heldout_dataset, perplexity
    from bilm.storage.checkpoint import load_state
    from bilm.storage.locate import run_folder

    if args.stateless and args.start == "checkpoint":
        raise WrongUse("--stateless starts from zero state: leave out --start=checkpoint")
    model, vocab = load_language_model(args.model, args.vocab, args.weights, args.softmax)
    text = resolve_shards(args.input, args.on_bad_utf8)
    check_tokenization(text)
    state = None
    if args.start == "checkpoint":
        state, n_rows = load_state(run_folder(args.model), model)
        if n_rows != args.batch_size:
            raise BilmError(f"--batch_size={args.batch_size}: the checkpoint has {n_rows} rows")
    result = perplexity(
        model,
        heldout_dataset(text, vocab, len(model.options.directions) == 2),
        args.batch_size,
        stateless=args.stateless,
        state=state,
        total=count_tokens(text).n_predictions if all(map(os.path.isfile, text)) else None,
    )
    figures = {f"{name.upper()} PERPLEXITY": value for name, value in result.directions.items()}
    figures["PREDICTIONS A DIRECTION"] = result.n_predictions
    figures["AVERAGE PERPLEXITY"] = result.mean
    found = {name.lower().replace(" ", "_"): value for name, value in figures.items()}
    show(args, found, "\n".join(f"{name} = {value}" for name, value in figures.items()))
