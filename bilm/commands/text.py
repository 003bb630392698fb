"""`bilm text`: a corpus of any form as one sentence per line."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from cloup.constraints import If, accept_none, constraint, require_all

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import print_table, show
from bilm.data.profile import TextSigns
from bilm.data.readers import Corpus, Reading, Record
from bilm.data.readers import text as convert
from bilm.data.text import matching_files

WORDS_NOTE = """
If a word of a list or of a CoNLL-U file contains blanks, it becomes several words; the log reports
the number of sentences with such words. --tokenize requires the extra spacy, Parquet the extra
parquet.
"""


@command(notes=[opt.INPUT_FORMS, WORDS_NOTE])
@opt.group(
    "Corpus",
    opt.text_input("Corpus: a file or a quoted pattern.", required=False),
    *opt.reading_options,
    opt.flag("--split_sentences", "Also split text into sentences; requires --tokenize."),
    opt.flag("--paragraph_per_line", "Let --split_sentences end sentences at ends of lines, too."),
    opt.flag("--surface", opt.OPTIONS["surface"]),
    opt.option("--output", opt.FILE_OR_URL, "Text file to write."),
    opt.option("--profile", opt.TEXT, "Instead of writing, print what the first words of these "
               "files consist of, and three sentences.", metavar="PATTERN"),
)  # fmt: skip
@constraint(If("profile", accept_none, require_all), ["input_", "output"])
@constraint(If("paragraph_per_line", require_all), ["split_sentences"])
@opt.json_option
def text(input_: str, output: str, profile: str | None, json: bool, **reading: Any) -> None:
    """Write a corpus as text, one sentence per line.

    Words are separated by blanks. Each row, sentence or line of the input becomes one line, also an
    empty one. --split_sentences first joins lines to paragraphs, which blank lines and headings
    separate. The output is compressed if its name ends with .gz, .bz2, .xz or .zst.

    Examples:
      bilm text --input reviews.csv --column text --tokenize en --output reviews.txt
      bilm text --input novel.txt --tokenize en --split_sentences --output novel_sentences.txt
      bilm text --input 'fr_*.conllu' --surface --output train.txt
      bilm text --profile train.txt
    """
    if profile:
        signs = TextSigns(profile)
        corpora = [Corpus(path, Reading(**reading), signs) for path in matching_files(profile)]
        _print_profile(signs, chain.from_iterable(corpora), json)
        return
    n_sentences, n_words = convert(input_, output, **reading)
    counts = {"output": output, "sentences": n_sentences, "words": n_words}
    show(counts, f"wrote {output}: {n_sentences:,} sentences, {n_words:,} words", json)


def _print_profile(signs: TextSigns, records: Iterator[Record], json: bool) -> None:
    """Print the profile of the first words, and the first sentences as they are read."""
    sentences = [record.words for record in islice(records, 3)]
    for _ in records:
        if signs.done:
            break
    found = signs.profile()
    if json:
        show(found._asdict() | {"sentences": sentences}, "", json)
        return
    print_table([("profile", str), ("value", str)], found.table().items())
    for words in sentences:
        print(repr(" ".join(words)))
