"""`bilm models`: published models by language, and whether their addresses work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import as_json, printable

if TYPE_CHECKING:
    from bilm.storage.finding.registry import Published

NOTE = """
Each name is a value of --model, such as bilm embed --model ru-news. Other names are nlpl:NUMBER for
the models of the NLPL repository and hf:OWNER/NAME for those of the Hugging Face Hub. A model is
downloaded when it is first used; if an address does not work, the next one is tried.

--check asks the server of each address for the size of the file, without downloading it. The exit
status is 1 if a model has no address that works.
"""
THREADS = 8


@command(tensorflow=False, notes=[NOTE])
@opt.group(
    "Models",
    opt.option("--language", opt.TEXT, "Name or code of a language, such as Russian or ru.", "all"),
    opt.flag("--check", "Check whether the addresses work."),
)  # fmt: skip
@opt.json_option
def models(language: str | None, check: bool, json: bool) -> int:
    """List published models by language.

    Examples:
      bilm models
      bilm models --language ru
      bilm models --check --json
    """
    from bilm.storage.finding.registry import matching, packaged

    found = matching(language)
    states = _states(found) if check else {}
    if json:
        print(as_json([_described(model, states) for model in found], indent=2))
    else:
        if language is None:
            for name in packaged():
                print(f"{name}: part of the package")
        for model in sorted(found, key=lambda model: model.language):
            print(printable("\n".join(_lines(model, states))))
    dead = [model for model in found if check and not _works(model, states)]
    return 1 if dead else 0


def _described(model: Published, states: Mapping[str, str]) -> dict:
    downloads = [
        [
            {
                "kind": file.kind.name, "size": file.size, "sha256": file.sha256,
                "addresses": [
                    {"url": url} | ({"state": states[url]} if states else {}) for url in file.urls
                ],
            }
            for file in files
        ]
        for files in model.downloads
    ]  # fmt: skip
    return {**model._asdict(), "downloads": downloads}


def _lines(model: Published, states: Mapping[str, str]) -> Sequence[str]:
    licence = model.licence or "licence not stated"
    lines = [f"{model.name}: {model.language}, {model.trained_on}; {licence}"]
    if not states:
        return lines
    return [*lines, *(f"  {states[url]}  {url}" for url in model.urls)]


def _states(models: Sequence[Published]) -> dict[str, str]:
    """Return, for each address, "works" or why it does not work."""
    from concurrent.futures import ThreadPoolExecutor

    from bilm.errors import WeightsError
    from bilm.storage.finding.web import head
    from bilm.support.progress import progress

    sizes = {
        url: file.size
        for model in models
        for files in model.downloads
        for file in files
        for url in file.urls
    }

    def state(url: str) -> str:
        try:
            size = head(url)
        except WeightsError as error:
            return f"does not work ({error})"
        if None not in (size, sizes[url]) and size != sizes[url]:
            return f"does not work (has {size:,} bytes, expected {sizes[url]:,})"
        return "works"

    with (
        ThreadPoolExecutor(THREADS) as pool,
        progress("checking", "addresses", len(sizes)) as shown,
    ):
        return dict(zip(sizes, shown.over(pool.map(state, sizes)), strict=True))


def _works(model: Published, states: Mapping[str, str]) -> bool:
    return any(
        all(any(states[url] == "works" for url in file.urls) for file in files)
        for files in model.downloads
    )
