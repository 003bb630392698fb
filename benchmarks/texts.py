"""Warnings of unusual text: their recall on faulty texts, and false alarms on clean ones.

`clean_texts.txt` has texts of languages and genres. `faulty_texts.jsonl` has a fault of one of them
per line; a `difference` is one only compared with that text as the text of a model.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from unittest.mock import patch

from bilm.data.profile import Profile
from bilm.data.shards import Shards
from bilm.errors import DataError

HERE = Path(__file__).parent
COPIES = 3  # of each text, because few words are no sign


def clean_texts() -> dict[str, str]:
    """Return the clean texts by their language or genre."""
    parts = HERE.joinpath("clean_texts.txt").read_text(encoding="utf-8").split("# ")[1:]
    return dict(part.split("\n", maxsplit=1) for part in parts)


def faulty_texts() -> Iterator[tuple[str, str, bytes, str]]:
    """Yield the kind of each fault, its name, the content of its file and the model's text."""
    clean = clean_texts()
    with HERE.joinpath("faulty_texts.jsonl").open(encoding="utf-8") as file:
        for entry in map(json.loads, file):
            content = entry.get("bytes", "").encode("latin-1") or entry["text"].encode()
            yield entry["kind"], entry["fault"], content, clean.get(entry.get("model"), "")


def warnings_of(content: bytes, model: str = "") -> list[str]:
    """Return the warnings of a file, or its error, if it is compared with a model's text."""
    sentences = [line.split() for line in model.splitlines()]
    profile = Profile.of(sentences) if sentences else None
    with tempfile.TemporaryDirectory() as folder, patch("absl.logging.warning") as warning:
        path = Path(folder, "text")
        path.write_bytes(content * COPIES)
        try:
            Shards([path]).examine(set(chain.from_iterable(sentences)), profile)
        except DataError as error:
            return [str(error)]
    return [call.args[-1] for call in warning.call_args_list]


def main() -> None:
    """Print what is missed, the recall of each kind of fault, and the false alarms."""
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for kind, fault, content, model in faulty_texts():
        is_found = bool(warnings_of(content, model))
        found[kind].append(is_found)
        if not is_found:
            print(f"missed: {kind}, {fault}")
    found["all"] = list(chain.from_iterable(found.values()))
    for kind, each_found in found.items():
        n = len(each_found)
        print(f"{kind}: {sum(each_found)} of {n}, {sum(each_found) / n:.2f}")
    alarms = {name: warnings_of(text.encode()) for name, text in clean_texts().items()}
    for name, warnings in alarms.items():
        for warning in warnings:
            print(f"false alarm: {name}: {warning}")
    print(f"false alarms: {sum(map(bool, alarms.values()))} of {len(alarms)} clean texts")


if __name__ == "__main__":
    main()
