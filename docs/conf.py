"""Settings of the documentation site: `make site`. Every warning is an error, so that a dead link fails."""

from pathlib import Path

from sphinx.application import Sphinx

project = "Multihead"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Multihead"
html_copy_source = False

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def adapt_links(_: Sphinx, name: str, content: list[str]) -> None:
    """Put the pages at the root of the repository on the site, and let links lead to them."""
    for file, page in PAGES.items():
        if page == f"{name}.md":
            content[0] = f"{(ROOT / file).read_text(encoding='utf-8')}\n{content[0]}".replace("](docs/", "](")
    for file, page in PAGES.items():
        content[0] = content[0].replace(f"](../{file})", f"]({page})").replace(f"]({file})", f"]({page})")


def setup(app: Sphinx) -> None:
    app.connect("source-read", adapt_links)
