import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.commands import ROOT, load
from tests.documented.blocks import blocks


def test_the_settings_page_is_what_the_code_says():
    assert (ROOT / "docs/settings.md").read_text(encoding="utf-8") == load("docs/make_settings.py").page()


def test_code_fits_the_page():
    """A line of the site holds 108 characters, README.md on GitHub 98; a data set's record is one line."""
    for block in blocks():
        if block.page.endswith(".md") and block.language != "json":
            most = 98 if block.page == "README.md" else 108
            long = [line for line in block.text.splitlines() if len(line) > most]
            assert not long, f"{block.page}: {long[0]}"


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("material"), reason="mkdocs-material is not installed")
def test_the_site_is_built(tmp_path):
    """Strictly: a page that is in no menu, or a broken link or anchor, fails."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", tmp_path / "site"], cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    docs = ROOT / "docs"
    for page in {str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md")}:
        html = (tmp_path / "site" / page / "index.html").read_text(encoding="utf-8")
        # Nothing is loaded from other sites, and no link leads to a file of the checkout.
        assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=\"https?://", html), page
        assert "configs/" not in "".join(re.findall(r'href="([^"#]*)"', html)), page
    first = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "make quickstart" in re.sub("<[^>]+>", "", first)
    # Figures keep a readable width on any screen.
    assert re.search(r'src="quickstart.png" style="--width:\d+px"', first)
