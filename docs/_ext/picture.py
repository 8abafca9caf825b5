"""The directive `picture NAME`: pictures/NAME-light and -dark, each where the page is that."""

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

PICTURES = Path(__file__).parents[1] / "pictures"
THEMES = ("light", "dark")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True}


class Picture(Directive):
    """Two images, of which furo shows one."""

    required_arguments = 1
    option_spec: ClassVar[Any] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        name, alt = self.arguments[0], self.options.get("alt")
        if not alt:
            raise ExtensionError(f"the picture {name} needs an :alt: for those who cannot see it")
        return [
            nodes.image(uri=f"/pictures/{file}", alt=alt, classes=[f"only-{theme}"])
            for theme, file in zip(THEMES, files_of(name), strict=True)
        ]


def files_of(name: str) -> list[str]:
    """The files of a picture, light and dark."""
    files = [file.name for theme in THEMES for file in PICTURES.glob(f"{name}-{theme}.*")]
    if len(files) != len(THEMES):
        raise ExtensionError(f"there must be one {name}-light and one {name}-dark in {PICTURES}")
    return files
