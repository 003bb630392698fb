"""`bilm models`: published models by language, and the models in the cache."""

import shutil

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import show

NOTE = """
Each name is a value of --model, such as bilm embed --model ru-news. Other names are nlpl:NUMBER for
the models of the NLPL repository and hf:OWNER/NAME for those of the Hugging Face Hub. A model is
downloaded when it is first used; if an address does not work, the next one is tried.

--cached lists the size in bytes and the name or URL of each downloaded or unpacked model. The cache
is the folder BILM_CACHE, by default bilm in the user's cache folder. Removed models are downloaded
or unpacked again when they are next used.
"""


@command(notes=[NOTE])
@opt.group(
    "Models",
    opt.flag("--cached", "List the downloaded and unpacked models instead."),
    opt.option("--remove", opt.TEXT, "Remove the cached models with this name or URL; * matches "
               "any text.", metavar="NAME"),
)  # fmt: skip
@opt.json_option
def models(cached: bool, remove: str | None, json: bool) -> None:
    """List published models by language.

    Examples:
      bilm models
      bilm models --cached
      bilm models --remove nlpl:144
    """
    from bilm.storage.finding.locate import packaged
    from bilm.storage.finding.registry import MODELS

    if cached or remove is not None:
        _show_cached(remove, json)
        return
    published = sorted(MODELS.values(), key=lambda model: model.language)
    lines = [f"{name}: part of the package" for name in packaged()]
    for model in published:
        notes = model.licence or "licence not stated"
        if not model.sha256:
            notes += "; unverified"
        lines.append(f"{model.name}: {model.language}, {model.trained_on}; {notes}")
    show([model._asdict() for model in published], "\n".join(lines), json, indent=2)


def _show_cached(pattern: str | None, json: bool) -> None:
    """List the entries of the cache, or remove those that match a pattern."""
    from bilm.errors import BilmError
    from bilm.storage.finding.cache import cache_folder, entries

    cached = entries(pattern or "*")
    if pattern is not None:
        if not cached and "*" not in pattern:
            raise BilmError(f"{pattern}: no model in {cache_folder()} has this name")
        for entry in cached:
            shutil.rmtree(entry.folder)

    rows = [{"folder": str(e.folder), "source": e.source, "bytes": e.n_bytes} for e in cached]
    lines = [f"{entry.n_bytes:>15,}  {entry.source}" for entry in cached]
    total = sum(entry.n_bytes for entry in cached)
    what = "bytes" if pattern is None else "bytes removed"
    lines.append(f"{total:>15,}  {what} in {cache_folder()}")
    show(rows, "\n".join(lines), json, indent=2)
