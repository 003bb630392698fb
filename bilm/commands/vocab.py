"""`bilm vocab`: the vocabulary of a text."""

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import show
from bilm.data.vocabulary_builder import FEW_UNKNOWN, MAX_MIN_COUNT

NOTE = """
The text is UTF-8, plain or compressed (gzip, bz2, xz, zstd), with one tokenized sentence per line.
Words of equal frequency are sorted by their characters. <S> and </S> in the text count as tokens,
as in training, and <UNK> as an unknown one. Files may be URLs, such as s3://BUCKET/NAME; this
requires the extra remote.
"""


@command(notes=[NOTE])
@opt.group(
    "Files",
    opt.text_input("Text: a file or a quoted pattern."),
    opt.option("--output", opt.FILE_OR_URL, "Vocabulary to write, a word per line.", required=True),
    opt.option("--ngrams", opt.FILE, 'Counts of triples of words to write (HDF5), for "bilm '
               'surprisal"; the text is then read twice.', "none"),
    opt.bad_utf8_option,
)  # fmt: skip
@opt.group(
    "Words",
    opt.option("--min_count", opt.Integer(1), "Minimum count of a word in the vocabulary.",
               f"the largest, up to {MAX_MIN_COUNT}, that leaves at most {FEW_UNKNOWN:.0%} of the "
               "words of other text unknown, or 1"),
    opt.option("--max_size", opt.Integer(4), "Maximum number of lines, marks included.",
               "no limit"),
)  # fmt: skip
@opt.json_option
def vocab(
    input_: str, output: str, ngrams: str | None, on_bad_utf8: str, min_count: int | None,
    max_size: int | None, json: bool
) -> None:  # fmt: skip
    """Build a vocabulary from text.

    The vocabulary contains <S>, </S> and <UNK>, then the words by descending frequency.

    Examples:
      bilm vocab --input 'corpus/*.txt' --output vocab.txt
      bilm vocab --input 'corpus/*.gz' --output vocab.txt --min_count 3 --max_size 800000
      bilm vocab --input 'corpus/*.txt' --output vocab.txt --ngrams counts.hdf5
    """
    import numpy as np

    from bilm.data.shards import resolve_shards
    from bilm.data.vocabulary import Vocabulary
    from bilm.data.vocabulary_builder import build_vocabulary
    from bilm.scoring.ngrams import Ngrams, text_ids
    from bilm.storage.hdf5 import save_hdf5
    from bilm.support.files import protect
    from bilm.support.model_files import NGRAM_COUNTS

    text = resolve_shards(input_, on_bad_utf8, reads_once=ngrams is None)
    if ngrams is not None:
        protect(ngrams, *text.paths, output)
    counts = build_vocabulary(text, output, min_count, max_size)
    if ngrams is not None:
        vocabulary = Vocabulary(output)
        counted = Ngrams.of(text_ids(text, vocabulary), vocabulary, order=3)
        words = np.array(vocabulary.words, object)
        save_hdf5(ngrams, {NGRAM_COUNTS: counted.counts, "vocabulary": words})
    coverage = 100 * counts.n_covered / counts.n_tokens
    line = (
        f"wrote {output}: {counts.n_words:,} of {counts.n_distinct:,} distinct words "
        f"(--min_count {counts.min_count}), {coverage:.2f} % of {counts.n_tokens:,} tokens"
    )
    figures = {name.removeprefix("n_"): n for name, n in counts._asdict().items()}
    show({"output": output, **figures}, line, json)
