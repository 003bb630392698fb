"""`bilm change`: how much words differ between two groupings of usages."""

from typing import Any

from bilm.commands import command, show, write_table
from bilm.commands import options as opt
from bilm.studies.usages.settings import DEFAULTS, LEVEL, MEASURES, MIN_USAGES, Settings

usages_option = opt.option(
    "--usages", opt.FILE, "Table that bilm usages wrote.", required=True, metavar="PARQUET"
)
TYPES = {"i": int, "f": float}  # by the kinds of pandas
NOTE = f"""
Measures of the change of a word between the groupings A and B:
  apd   {MEASURES["apd"].format("A", "B")}
  prt   {MEASURES["prt"].format("A", "B")}

The command prints a line for each word: changed; not shown to have changed; or too few usages, if A
or B has fewer than {MIN_USAGES}. A word has changed if the adjusted p-value of the first measure is
at most {LEVEL:g} and, with --controls, if the measure exceeds its control, its mean over random
splits of the same usages, more than for each control word. Without control words, a difference in
topic, genre or author also counts.

The table has a row per word, or per word and selected layer: answer, usages_A (compared usages),
count_A and per_million_A (in the text), proper_A (share of proper names), log_ratio (binary, of the
frequencies), ppmi (a baseline without a model), and for each measure m: m, m_same (its control),
m_low and m_high (interval), m_p (permutation test) and m_q (adjusted over all words).
"""


@command(notes=[NOTE])
@opt.group(
    "Usages",
    usages_option,
    opt.option("--between", opt.List(opt.TEXT, 2), "Names of two groupings.", "the only two",
               metavar="A,B"),
    opt.option("--layers", opt.NUMBERS, "Numbers of layers, such as 1,2.", "mean of LSTM layers"),
    opt.option("--tags", opt.List(opt.TEXT), "Parts of speech to keep, such as NOUN,VERB.", "all"),
    opt.flag("--no_proper_names", "Leave proper names out: words with the tag PROPN, or without "
             "tags, capitalized words inside a sentence."),
)  # fmt: skip
@opt.group(
    "Measures",
    opt.option("--measures", opt.List(opt.OneOf(MEASURES)), "Measures separated by commas; the "
               "first one decides.", default=",".join(MEASURES)),
    opt.option("--controls", opt.List(opt.TEXT), "Words of the table that did not change; other "
               "words must differ more.", "none", metavar="WORD,..."),
    opt.option("--n_resamples", opt.Integer(0), "Number of resamples of intervals and tests; 0 for "
               "neither.", default=DEFAULTS.n_resamples),
    opt.option("--seed", opt.Integer(0), "Seed of the resamples.", default=DEFAULTS.seed),
)  # fmt: skip
@opt.group(
    "Results",
    opt.table_option,
    opt.option("--plot", opt.FILE, "Picture of the words, ranked by the first measure: .png, "
               ".svg or .pdf."),
    opt.json_flag,
)  # fmt: skip
def change(
    usages: str, no_proper_names: bool, output: str | None, plot: str | None, json: bool, **how: Any
) -> None:
    """Measure how much words differ between groupings.

    Requires the extra analysis.

    Examples:
      bilm change --usages usages.parquet --output change.csv --plot change.png
      bilm change --usages usages.parquet --controls door,night --no_proper_names
      bilm change --usages usages.parquet --between 1850,2000 --measures prt
    """
    from bilm.studies.usages.change import in_words, measure_change
    from bilm.studies.usages.pictures import draw_change
    from bilm.studies.usages.usages_file import UsagesFile

    how = {name: value for name, value in how.items() if value is not None}
    settings = Settings(proper_names=not no_proper_names, **how)
    frame = measure_change(UsagesFile(usages), settings)
    if output is not None:
        columns = {name: TYPES.get(frame[name].dtype.kind, str) for name in frame.columns}
        write_table(output, columns, frame.itertuples(index=False), [usages])
    if plot is not None:
        draw_change(frame, plot, settings.measures[0])
    show({"words": frame.to_dict("records")}, "\n".join(in_words(frame, settings)), json)
