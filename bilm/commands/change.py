"""`bilm change`: how much words differ between two groupings of usages."""

from __future__ import annotations

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import as_json, write_table

MEASURES = ("apd", "prt")
TYPES = {"i": int, "f": float}  # by the kinds of pandas
NOTE = """
Measures of the change of a word between the groupings A and B:
  apd              mean cosine distance between a usage in A and a usage in B
  prt              cosine distance between the mean vectors in A and in B
prt is a difference from the mean over random splits of the usages: 0 without change.

The table has a row per word, or per word and selected layer: cite ("yes", or why not to report the
row), usages_A (compared usages), count_A and per_million_A (in the text), log_ratio (binary
logarithm of the ratio of the frequencies), ppmi (a baseline without a model: distance of counts of
context words), apd_same (apd without change), and for each measure m the columns m, m_low, m_high
(bootstrap interval), m_p (permutation test) and m_q (p-value adjusted over all words).

A small p-value means that the usages in A and B differ in distribution, perhaps in topic, genre or
author: compare with words of similar frequency that are known not to change.
"""


@command(notes=[NOTE])
@opt.group(
    "Usages",
    opt.usages_option,
    opt.option("--between", opt.List(opt.TEXT, 2), "Names of two groupings.", "the only two",
               metavar="A,B"),
    opt.option("--layers", opt.NUMBERS, "Numbers of layers, such as 1,2.", "mean of LSTM layers"),
    opt.option("--tags", opt.List(opt.TEXT), "Parts of speech to keep, such as NOUN,VERB.", "all"),
    opt.flag("--no_proper_names", "Leave proper names out: words with the tag PROPN, or without "
             "tags, capitalized words inside a sentence."),
)  # fmt: skip
@opt.group(
    "Measures",
    opt.option("--measures", opt.List(opt.OneOf(MEASURES)), "Measures separated by commas.",
               default=",".join(MEASURES)),
    opt.option("--n_resamples", opt.Integer(0), "Number of resamples of intervals and tests; 0 for "
               "neither.", default=1000),
    opt.option("--seed", opt.Integer(0), "Seed of the resamples.", default=0),
)  # fmt: skip
@opt.group(
    "Results",
    opt.table_option,
    opt.option("--plot", opt.FILE, "Picture of the ranked words: .png, .svg or .pdf."),
    opt.option("--rank", opt.TEXT, "Measure that ranks the words of --plot.", "the first one"),
    opt.json_flag,
)  # fmt: skip
def change(
    usages: str, between: tuple[str, str] | None, layers: tuple[int, ...] | None,
    tags: tuple[str, ...] | None, no_proper_names: bool, measures: tuple[str, ...],
    n_resamples: int, seed: int, output: str | None,
    plot: str | None, rank: str | None, json: bool,
) -> None:  # fmt: skip
    """Measure how much words differ between groupings.

    Requires the extra analysis.

    Examples:
      bilm change --usages usages.parquet --output change.csv --plot change.png
      bilm change --usages usages.parquet --between 1850,2000 --measures apd --no_proper_names
      bilm change --usages dwug_en.parquet --layers 2 --output dwug_en.csv
    """
    from bilm.analysis.change import Settings, measure_change
    from bilm.analysis.pictures import draw_change
    from bilm.analysis.usages_file import UsagesFile
    from bilm.errors import require_one_of

    rank = rank or measures[0]
    require_one_of("--rank", rank, measures)
    selected_tags = None if tags is None else frozenset(tags)
    settings = Settings(
        measures, layers, between, n_resamples, selected_tags, not no_proper_names, seed
    )
    frame = measure_change(UsagesFile(usages), settings)
    if output is not None or not json:
        columns = {name: TYPES.get(frame[name].dtype.kind, str) for name in frame.columns}
        write_table(output, columns, frame.itertuples(index=False), [usages])
    if plot is not None:
        draw_change(frame, plot, rank)
    if json:
        print(as_json({"words": frame.to_dict("records")}))
