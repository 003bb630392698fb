"""`bilm neighbours`: words that are used like a word."""

from collections.abc import Sequence
from typing import Any

from cloup.constraints import If, constraint, require_all, require_one

from bilm.commands import command, start_tensorflow, write_table
from bilm.commands import options as opt

COLUMNS = {"similarity": float, "word": str, "line": int, "position": int, "sentence": str}
NOTE = """
The rows are other usages, the most similar to the mean vector of the word's usages first: the
cosine, the word as it occurs, the number of its line from 1, its position from 0, and the
sentence. --words lists each other word once, by its most similar usage.

--word and --exclude accept what a line of "bilm usages --words" does: cell, or the forms of a word
as in "cell: cell cells", or an expression such as /cells?/. Spelling variants and inflected forms
are often the nearest words: --exclude leaves them out.
"""


@command(tensorflow=False, notes=[NOTE, opt.INPUT_FORMS, opt.MODEL_FORMS])
@opt.model_options(help="Stored model, for --input.", required=False)
@opt.group(
    "Text or table",
    opt.option("--input", opt.FILE_OR_URL, "Text, whose vectors must fit in memory.",
               dest="input_", metavar="PATTERN"),
    *opt.reading_options,
    opt.option("--usages", opt.FILE, "Table that bilm usages wrote, instead of a text.",
               metavar="PARQUET"),
)  # fmt: skip
@opt.group(
    "Word",
    opt.option("--word", opt.TEXT, "The word.", required=True),
    opt.option("--line", opt.Integer(1), "Only the usages in this line.", "all"),
    opt.flag("--ignore_case", "Ignore case when words are compared."),
)
@opt.group(
    "Neighbours",
    opt.flag("--words", "List each other word once."),
    opt.option("--exclude", opt.TEXT, "Words to leave out; may be given several times.", "none",
               multiple=True),
    opt.option("--n", opt.Integer(1), "Number of rows.", default=10),
    opt.option("--layer", opt.Integer(0), "Number of the layer.", "the highest"),
    opt.table_option,
)  # fmt: skip
@constraint(require_one, ["input_", "usages"])
@constraint(If("input_", require_all), ["model"])
def neighbours(
    model: str | None, weights: str | None, vocab: str | None, input_: str | None,
    usages: str | None, word: str, line: int | None, ignore_case: bool, words: bool,
    exclude: Sequence[str], n: int, layer: int | None, output: str | None, **reading: Any
) -> None:  # fmt: skip
    """List the usages or words most similar to a word.

    Examples:
      bilm neighbours --model run --input text.txt --word bank --words
      bilm neighbours --model novels-en --input story.txt --word cell --line 12
      bilm neighbours --usages usages.parquet --word cell --exclude /cells?/ --output near.csv
    """
    from bilm.embedding import ElmoEmbedder
    from bilm.studies.usages.finding import matcher, open_texts, parse_query
    from bilm.studies.usages.neighbours import find_neighbours, words_of_text, words_of_usages
    from bilm.studies.usages.usages_file import read_usages

    forms = parse_query(word, "--word")
    left_out = [parse_query(entry, "--exclude") for entry in exclude]
    if words:
        left_out.append(forms)
    is_form = matcher([forms], ignore_case)
    is_excluded = matcher(left_out, ignore_case)
    if usages is not None:
        vectors, all_words = words_of_usages(read_usages(usages), layer)
    elif input_ is not None:
        start_tensorflow()
        embedder = ElmoEmbedder(model, weights, vocab)
        embedder.signs.done = True  # the reader of a text warns of its signs
        (corpora,) = open_texts({"text": input_}, embedder.stored.profile, **reading).values()
        sentences = [record.words for corpus in corpora for record in corpus]
        vectors, all_words = words_of_text(embedder, sentences, layer)
    nearest = find_neighbours(
        vectors,
        all_words,
        lambda usage: bool(is_form(usage.word)) and line in (None, usage.line),
        n,
        each_word_once=words,
        is_left_out=lambda usage: bool(is_excluded(usage.word)),
    )
    write_table(output, COLUMNS, nearest, [input_, usages])
