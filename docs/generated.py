"""Parts of the documentation that are generated: API, commands, published models, navigation.

`python docs/generated.py` rewrites `which_elmo.md`, the only generated page that is committed.
"""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent

# Pages in the order of the navigation; a page may be the name of a glob pattern.
NAVIGATION = {
    "Start": ["embedding_only", "faq", "which_elmo", "when_not_to_use", "migration"],
    "Tutorials": [
        "tutorials/own_language",
        "tutorials/old_weights",
        "tutorials/tag_with_keras",
        "tutorials/two_periods",
        "tutorials/classify_csv",
    ],
    "Guides": [
        "training",
        "embedding",
        "usages",
        "change",
        "surprisal",
        "minimal_pairs",
        "filling",
        "models",
        "formats",
        "clients",
        "pytorch",
    ],
    "How to": [
        "resume",
        "sizes",
        "tokenization",
        "gpus",
        "clusters",
        "proteins",
        "operating",
        "reliability",
    ],
    "Explanations": ["how_it_works", "options"],
    "Reference": ["commands", "python", "api/commands", "api/index"],
    "Measurements": ["speed", "experiments"],
    "Project": ["architecture", "project/contributing", "project/changelog"],
}
# Files at the root of the repository, and the pages that show them.
ROOT_FILES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
# Pages whose details only the site has: the generated page, and the text of the link to it.
DETAILS = {
    "commands": ("api/commands.rst", "The help of every command"),
    "python": ("api/index.rst", "All modules, with signatures"),
}
MODULES = {  # module: what its page is about
    "bilm": "Embedding, scoring, training, vocabularies, export",
    "bilm.studies.usages": "Usages of words, change, maps",
    "bilm.studies.gaps": "Gaps of a text, memory of a training text",
    "bilm.studies.reading": "Surprisal of words and regions, minimal pairs",
    "bilm.elmo": "The Keras layer, with bilm-tf's names",
    "bilm.compat.bilm_tf": "bilm-tf's model, with its names",
    "bilm.data": "Vocabularies, batchers and data sets, with bilm-tf's names",
    "bilm.training": "Training, with bilm-tf's names",
    "bilm.training.source": "The model that fine-tuning starts from",
    "bilm.training.history": "The history of a run",
    "bilm.scoring.scorer": "Probabilities of sentences and words",
    "bilm.scoring.scores": "Scores, predicted distributions, substitutes",
    "bilm.scoring.perplexity": "Perplexity",
    "bilm.scoring.running_text": "Perplexity of running text",
    "bilm.storage.stored_model": "Stored models",
    "bilm.options": "Options of models and runs",
    "bilm.cluster": "Embedding on several machines",
    "bilm.integrations.vectorizer": "scikit-learn",
    "bilm.integrations.spacy_pipe": "spaCy",
    "bilm.compat.simple_elmo": "simple_elmo's interface",
    "bilm.compat.tfhub": "TensorFlow Hub's interface",
    "bilm.compat.manylangs": "ELMoForManyLangs' interface",
    "bilm.export.saved_model": "Export to SavedModel",
    "bilm.export.onnx": "Export to ONNX",
    "bilm.export.hdf5": "Export to HDF5",
    "bilm.layers.scalar_mix": "The weights of ELMo's layers",
    "bilm.errors": "Errors",
}
EVERYTHING = ["bilm.errors"]  # modules whose classes are all public


