"""`bilm cache`: downloaded and unpacked models."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import as_json, printable

if TYPE_CHECKING:
    from bilm.storage.finding.cache import Entry

NOTE = """
The command lists the size in bytes, the day of the last use, and the name or URL of each model.
Removed models are downloaded or unpacked again when they are next used. Their SHA-256 remains
recorded, so that a changed download is detected. The cache is the folder that the environment
variable BILM_CACHE names, by default bilm in the user's cache folder.
"""


@command(tensorflow=False, notes=[NOTE])
@opt.group(
    "Entries",
    opt.option("--older_than", opt.Number(0), "List or remove only entries unused for at least N "
               "days.", default=0, metavar="N"),
    opt.option("--prune", opt.TEXT, "Remove the entries with this name; * matches any text.",
               metavar="NAME"),
)  # fmt: skip
@opt.json_option
def cache(older_than: float, prune: str | None, json: bool) -> None:
    """List downloaded and unpacked models, or remove some.

    Examples:
      bilm cache --older_than 30
      bilm cache --prune nlpl:144
      bilm cache --prune '*' --older_than 90
    """
    from bilm.errors import BilmError
    from bilm.storage.finding.cache import cache_folder, entries, remove

    found = entries("*" if prune is None else prune, older_than)
    if prune is not None:
        if not found:
            raise BilmError(f"{prune}: no entry in {cache_folder()} matches this name")
        remove(found)
    if json:
        keys = ("folder", "names", "bytes", "used")
        rows = ((str(e.folder), list(e.names), e.n_bytes, _day(e)) for e in found)
        print(as_json([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return
    for entry in found:
        print(printable(f"{entry.n_bytes:>15,}  {_day(entry)}  {'  '.join(entry.names)}"))
    removed = " removed" if prune is not None else ""
    total = sum(entry.n_bytes for entry in found)
    print(printable(f"{total:>15,}  bytes{removed} in {cache_folder()}"))


def _day(entry: Entry) -> str:
    """Return the day of the last use."""
    return time.strftime("%Y-%m-%d", time.gmtime(entry.used))
