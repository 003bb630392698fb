"""`bilm change`: how much words differ between two groupings of usages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import Column, as_json, print_table, table

if TYPE_CHECKING:
    import pandas

    from bilm.analysis.change import Correlation

MEASURES = ("apd", "prt", "jsd_kmeans")
CORRELATIONS = [
    Column("measure", str), Column("layer", int), Column("Spearman", float),
    Column("95 % interval", str), Column("p", float), Column("words", int),
]  # fmt: skip
NOTE = """
Measures of the change of a word between the groupings A and B:
  apd              mean cosine distance between a usage in A and a usage in B
  prt              cosine distance between the mean vectors in A and in B
  jsd_kmeans       Jensen-Shannon divergence (bits) between the shares of clusters, by k-means

The table has a row per word and layer: word, layer, usages_A, usages_B (compared usages), count_A,
count_B (in the texts), per_million_A, per_million_B, log_ratio (binary logarithm of the ratio of
the frequencies), and for each measure m the columns m, m_low, m_high (bootstrap interval), m_p
(permutation test) and m_q (p-value adjusted over all words). It is printed, or written to --output.

A small p-value means that the usages in A and B differ in distribution. Texts of another topic,
genre or author differ, too: compare with words that are known not to change, and compare only words
of similar frequency.

--gold is stats_groupings.csv of DWUG (columns lemma and change_graded), or a file with word and
score on each line, such as graded.txt of SemEval-2020 task 1. Spearman's correlation is printed.
"""


@command(tensorflow=False, notes=[NOTE])
@opt.group(
    "Usages",
    opt.option("--usages", opt.FILE, "Table that bilm usages wrote.", required=True,
               metavar="PARQUET"),
    opt.option("--between", opt.List(opt.TEXT, 2), "Names of two groupings.", "the only two",
               metavar="A,B"),
    opt.option("--layers", opt.NUMBERS, "Numbers of layers, such as 1,2.", "all but layer 0"),
    opt.option("--tags", opt.List(opt.TEXT), "Parts of speech to keep, such as NOUN,VERB.", "all"),
    opt.flag("--no_proper_names", "Leave proper names out: words with the tag PROPN, or without "
             "tags, capitalized words inside a sentence."),
)  # fmt: skip
@opt.group(
    "Measures",
    opt.option("--measures", opt.List(opt.OneOf(MEASURES)), "Measures separated by commas: "
               f"{', '.join(MEASURES)}.", default="prt,apd,jsd_kmeans"),
    opt.option("--n_clusters", opt.Integer(2), "Number of clusters of k-means.", default=5),
    opt.option("--n_resamples", opt.Integer(0), "Number of resamples of intervals and tests; 0 for "
               "neither.", default=1000),
    opt.option("--seed", opt.Integer(0), "Seed of clusters and resamples.", default=0),
    opt.flag("--baselines", "Add the column ppmi: distances of counts of context words, without "
             "the biLM."),
)  # fmt: skip
@opt.group(
    "Results",
    opt.table_option,
    opt.option("--plot", opt.FILE, "Picture of the ranked words: .png, .svg or .pdf."),
    opt.option("--rank", opt.TEXT, "Measure that ranks the words of --plot.", "the first one"),
    opt.option("--gold", opt.FILE, "Gold scores to correlate with."),
    opt.option("--gold_column", opt.TEXT, "Column of the gold scores.", default="change_graded"),
    opt.flag("--json", "Print one JSON object."),
)  # fmt: skip
def change(
    usages: str, between: tuple[str, str] | None, layers: tuple[int, ...] | None,
    tags: tuple[str, ...] | None, no_proper_names: bool, measures: tuple[str, ...],
    n_clusters: int, n_resamples: int, seed: int, baselines: bool, output: str | None,
    plot: str | None, rank: str | None, gold: str | None, gold_column: str, json: bool,
) -> None:  # fmt: skip
    """Measure how much words differ between groupings.

    Requires the extra analysis.

    Examples:
      bilm change --usages usages.parquet --output change.csv --plot change.png
      bilm change --usages usages.parquet --between 1850,2000 --measures apd --no_proper_names
      bilm change --usages dwug_en.parquet \\
          --gold dwug_en/stats/opt/stats_groupings.csv
    """
    from bilm.analysis.change import Settings, correlations, measure_change, ppmi_distances
    from bilm.analysis.dwug import read_gold
    from bilm.analysis.pictures import draw_change
    from bilm.analysis.usages import UsagesFile
    from bilm.errors import OptionsError

    rank = rank or measures[0]
    if rank not in measures:
        raise OptionsError(f"--rank is {rank!r}, expected one of {', '.join(measures)}")
    scores = None if gold is None else read_gold(gold, gold_column)
    settings = Settings(
        measures, layers, between, n_resamples, n_clusters,
        None if tags is None else frozenset(tags), not no_proper_names, seed,
    )  # fmt: skip
    file = UsagesFile(usages)
    frame = measure_change(file, settings)
    compared = list(measures)
    if baselines:
        frame["ppmi"] = frame["word"].map(ppmi_distances(file, settings))
        compared.append("ppmi")
    columns = [Column(name, _type(frame, name)) for name in frame.columns]
    if output is not None or (scores is None and not json):
        with table(output, columns, [usages, gold]) as write:
            for row in frame.itertuples(index=False):
                write(tuple(row))
    if plot is not None:
        draw_change(frame, plot, rank)
    correlated: list[Correlation] = []
    if scores is not None:
        frame["abs_log_ratio"] = frame["log_ratio"].abs()
        correlated = correlations(frame, scores, [*compared, "abs_log_ratio"])
    if json:
        as_objects = [each._asdict() for each in correlated]
        print(as_json({"words": frame.to_dict("records"), "correlations": as_objects}))
    elif scores is not None:
        rows = (
            (c.measure, c.layer if c.layer is not None else "-", round(c.rho, 3),
             f"{c.low:.3f} to {c.high:.3f}", round(c.p, 4), c.n_words)
            for c in correlated
        )  # fmt: skip
        print_table(CORRELATIONS, rows)


def _type(frame: pandas.DataFrame, name: str) -> type:
    kind = frame[name].dtype.kind
    return {"i": int, "f": float}.get(kind, str)
