"""`bilm text`: a corpus of any form as one sentence per line."""

from typing import Any

from cloup.constraints import If, constraint, require_all

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import show
from bilm.data.readers import text as convert

WORDS_NOTE = """
If a word of a list or of a CoNLL-U file contains blanks, it becomes several words; the log reports
the number of sentences with such words. --tokenize requires the extra spacy, Parquet the extra
parquet.
"""


@command(notes=[opt.INPUT_FORMS, WORDS_NOTE])
@opt.group(
    "Corpus",
    opt.text_input("Corpus: a file or a quoted pattern."),
    opt.column_option,
    opt.quoting_option,
    opt.bad_utf8_option,
    opt.tokenize_option,
    opt.flag("--split_sentences", "Also split text into sentences; requires --tokenize."),
    opt.flag("--paragraph_per_line", "Let --split_sentences end sentences at ends of lines, too."),
    opt.flag("--surface", opt.OPTIONS["surface"]),
    opt.option("--output", opt.FILE_OR_URL, "Text file to write.", required=True),
)  # fmt: skip
@constraint(If("paragraph_per_line", require_all), ["split_sentences"])
@opt.json_option
def text(
    input_: str, output: str, json: bool, **reading: Any
) -> None:  # fmt: skip
    """Write a corpus as text, one sentence per line.

    Words are separated by blanks. Each row, sentence or line of the input becomes one line, also an
    empty one. --split_sentences first joins lines to paragraphs, which blank lines and headings
    separate. The output is compressed if its name ends with .gz, .bz2, .xz or .zst.

    Examples:
      bilm text --input reviews.csv --column text --tokenize en --output reviews.txt
      bilm text --input novel.txt --tokenize en --split_sentences --output novel_sentences.txt
      bilm text --input 'fr_*.conllu' --surface --output train.txt
    """
    n_sentences, n_words = convert(input_, output, **reading)
    counts = {"output": output, "sentences": n_sentences, "words": n_words}
    show(counts, f"wrote {output}: {n_sentences:,} sentences, {n_words:,} words", json)
