"""Configuration of the documentation, which `make docs` builds with Sphinx.

The pages are plain Markdown that a code host also shows, so navigation, generated pages and links
out of this folder are added here, not in the pages.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# For the processes that run the tutorials: this checkout, its commands, and a start-up file.
os.environ["PYTHONPATH"] = str(ROOT)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ["IPYTHONDIR"] = str(ROOT / "build" / "ipython")
startup = ROOT / "build" / "ipython" / "profile_default" / "startup"
startup.mkdir(parents=True, exist_ok=True)
shutil.copy(HERE / "shell_cells.py", startup)

import generated

import bilm

project, author, copyright = "bilm", "the authors of bilm", "the authors of bilm"
version = release = bilm.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]
templates_path: list[str] = []

# Markdown
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_links_external_new_tab = False

# Tutorials run once for each change of their text; `make clean` removes the results.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "tutorials")
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True

# API pages
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Fields", "params_style")]
default_role = "literal"  # docstrings write code in single backticks

# Appearance: nothing is loaded from another host.
html_theme = "furo"
html_title = f"bilm {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("search.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"


def setup(app: object) -> None:
    """Connect what `generated` adds to the pages."""
    generated.connect(app)
