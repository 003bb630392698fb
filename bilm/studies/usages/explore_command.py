"""`bilm explore`: maps of usages as a page or picture."""

from collections.abc import Sequence
from pathlib import Path

from bilm.commands import command, show
from bilm.commands import options as opt
from bilm.studies.usages.change_command import usages_option

NOTE = """
The ending of --output selects the form:
  .html            one page without network: hovering shows the sentence, the legend hides texts or
                   clusters, menus choose word, layer and colour, a table lists the selected usages
                   and those most similar to a chosen one. It contains plotly.js (5 MB)
  .png .svg .pdf   a picture of one word and one layer

Distances in a map are approximate: it shows two of many dimensions.
"""


@command(notes=[NOTE])
@opt.group(
    "Usages",
    usages_option,
    opt.option("--word", opt.TEXT, "A word; may be repeated.", "all words", multiple=True),
    opt.option("--max_usages", opt.Integer(2), "Maximum number of usages per word, drawn at "
               "random.", default=5000),
    opt.option("--seed", opt.Integer(0), "Seed of the sample and the clusters.", default=0),
)  # fmt: skip
@opt.group(
    "Picture",
    opt.option("--output", opt.FILE, "Page or picture to write.", required=True),
    opt.option("--layer", opt.Integer(0), "Number of the layer, first shown in a page.",
               "the highest"),
    opt.option("--color", opt.OneOf(["grouping", "cluster"]), "What colours mean in a picture.",
               default="grouping"),
    opt.option("--n_clusters", opt.Integer(2), "Number of clusters of k-means.", default=5),
)  # fmt: skip
@opt.json_option
def explore(
    usages: str, word: Sequence[str], max_usages: int, seed: int, output: str, layer: int | None,
    color: str, n_clusters: int, json: bool,
) -> None:  # fmt: skip
    """Draw maps of usages, as a page or picture.

    Requires the extra analysis.

    Examples:
      bilm explore --usages usages.parquet --output usages.html
      bilm explore --usages usages.parquet --word cell --color cluster --output cell.png
    """
    from bilm.errors import OptionsError
    from bilm.studies.usages.maps import write_page
    from bilm.studies.usages.pictures import draw_map
    from bilm.studies.usages.usages_file import UsagesFile

    file = UsagesFile(usages)
    words = list(dict.fromkeys(word)) or file.words
    is_page = Path(output).suffix.lower() == ".html"
    if not is_page and len(words) > 1:
        listed = ", ".join(words[:10]) + (", ..." if len(words) > 10 else "")
        raise OptionsError(f"a picture shows one word: choose one with --word; there are {listed}")
    usages_by_word = [file.read(name).sample(max_usages, seed) for name in words]
    if is_page:
        write_page(usages_by_word, output, layer, n_clusters, seed)
    else:
        draw_map(usages_by_word[0], output, layer, color, n_clusters, seed)
    n_usages = sum(map(len, usages_by_word))
    result = {"output": output, "words": words, "usages": n_usages}
    show(result, f"wrote {output}: {n_usages:,} usages", json)
