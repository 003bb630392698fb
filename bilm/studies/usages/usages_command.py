"""`bilm usages`: every usage of chosen words, with vectors."""

import os
import re
from collections.abc import Sequence
from typing import Any

import click
from cloup.constraints import If, IsSet, accept_none, constraint, require_any, require_one

from bilm.commands import command, show
from bilm.commands import options as opt

NOTE = """
--words is a file with one entry per line, and --word gives one entry:
  cell                   a form
  cell: cell cells       a name, and the forms of the word
  /organi[sz]e[sd]?/     a regular expression that must match a whole form
  organise: /organi.*/   a name for it

--input is a file or a quoted pattern, whose usages form a grouping such as a period. Its name is
that of the file without ending, or NAME in --input NAME=PATTERN. Give --input once per grouping;
texts of the same NAME form one grouping.

--dwug reads a data set in DWUG's layout instead: data/<lemma>/uses.csv, separated by tabs.

The table has a row per usage with the columns word, grouping, identifier, text, line (from 1),
position (from 0), sentence, form, lemma, tag, date, description and one vector per layer, layer_0
(independent of the context), layer_1, ... It is a Parquet file: read it with pandas.read_parquet,
or with bilm.studies.usages.read_usages. "bilm change" compares groupings, "bilm explore" draws
maps.

Fine-tune the model first, with "bilm finetune" on the texts of all groupings together
(docs/usages.md): this raises the correlation of "bilm change" with human judgments.
"""
NAMED = re.compile(r"([^=/\\]+)=(.+)")


@command(tensorflow=True, notes=[NOTE, opt.INPUT_FORMS, opt.MODEL_FORMS])
@opt.model_options()
@opt.group(
    "Words and texts",
    opt.option("--words", opt.FILE, "File with the words, one entry per line."),
    opt.option("--word", opt.TEXT, "A word; may be given several times.", multiple=True),
    opt.option("--input", opt.TEXT, "Text of a grouping; may be given several times.",
               dest="input_", multiple=True, metavar="[NAME=]PATTERN"),
    opt.option("--dwug", opt.FILE, "Data set in DWUG's layout.", metavar="FOLDER"),
    opt.flag("--ignore_case", "Ignore case when words are compared."),
    opt.flag("--lemma", "Compare the words with the lemmas of CoNLL-U instead of forms."),
    opt.option("--tags", opt.List(opt.TEXT), "Parts of speech of CoNLL-U to keep, such as "
               "NOUN,VERB.", "all"),
    *opt.reading_options,
)  # fmt: skip
@opt.group(
    "Table",
    opt.option("--output", opt.File(urls=False, endings=[".parquet"]), "Table to write (.parquet).",
               required=True),
    opt.option("--sample", opt.Integer(0), "Maximum number of usages per word and grouping, drawn "
               "at random; 0 keeps all.", default=1000),
    opt.option("--seed", opt.Integer(0), "Seed of the sample.", default=0),
    opt.option("--layers", opt.NUMBERS, "Numbers of the layers to store, such as 0,2.", "all"),
    opt.dtype_option,
    opt.precision_option,
)  # fmt: skip
@constraint(require_one, ["dwug", "input_"])
@constraint(If(~IsSet("dwug"), require_any), ["words", "word"])
@constraint(If("dwug", accept_none), ["ignore_case", "lemma", "tags", "column", "quoting"])
@opt.json_option
def usages(
    model: str, weights: str | None, vocab: str | None, words: str | None, word: Sequence[str],
    input_: Sequence[str], dwug: str | None, ignore_case: bool, lemma: bool,
    tags: tuple[str, ...] | None, tokenize: str | None, output: str, sample: int, seed: int,
    layers: tuple[int, ...] | None, dtype: str, precision: str, json: bool, **reading: Any,
) -> None:  # fmt: skip
    """Collect the usages of words in texts, with vectors.

    Requires the extra analysis.

    Examples:
      bilm usages --model novels-en --word cell --input then.txt --input now.txt \\
          --output cell.parquet
      bilm usages --model elmo --words targets.txt --input 1850=ccoha1.txt.gz \\
          --input 2000=ccoha2.txt.gz --sample 500 --output usages.parquet
      bilm usages --model novels-en --dwug dwug_en --output dwug_en.parquet --layers 0,2
    """
    from bilm.embedding import ElmoEmbedder
    from bilm.studies.usages.dwug import read_dwug
    from bilm.studies.usages.finding import find_usages, open_texts, parse_query, read_queries
    from bilm.studies.usages.usages_file import arrow, write_usages
    from bilm.support import protect

    # Errors before anything is computed.
    arrow()
    protect(output)
    queries = [] if words is None else read_queries(words)
    queries += [parse_query(text, "--word") for text in word]
    embedder = ElmoEmbedder(model, weights, vocab, precision=precision)
    embedder.selection("all" if layers is None else layers)
    embedder.signs.done = dwug is None  # the reader of a text warns of its signs

    if dwug is not None:
        names = [query.name for query in queries] or None
        collected = read_dwug(dwug, names, tokenize, sample or None, seed)
    else:
        patterns = _patterns(input_)
        texts = open_texts(patterns, embedder.stored.profile, tokenize=tokenize, **reading)
        collected = find_usages(
            texts, queries, ignore_case=ignore_case, lemma=lemma, tags=tags, sample=sample or None,
            seed=seed,
        )  # fmt: skip
    write_usages(collected, embedder, output, layers=layers, dtype=dtype)

    n_usages, counts = len(collected.usages), collected.description.counts
    lines = [f"wrote {output}: {n_usages:,} usages"]
    for name, by_grouping in counts.items():
        absent = [grouping for grouping, count in by_grouping.items() if not count]
        if absent:
            lines.append(f"{name}: no usages in {', '.join(absent)}")
    show({"output": output, "usages": n_usages, "counts": counts}, "\n".join(lines), json)


def _patterns(inputs: Sequence[str]) -> dict[str, list[str]]:
    patterns: dict[str, list[str]] = {}
    for text in inputs:
        if named := NAMED.fullmatch(text):
            name, pattern = named.groups()
        else:
            pattern = text
            name = os.path.basename(text).partition(".")[0].strip("*?") or text
            if name in patterns:
                raise click.UsageError(
                    f"two texts have the name {name!r}; name them, as in --input 1850={pattern}"
                )
        patterns.setdefault(name, []).append(pattern)
    return patterns
