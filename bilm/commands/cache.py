"""List the models that were downloaded or unpacked, with sizes and sources, or remove some.

Examples:
  bilm cache --older_than 30
  bilm cache --prune nlpl:144
  bilm cache --prune '*' --older_than 90

Without flags, everything is listed: bytes, the day of the last use, and the name or URL that was
asked for. --prune takes such a name; in a pattern, * stands for anything. What is removed is
downloaded or unpacked again when it is next used. Its SHA-256 stays on record, so that other
content under the same name is noticed.

The cache is the folder that BILM_CACHE names, or else bilm in the user's cache folder.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from bilm.commands.flags import Flags

if TYPE_CHECKING:
    from bilm.storage.cache import Entry

TENSORFLOW = False


def define_flags(flags: Flags) -> None:
    flags.group("what to list")
    flags.number("older_than", "Only what was not used for so many days.", 0, default=0)
    flags.group("what to do")
    flags.text("prune", "Remove what has this name.", "NAME")
    flags.switch("json", "Print one JSON object.")


def main(args: Namespace) -> None:
    import json

    from bilm.errors import BilmError
    from bilm.storage.cache import cache_folder, entries, remove

    found = entries("*" if args.prune is None else args.prune, args.older_than)
    if args.prune is not None:
        if not found:
            raise BilmError(f"{args.prune}: nothing of that name in {cache_folder()}")
        remove(found)
    if args.json:
        print(json.dumps([described(entry) for entry in found], indent=2, ensure_ascii=False))
        return
    for entry in found:
        print(f"{entry.n_bytes:>15,}  {day(entry)}  {'  '.join(entry.names)}")
    removed = " removed" if args.prune is not None else ""
    print(f"{sum(entry.n_bytes for entry in found):>15,}  bytes{removed} in {cache_folder()}")


def described(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON has it."""
    names = list(entry.names)
    return {
        "folder": str(entry.folder), "names": names, "bytes": entry.n_bytes, "used": day(entry),
    }  # fmt: skip


def day(entry: Entry) -> str:
    """Return the day when an entry was last used."""
    import time

    return time.strftime("%Y-%m-%d", time.gmtime(entry.used))
