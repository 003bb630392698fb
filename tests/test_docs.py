"""The pages of the documentation against the code: keys of options, published models, links."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from pages import blocks

import bilm
from bilm.commands.main import cli
from bilm.options import schema
from bilm.options.model_options import CharCnnOptions, LstmOptions, ModelOptions
from bilm.options.run_options import LEARNING_RATES, RunOptions

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="docs are not part of the package")


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated", DOCS / "generated.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["generated"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["generated"]


def keys_of(*classes):
    return {field.name: field for cls in classes for field in schema.keys(cls)}


def test_options_page_lists_every_key_with_its_default():
    page = (DOCS / "options.md").read_text("utf-8")
    expected = keys_of(RunOptions, ModelOptions, CharCnnOptions, LstmOptions)
    del expected["lexicon_encoder"]  # written by bilm; the page names it below the tables
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|([^|]*)\|", page, re.MULTILINE)
    found = {name: default.strip().strip("`") for name, _, default in rows}
    assert found.keys() == expected.keys()
    own_default = keys_of(RunOptions)
    for name, field in (expected | own_default).items():
        value = "" if field.default is schema.MISSING else field.default
        if isinstance(value, float):
            value = f"{value:g}"
        expected_text = value if isinstance(value, str) else json.dumps(value)
        assert found[name] == expected_text, name


def test_options_page_lists_every_optimizer():
    page = (DOCS / "options.md").read_text("utf-8")
    row = re.search(r"^\| `optimizer` \| ([^|]+) \|", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row[1])) == set(LEARNING_RATES)


def test_commands_page_lists_every_command():
    page = (DOCS / "commands.md").read_text("utf-8")
    listed = set(re.findall(r"^\| \[`bilm ([\w-]+)`\]", page, re.MULTILINE))
    assert listed == set(cli.list_commands(None))


def test_python_page_shows_every_public_name():
    page = (DOCS / "python.md").read_text("utf-8")
    used = {name for _, code in blocks("python", page) for name in re.findall(r"bilm\.(\w+)", code)}
    assert used == set(dir(bilm))


def test_page_of_published_models_is_current(generated):
    expected = generated.which_elmo()
    written = (DOCS / "which_elmo.md").read_text("utf-8")
    assert written == expected, "run: python docs/generated.py"


def test_architecture_page_lists_every_package():
    page = (DOCS / "architecture.md").read_text("utf-8")
    table = page.split("| package |")[1].split("\n\n")[0]
    first_cells = "".join(re.findall(r"^\| (.+?) \|", table, re.MULTILINE))
    listed = set(re.findall(r"`(\w+)/`", first_cells))
    assert listed == {path.parent.name for path in (ROOT / "bilm").glob("*/__init__.py")}


def test_files_named_by_the_architecture_page_exist():
    page = (DOCS / "architecture.md").read_text("utf-8")
    paths = re.findall(r"`([\w/]+/[\w.]*|\w+\.py)`", page)
    assert len(paths) > 40
    for path in paths:
        assert (ROOT / "bilm" / path).exists() or (ROOT / path).exists(), path


def test_navigation_contains_every_page(generated):
    listed = {page for pages in generated.NAVIGATION.values() for page in pages}
    built = {"project/contributing", "project/changelog", "api/commands", "api/index"}
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")}
    pages -= {name for name in pages if name.split("/")[0] in ("api", "project")} | {"index"}
    assert listed - built == pages


def test_links_of_root_pages_point_into_the_documentation(generated, tmp_path):
    source = tmp_path / "PAGE.md"
    source.write_text("[a](docs/faq.md#x) [b](CHANGELOG.md) [c](examples/demo.py) [d](https://e.f)")
    found = generated.moved(source, DOCS / "project" / "page.md")
    assert found == (
        "[a](../faq.md#x) [b](../project/changelog.md) [c](../../examples/demo.py) [d](https://e.f)"
    )


def test_version_for_citations_is_current():
    assert f"\nversion: {bilm.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
