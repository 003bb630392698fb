"""`bilm models`: names by language, and the check of their addresses."""

import json

import pytest
from command_runs import assert_fails
from odd_server import serving

from bilm.storage.finding import registry
from bilm.storage.finding.download import WEIGHTS

pytestmark = pytest.mark.usefixtures("cache")


def test_models_lists_names_of_a_language(run_here):
    done = run_here("bilm models", "--language", "russian", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = [n for n, model in registry.MODELS.items() if model.language == "Russian"]
    assert [row["name"] for row in found] == expected and expected
    for row in found:
        (version,) = registry.MODELS[row["name"]].versions
        assert [place["url"] for place in row["addresses"]] == list(version[0].urls)
    text = run_here("bilm models").stdout
    for name, model in registry.MODELS.items():
        assert f"{name}  {model.language}" in text
    assert_fails(run_here("bilm models", "--language", "Elvish"), "Elvish", "Russian")


def test_models_check_prints_dead_and_alive_addresses(run_here, tmp_path, monkeypatch):
    with serving(tmp_path / "served") as address:
        size = (tmp_path / "served" / "weights.hdf5").stat().st_size
        good = f"{address}/weights.hdf5"
        bad = f"{address}/none.hdf5", "http://127.0.0.1:9/w.hdf5"
        lying = registry.File(WEIGHTS, (f"{address}/options.json",), size=size)
        files = registry.File(WEIGHTS, (*bad, good), size=size), lying
        model = registry.MODELS["small"]._replace(versions=(files,))
        monkeypatch.setattr(registry, "MODELS", {"tested": model})
        done = run_here("bilm models", "--check", "--json")
        text = run_here("bilm models", "--check").stdout
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    missing, refused, alive, other_size = row["addresses"]
    assert [p["alive"] for p in row["addresses"]] == [False, False, True, False]
    assert "404" in missing["reason"] and "refused" in refused["reason"]
    assert alive["url"] == good and alive["reason"] is None
    assert f"expected {size:,}" in other_size["reason"]
    assert f"alive  {good}" in text and f"{bad[0]}" in text and text.count("dead (") == 3
