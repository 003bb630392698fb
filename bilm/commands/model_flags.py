"""Flags that the commands which ask a language model have in common."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from bilm.commands.flags import Flags

if TYPE_CHECKING:  # imported where it is used: --help does not wait for TensorFlow
    from bilm.scoring import Scorer

MODEL = """
MODEL is the folder of a run, of bilm or of the TensorFlow 1 reference, or what
`bilm export --include_softmax` writes: a folder, or options.json with --weights.
"""


def define_scorer(flags: Flags) -> None:
    """Declare which model is asked."""
    flags.group("model")
    flags.path(
        "model",
        "A model with its softmax.",
        "MODEL",
        required=True,
        old=["save_dir", "options_file"],
    )
    flags.path("weights", "HDF5 weights, where MODEL is options.json.", old=["weight_file"])
    flags.path(
        "softmax", "Softmax of an export [<stem>_softmax.hdf5 beside it].", old=["softmax_file"]
    )
    flags.path("vocab", "Vocabulary of a run [vocab.txt in its folder].", old=["vocab_file"])


def scorer_of(args: Namespace) -> Scorer:
    """Load the model that the flags name. Raises: BilmError."""
    from bilm import ask
    from bilm.storage.checkpoint_folder import holds_checkpoint

    is_run = args.weights is None and holds_checkpoint(args.model)
    return ask.load_scorer(
        save_dir=args.model if is_run else None,
        vocab_file=args.vocab,
        options_file=None if is_run else args.model,
        weight_file=args.weights,
        softmax_file=args.softmax,
    )
