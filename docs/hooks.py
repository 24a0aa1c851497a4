"""Hooks of mkdocs: README.md is the first page, and links out of docs/ are names of files."""

import pathlib
import re

from mkdocs.structure.files import File

from genenv_jax.results.html import width


def on_files(files, config):
    """Adds the first page."""
    root = pathlib.Path(config.config_file_path).parent
    text = (root / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((?!https?:|docs/)", "](../", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown, page, **_):
    """A site has no configs/ or genenv_jax/ to link to."""
    out = "../" * (page.file.src_uri.count("/") + 1)
    return re.sub(rf"\[([^\]]+)\]\({re.escape(out)}[^)]*\)", r"\1", markdown)


def on_page_content(html, page, config, **_):
    """Tells site.css how wide a figure is whose text is 12 pixels high, as in a report."""

    def sized(image):
        path = pathlib.Path(config.docs_dir, page.url, image[1]).resolve()
        return f'{image[0]} style="--width:{width(path)}px"'

    return re.sub(r'<img alt="[^"]*" src="([^"]+\.png)"', sized, html)
