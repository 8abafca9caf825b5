"""The site: Markdown by MyST, the theme furo. `make docs` builds it without network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

from bridgerl import __version__  # noqa: E402

project = "bridgerl"
author = "The bridgerl authors"
project_copyright = author
release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "generated",
    "picture",
]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "_static"]
# Pages that are still to come leave a pattern empty.
suppress_warnings = ["toc.empty_glob"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"

# Formulas are drawn by KaTeX from _static: MathJax would come over the network. MyST and Sphinx
# mark formulas for MathJax; math.js hands them to KaTeX.
mathjax_path = "katex/katex.min.js"
myst_update_mathjax = False

smartquotes = False  # Flags begin with two dashes.

html_theme = "furo"
html_title = f"bridgerl {release}"
html_static_path = ["_static"]
html_css_files = ["katex/katex.min.css", "site.css"]
html_js_files = [("math.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp, .go"
