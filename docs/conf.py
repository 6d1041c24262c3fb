"""Tell Sphinx how to make a site of these pages: `make docs`. Warnings are errors."""

project = "ringcast"
author = "the ringcast developers"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "ringcast"
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist"]    # the glossary
myst_heading_anchors = 4                # links to headings, as in a repository's browser
