"""Damaged AllenNLP models; none of them may execute code."""

import json
import random
import tarfile
import zipfile
from pathlib import Path

from allennlp_files import CONFIGURATION, OPTIONS, tensors, write_model
from fuzz_manylangs import write_changed
from fuzz_models import fresh, home
from fuzzing import damaged, expect, mutated
from stored_files import load_bilm

from bilm import Elmo, ElmoEmbedder
from bilm.commands.info import describe
from bilm.storage.stored_model import open_model

SENTENCES = [["The", "cat", "T\u00e9"], []]
EMBEDS = 0.05  # share of the models that are also embedded with, which takes a second


def copied(path: Path) -> Path:
    original = home() / "allennlp"
    if not original.exists():
        write_model(original)
    return fresh(original, path)


def try_state_dict(path: Path, rng: random.Random) -> None:
    """Change a state dict, which may contain a second ELMo."""
    folder, found = copied(path), tensors()
    if rng.random() < 0.1:
        found |= tensors(rng.choice(["a", "", "\x1b[31m\n", "x" * 300]))
    target = folder / "weights.th"
    write_changed(target, found, rng.random() < 0.5, rng)
    try_model(rng.choice([folder, target]), rng.random() < EMBEDS)


def try_text(path: Path, rng: random.Random) -> None:
    """Change the configuration and the options."""
    folder = copied(path)
    places = ["options.json", "elmo/options.json", "weights_options.json"]
    key = "fta/model.text_field_embedder.token_embedders.elmo.options_file"
    place = folder / rng.choice([*places, key])
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(OPTIONS))
    values = json.loads(json.dumps(CONFIGURATION))
    embedders = values["model"]["text_field_embedder"]["token_embedders"]
    embedders["elmo"]["options_file"] = rng.choice(
        ["elmo/options.json", "/a/options.json", "../options.json", "\0", "x" * 5000, "x" * 300, 3]
    )
    target, good = rng.choice([(place, OPTIONS), (folder / "config.json", values)])
    (folder / "config.json").write_text(json.dumps(values))
    if rng.random() < 0.8:
        target.write_text(json.dumps(mutated(good, rng)))
    if rng.random() < 0.3:
        target.write_bytes(damaged(target.read_bytes(), rng))
    try_model(folder, rng.random() < EMBEDS)


def try_archive(path: Path, rng: random.Random) -> None:
    """Change the members or the bytes of an archive."""
    folder, archive = copied(path), path.with_suffix(".tar.gz")
    names = {file.name: file.name for file in sorted(folder.iterdir()) if file.is_file()}
    if rng.random() < 0.5:
        victim = rng.choice(sorted(names))
        odd = ["../weights.th", "/x/weights.th", "a/weights.th", "a/b/c/weights.th", "x" * 300, ""]
        names[victim] = rng.choice([*odd, "WEIGHTS.TH", "config.json", "weights.th"])
    if rng.random() < 0.3:
        content = (folder / "weights.th").read_bytes()
        (folder / "weights.th").write_bytes(damaged(content, rng))
    if rng.random() < 0.5:
        archive = path.with_suffix(".zip")
        with zipfile.ZipFile(archive, "w") as file:
            for name, inside in names.items():
                file.write(folder / name, inside or "x")
    else:
        with tarfile.open(archive, rng.choice(["w", "w:gz"])) as file:
            for name, inside in names.items():
                file.add(folder / name, inside)
    if rng.random() < 0.5:
        archive.write_bytes(damaged(archive.read_bytes(), rng))
    try_model(archive, rng.random() < EMBEDS)


def try_model(source: Path, embeds: bool) -> None:
    expect(load_bilm, source)
    expect(lambda: describe(open_model(source)))
    if embeds:
        expect(lambda: ElmoEmbedder(source).embed_batch(SENTENCES))
        expect(lambda: Elmo(source, combine="stored").build())
    assert not (home() / "executed").exists(), source


def prepare() -> None:
    write_model(home() / "allennlp")
    try_model(home() / "allennlp", True)


KINDS = {"state_dict": try_state_dict, "text": try_text, "archive": try_archive}
