"""Flags that the commands which ask a language model have in common."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from bilm.commands.flags import Flags

if TYPE_CHECKING:  # imported where it is used: --help does not wait for TensorFlow
    from bilm.scoring import Scorer

MODEL = """
MODEL is the folder of a run, of bilm or of the TensorFlow 1 reference, or that of an exported
model; an archive (ZIP, tar, tar.gz) of either, or its URL; the options.json of a model, with
--weights; or a name: novels-en, a small model of English novels that comes with bilm; small,
medium, original, original_5.5b, seqvec, nlpl:NUMBER or hf:OWNER/NAME[@REVISION], which are
downloaded. What is on disk comes before a name.
"""
SOFTMAX = """
Of an exported model, this needs the softmax, which `bilm export --include_softmax` writes.
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
    from bilm.ask import load_scorer

    return load_scorer(args.model, args.vocab, weight_file=args.weights, softmax_file=args.softmax)
