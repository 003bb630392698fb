"""Train a stored biLM on another corpus, and measure held-out perplexity before and after.

Examples:
  bilm finetune --model novels-en --input 'letters/*.txt' --output tuned
  bilm finetune --model run --input 'tweets/*.txt' --output tuned \\
      --heldout dev.txt --n_epochs 2
  bilm finetune --model run --new_vocab words.txt --input 'tweets/*.txt' --output tuned
  bilm finetune --model options.json --weights weights.hdf5 --new_vocab words.txt \\
      --input 'tweets/*.txt' --output tuned --batch_size 64
  bilm finetune --model bilm_tf_checkpoint --vocab vocab.txt --input 'tweets/*.txt' --output tuned

A run brings its softmax and its vocab.txt. An export brings both if <stem>_softmax.hdf5 lies beside
its weights, as in novels-en; other exports need --new_vocab. A checkpoint of the TensorFlow 1
reference brings its softmax, and needs --vocab unless vocab.txt lies beside it.

--new_vocab gives the model a softmax over other words; words that the model's vocabulary holds too
keep their rows if the model has a softmax. A model that reads words and not characters keeps its
vocabulary.

Rows are sometimes reset to zero state (--state_reset_probability), so that the tuned model does
well from there even if the original does not. Options that are not given are the model's. The
output is the folder of a run, for `bilm test` and `bilm export`; the same command continues it. The
last lines on standard output are PERPLEXITY BEFORE = <number> and PERPLEXITY AFTER = <number>.
"""

from __future__ import annotations

from argparse import Namespace

from bilm.commands.flags import Flags
from bilm.commands.model_flags import MODEL
from bilm.commands.run_flags import RATE, define_run, given, run_arguments, run_hosts
from bilm.commands.terminal import INTERRUPTED

__doc__ = f"{__doc__}{MODEL}"

CHANGES = (
    "batch_size",
    "dropout",
    "n_epochs",
    "n_negative_samples_batch",
    "sample_softmax",
    "state_reset_probability",
    "unroll_steps",
    *RATE,
)


def define_flags(flags: Flags) -> None:
    flags.group("model")
    flags.path("model", "What to start from.", "MODEL", required=True, old=["source"])
    flags.path("weights", "HDF5 weights, where MODEL is options.json.", old=["weight_file"])
    flags.path("vocab", "The model's vocabulary [vocab.txt in its folder].", old=["vocab_file"])
    flags.path("new_vocab", "Other words to predict, by a new softmax.", old=["new_vocab_file"])
    define_run(flags, rate="the model's, or ", warmup="a tenth of the model's")
    flags.group("training")
    flags.integer("n_epochs", "Passes over the text [1].", 1)
    flags.integer("batch_size", "Rows per replica [the model's].", 1)
    flags.integer("unroll_steps", "Tokens of a row per step [the model's].", 1)
    flags.number("dropout", "Rate [the model's].", 0, 1)
    flags.integer("n_negative_samples_batch", "Negatives per step [the model's].", 1)
    flags.switch("sample_softmax", "Sampled loss, or the full one [the model's].", default=None)
    flags.number(
        "state_reset_probability",
        "Of a row to start a window from zero state [0.05].",
        0,
        1,
    )


def main(args: Namespace) -> int:
    from bilm.training.finetuning import finetune

    with run_hosts(args) as hosts:
        result = finetune(
            args.model,
            weight_file=args.weights,
            vocab_file=args.vocab,
            new_vocab_file=args.new_vocab,
            changes=given(args, CHANGES),
            **run_arguments(args, hosts),
        )
    for name, measured in (("BEFORE", result.before), ("AFTER", result.after)):
        if measured is not None and hosts.is_chief:
            print(f"PERPLEXITY {name} = {measured.mean}")
    return 0 if result.finished else INTERRUPTED