def connect(app) -> None:
    """Connect the functions below to the events of Sphinx."""
    from sphinx.search.en import SearchEnglish

    class SearchWithNumbers(SearchEnglish):
        """Also finds numbers of three digits, such as 261 and 262."""

        def word_filter(self, word: str) -> bool:
            return (word.isdigit() and len(word) == 3) or super().word_filter(word)

    app.add_search_language(SearchWithNumbers)
    app.connect("builder-inited", write_pages)
    app.connect("source-read", complete_page)
    app.connect("doctree-read", mark_long_code)
    app.connect("autodoc-process-docstring", plain_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", layer_signature)


def write_pages(app=None) -> None:
    """Write the generated pages; leave unchanged files alone, so that Sphinx does not read them."""
    write(HERE / "which_elmo.md", which_elmo())
    for source, target in ROOT_FILES.items():
        if target != "index.md":
            write(HERE / target, moved(ROOT / source, HERE / target))
    write(HERE / "api" / "commands.rst", commands_page())
    for name in MODULES:
        write(HERE / "api" / f"{name}.rst", module_page(name))
    listed = "".join(f"- :doc:`{name} <{name}>`: {about}\n" for name, about in MODULES.items())
    hidden = "".join(f"   {name}\n" for name in MODULES)
    write(
        HERE / "api" / "index.rst",
        f"{heading('Python interface')}{listed}\n.. toctree::\n   :hidden:\n\n{hidden}",
    )


def write(path: Path, text: str) -> None:
    """Write a file unless it already has this content."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def heading(text: str, mark: str = "=") -> str:
    """Return a heading in reStructuredText."""
    return f"{text}\n{mark * len(text)}\n\n"


# --- pages of the repository ---


def complete_page(app, name: str, source: list[str]) -> None:
    """Point links to files at the root to their pages; add links to generated pages, and the
    navigation to the start page."""
    folder = Path(name).parent
    up = "../" * len(folder.parts)
    for path, page in ROOT_FILES.items():
        source[0] = source[0].replace(f"]({up}../{path}", f"]({up}{page}")
    if name in DETAILS:
        target, text = DETAILS[name]
        source[0] += f"\n[{text}]({target})\n"
    if name == "index":
        for caption, pages in NAVIGATION.items():
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def mark_long_code(app, doctree) -> None:
    """Give the class `long` to code with a word that may be longer than a line on a phone."""
    from docutils import nodes

    for node in doctree.findall(nodes.literal):
        if max(map(len, node.astext().split()), default=0) > 36:
            node["classes"].append("long")


def moved(source: Path, target: Path) -> str:
    """Return the text of a page at the root, with links as they are from a page in `docs/`."""

    def link(match: re.Match) -> str:
        path = match[1]
        if path in ROOT_FILES:
            path = f"../{ROOT_FILES[path]}"
        elif path.startswith("docs/"):
            path = path.replace("docs/", "../", 1)
        else:
            path = f"../../{path}"
        return f"]({path}"

    return re.sub(r"\]\((?!https?:|#)([^)#]+)", link, source.read_text("utf-8"))


# --- published models ---


def which_elmo() -> str:
    """Return the page of published models by language, from the registry."""
    sys.path.insert(0, str(ROOT))
    from bilm.storage.finding.registry import MODELS

    table = ["| language | name | training text | size | verified | licence | addresses |"]
    table += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for model in sorted(MODELS.values(), key=lambda model: (model.language, model.name)):
        hosts = [host(url) for urls in model.addresses for url in urls]
        cells = (
            model.language,
            f"`{model.name}`",
            model.trained_on,
            f"{model.size / 1e6:,.0f} MB" if model.size else "-",
            "SHA-256" if model.sha256 else "no",
            model.licence or "-",
            ", ".join(dict.fromkeys(hosts)),
        )
        table.append(f"| {' | '.join(cells)} |")
    template = (HERE / "which_elmo.template").read_text("utf-8")
    return template.format(table="\n".join(table))


def host(url: str) -> str:
    """Return the host of a URL, or a name of the Hugging Face Hub."""
    return url if url.startswith("hf:") else url.split("/")[2]


# --- commands and modules ---


def commands_page() -> str:
    """Return the page with the help of every command."""

    def help_of(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bilm", *command, "--help"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    first = help_of()
    names = re.findall(r"^  ([a-z][a-z-]*)  ", first, re.MULTILINE)  # not --version
    with ThreadPoolExecutor(2) as pool:
        helps = [("bilm", first)]
        helps += zip([f"bilm {name}" for name in names], pool.map(help_of, names), strict=True)
    page = f"{heading('Commands')}The help texts of the program ``bilm``.\n\n"
    for name, text in helps:
        block = "\n".join(f"   {line}".rstrip() for line in text.splitlines())
        page += f"{heading(name, '-')}.. code-block:: text\n\n{block}\n\n"
    return page


def public_names(module) -> Iterator[str]:
    """Yield the public names of a module: its `__all__`, else what it defines."""
    if module.__name__ == "bilm":
        yield from dir(module)
    elif hasattr(module, "__all__"):
        yield from module.__all__
    else:
        for name, value in vars(module).items():
            defined = getattr(value, "__module__", None) == module.__name__
            if defined and not name.startswith("_") and (inspect.isclass(value) or callable(value)):
                yield name


def module_page(name: str) -> str:
    """Return the page of a module: each public name with its signature and docstring."""
    module = importlib.import_module(name)
    about = (inspect.getdoc(module) or "").split("\n\n")[0] if name != "bilm" else ""
    page = heading(name) + f"{about}\n\n".replace("`", "``") + f".. currentmodule:: {name}\n\n"
    for public in public_names(module):
        value = getattr(module, public)
        if name == "bilm" or not inspect.isclass(value):
            kind = "class" if inspect.isclass(value) else "function"
        else:
            kind = "exception" if issubclass(value, BaseException) else "class"
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue  # constants have no docstring
        first = name == "bilm" or value.__module__.startswith(name)
        no_index = "" if first and not shown_in_bilm(public, name) else "   :no-index:\n"
        page += f".. auto{kind}:: {name}.{public}\n{no_index}\n"
    return page


def shown_in_bilm(public: str, name: str) -> bool:
    """Return whether the page of `bilm` already describes a name."""
    import bilm

    return name != "bilm" and public in dir(bilm)


NAMES = "Returns|Raises|Yields|Attributes|Args|Fields|Inputs|Masking|Example"
ONE_LINE = re.compile(rf"^({NAMES}): (\S.*)$")
CODE = re.compile(r"^(Examples?):$")
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Fields):$")


def plain_docstring(app, what, name, obj, options, lines: list[str]) -> None:
    """Turn a docstring of this package into one that Sphinx reads without warnings.

    The package writes sections such as `Raises: DataError.` on one line, continues them with
    indented lines, and starts lists without a blank line before them.
    """
    text: list[str] = []
    rest = deque(lines)
    while rest:
        line = rest.popleft()
        one_line = ONE_LINE.match(line)
        if one_line:
            title, content = one_line.groups()
            text += ["", f"**{title}**: {escaped(content)}"]
            text += [escaped(more.strip()) for more in take_indented(rest, with_blank=False)]
            text.append("")
        elif CODE.match(line):
            text += ["", f"**{line[:-1]}**::", "", *take_indented(rest), ""]
        elif SECTION.match(line):
            text += ["", line, *map(escaped, take_indented(rest)), ""]
        else:
            text.append(escaped(line))
    lines[:] = with_separate_lists(text)


def take_indented(rest: deque[str], with_blank: bool = True) -> list[str]:
    """Remove the indented lines at the start of `rest` and return them, by default with blank
    lines."""
    taken = []
    while rest and (rest[0].startswith(" ") or (with_blank and not rest[0].strip())):
        taken.append(rest.popleft())
    return taken


def layer_signature(app, what, name, obj, options, signature, returns):
    """Return the signature of `__init__` for a Keras layer, whose `__new__` hides it."""
    if what == "class" and signature == "(*args, **kwargs)":
        from sphinx.util.inspect import signature as signature_of
        from sphinx.util.inspect import stringify_signature

        return stringify_signature(signature_of(obj.__init__, bound_method=True)), returns
    return None


def with_separate_lists(lines: list[str]) -> list[str]:
    """Return lines with a blank line before and after each list."""
    text: list[str] = []
    depth = None  # indentation of the list that the previous line belongs to
    for line in lines:
        indent = len(line) - len(line.lstrip())
        bullet = line.lstrip().startswith("- ")
        starts = bullet and depth is None
        ends = depth is not None and line.strip() and not bullet and indent <= depth
        if (starts or ends) and text and text[-1].strip():
            text.append("")
        if bullet:
            depth = indent
        elif ends or not line.strip():
            depth = None
        text.append(line)
    return text


def escaped(line: str) -> str:
    """Return a line with escaped stars, bars and final underscores, except in code."""
    pieces = line.split("`")  # every second piece is code
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"([*|]|_(?!\w))", r"\\\1", pieces[i])
    return "`".join(pieces)


if __name__ == "__main__":
    write(HERE / "which_elmo.md", which_elmo())
