"""`bilm finetune`: trains a stored biLM on other text."""

from typing import Any

from bilm.commands import options as opt
from bilm.commands.main import INTERRUPTED, command

OF_MODEL = "from the model"
NOTE = """
A run contains its softmax and its vocab.txt. An export contains both if <stem>_softmax.hdf5 is
beside its weights, as in novels-en; other exports require --new_vocab. A checkpoint of the
TensorFlow 1 reference contains its softmax and requires --vocab unless vocab.txt is beside it.

--new_vocab gives the model a new softmax. If the model has a softmax, words that are also in the
old vocabulary keep their rows. The vocabulary of a model that reads words instead of characters
cannot be changed.

Because fine-tuning sometimes resets LSTM states (--state_reset_probability), the new model works
well from zero state even if the original does not. The output is the folder of a run, for "bilm
test" and "bilm export". The same command resumes an interrupted run. The last lines on standard
output are PERPLEXITY BEFORE = <number> and PERPLEXITY AFTER = <number>.
"""


@command(tensorflow=True, notes=[NOTE, opt.MODEL_FORMS])
@opt.model_options(
    opt.option("--new_vocab", opt.FETCHED, "Vocabulary of a new softmax: the words to predict.")
)
@opt.run_options(
    "the model", "1", "a tenth of the model's", usual=[],
    more=[
        opt.option("--unroll_steps", opt.Integer(1), "Tokens of a row per step.", OF_MODEL),
        opt.option("--dropout", opt.Number(0, 1), "Dropout rate.", OF_MODEL),
        opt.option("--n_negative_samples_batch", opt.Integer(1), "Negative samples per step.",
                   OF_MODEL),
        opt.flag("--sample_softmax/--no_sample_softmax", "Train with the sampled loss, or with the "
                 "full one.", show_default=OF_MODEL, default=None),
        opt.option("--state_reset_probability", opt.Number(0, 1), "Probability of resetting a "
                   "row's LSTM state at the start of a window.", "0.05"),
    ],
)  # fmt: skip
def finetune(**run: Any) -> int:
    """Train a stored biLM on other text.

    The perplexity of the held-out text is measured before and after training.

    Examples:
      bilm finetune --model novels-en --input 'letters/*.txt' --output tuned
      bilm finetune --model run --input 'tweets/*.txt' --output tuned \\
          --heldout dev.txt --n_epochs 2
      bilm finetune --model run --new_vocab words.txt --input 'tweets/*.txt' --output tuned
      bilm finetune --model options.json --weights weights.hdf5 --new_vocab words.txt \\
          --input 'tweets/*.txt' --output tuned --batch_size 64
      bilm finetune --model tf1_run --vocab vocab.txt --input 'tweets/*.txt' --output tuned
    """
    from bilm.training.finetuning import finetune as finetune_model

    result, is_chief = opt.run_training(finetune_model, run)
    for name, measured in (("BEFORE", result.before), ("AFTER", result.heldout)):
        if measured is not None and is_chief:
            print(f"PERPLEXITY {name} = {measured.mean:.2f}")
    return 0 if result.finished else INTERRUPTED
