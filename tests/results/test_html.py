import base64
import hashlib

import jinja2
import pytest

from genenv_jax.results.browse import Browser
from genenv_jax.results.html import render
from genenv_jax.results.notebook import part
from genenv_jax.results.tables import Table
from tests.results.synthetic import ATTACK, Page


def test_pages_load_nothing_and_run_no_script():
    page = Page(render("base.html", title=ATTACK))
    page.check_harmless(images=0)
    (policy,) = [attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs]
    assert policy.split("; ") == [
        "default-src 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_the_policy_allows_the_pages_own_script_and_no_other():
    evaluation = {"facts": [], "settings": "", "intervals": "", "splits": {}, "verdicts": ([], {}, [])}
    page = Page(render("evaluation.html", title="t", answers=Browser("tasks", [], [], 0), **evaluation))
    (policy,) = [attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs]
    digest = base64.b64encode(hashlib.sha256(page.within("script").encode()).digest()).decode()
    assert f"; script-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


def test_parts_of_pages_escape_what_they_show(tmp_path):
    Page(part("facts_table", [(ATTACK, ATTACK)])).check_harmless(images=0)
    page = Page(part("table", Table(ATTACK, ("name", ATTACK), [(ATTACK, 1.5)], ATTACK)))
    page.check_harmless(images=0)
    cells = [attrs.get("class") for tag, attrs in page.tags if tag in ("th", "td")]
    assert cells == [None, "n", None, "n"] and page.within("td").endswith("1.5")
    (tmp_path / "figure.png").write_bytes(b"\x89PNG")
    page = Page(part("figure_grid", [(tmp_path / "figure.png", ATTACK)]))
    page.check_harmless(images=1)
    (image,) = [attrs for tag, attrs in page.tags if tag == "img"]
    assert image["src"] == "data:image/png;base64,iVBORw==" and "<script>" in image["alt"]


def test_a_name_that_is_missing_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render("base.html")
