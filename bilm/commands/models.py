"""`bilm models`: the published models that have a name."""

from __future__ import annotations

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import as_json, printable

NOTE = """
The names are values of MODEL in other commands. Any model of the NLPL repository also has the name
nlpl:NUMBER, and a model on the Hugging Face Hub has the name hf:OWNER/NAME[@REVISION]. --check
sends a HEAD request to each address and downloads nothing.
"""
AT_ONCE = 8  # number of concurrent requests


@command(tensorflow=False, notes=[NOTE])
@opt.group(
    "Models",
    opt.option("--language", opt.TEXT, "List only models of this language.", metavar="NAME"),
    opt.flag("--check", "Check whether each address works."),
)
@opt.json_option
def models(language: str | None, check: bool, json: bool) -> None:
    """List published models by language, with their addresses.

    Examples:
      bilm models --language Russian
      bilm models --check
    """
    from bilm.errors import BilmError
    from bilm.storage.finding.registry import MODELS, addresses

    wanted = (language or "").casefold()
    chosen = {n: m for n, m in MODELS.items() if wanted in ("", m.language.casefold())}
    if not chosen:
        known = ", ".join(sorted({model.language for model in MODELS.values()}))
        raise BilmError(f"{language}: no model of this language; expected one of {known}")
    by_language = sorted(chosen.items(), key=lambda item: item[1].language)
    asked = [place for _, model in by_language for place in addresses(model)]
    faults = _faults(asked) if check else {}
    rows = []
    for name, model in by_language:
        places = []
        for url, size in addresses(model):
            state = {"alive": not faults[url], "reason": faults[url] or None} if check else {}
            places.append({"url": url, "bytes": size, **state})
        facts = {key: value for key, value in model._asdict().items() if key != "versions"}
        rows.append({"name": name, **facts, "addresses": places})
    if json:
        print(as_json(rows, indent=2))
        return
    for row in rows:
        corpus = f": {row['corpus']}" if row["corpus"] else ""
        print(printable(f"{row['name']}  {row['language']}{corpus}"))
        for place in row["addresses"]:
            reason = faults.get(place["url"])
            shown = (f"dead ({reason})  " if reason else "alive  ") if check else ""
            print(printable(f"    {shown}{place['url']}"))


def _faults(asked: list[tuple[str, int | None]]) -> dict[str, str]:
    """Return the reason why each address does not work, or an empty string, by address."""
    from concurrent.futures import ThreadPoolExecutor

    from bilm.storage.finding.web import PATIENCE, fault
    from bilm.support.progress import progress

    with ThreadPoolExecutor(AT_ONCE) as pool, progress("check", "addresses", len(asked)) as shown:
        found = pool.map(lambda place: fault(place[0], place[1], PATIENCE), asked)
        return {url: reason for (url, _), reason in zip(asked, shown.over(found), strict=True)}
