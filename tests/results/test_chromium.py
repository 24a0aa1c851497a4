"""The pages in a real browser: filters, paging, narrow screens, and text that tries to run."""

import contextlib
import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest

from genenv_jax.results.pages import write_evaluation_page, write_run_page
from genenv_jax.results.runs import load_run
from tests.results.synthetic import append, generation, hostile, write_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome"),
]

# Loads page.html into a frame of WIDTH pixels, runs STEPS there and leaves their result in the body.
HARNESS = """<!DOCTYPE html><body><script>
window.alert = () => { window.ran = true; };
const frame = document.createElement("iframe");
frame.style = "width: WIDTHpx; height: 900px; border: 0";
frame.src = "page.html";
frame.onload = () => {
  const page = frame.contentDocument;
  const shown = (selector) => [...page.querySelectorAll(selector)].filter((e) => e.offsetParent);
  const set = (key, value, bound = "") => {
    const control = page.querySelector(`form [data-of="${key}"]` + (bound && `[data-bound="${bound}"]`));
    control.value = value;
    control.dispatchEvent(new Event("change"));
    return page.querySelector("output").textContent;
  };
  const click = (text) => {
    [...page.querySelectorAll("button")].find((b) => b.textContent === text).click();
    return page.querySelector("output").textContent;
  };
  const found = { ran: () => Boolean(window.ran || frame.contentWindow.ran) };
  found.overflow = page.documentElement.scrollWidth - page.documentElement.clientWidth;
  found.steps = (() => { STEPS })();
  found.ran = found.ran();
  document.body.textContent = "FOUND" + JSON.stringify(found) + "END";
};
document.body.append(frame);
</script></body>"""


def visit(page, steps="return 0;", width=400):
    """(the steps' results with overflow and whether a script ran, lines of the console)."""
    directory = page.parent
    if page.name != "page.html":
        shutil.copy(page, directory / "page.html")
    (directory / "harness.html").write_text(HARNESS.replace("WIDTH", str(width)).replace("STEPS", steps))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with contextlib.ExitStack() as stack:
        handler = functools.partial(Quiet, directory=directory)
        server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
        profile = f"--user-data-dir={directory / 'profile'}"
        command = [CHROMIUM, *flags, profile, "--virtual-time-budget=10000", "--dump-dom"]
        address = f"http://127.0.0.1:{server.server_port}/harness.html"
        done = subprocess.run([*command, address], capture_output=True, text=True, timeout=120, check=True)
    (found,) = re.findall("FOUND(.*?)END", done.stdout, re.DOTALL)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "favicon" not in line]
    return json.loads(html.unescape(found)), console


@pytest.fixture
def evaluation(tmp_path):
    """The page of 45 tasks with two answers each, with hostile text everywhere."""
    results = {"about": {"benchmark": "b", "model": "m"}, "metrics": {}, "intervals": "95 %"}
    (tmp_path / "results.json").write_text(json.dumps(hostile(results, "about")))
    for i in range(45):
        right = {"success": True, "reason": "", "answer": f"right {i}" + hostile("", "a")}
        wrong = {"success": False, "reason": "unparsable", "valid": False, "answer": "w" * 3000}
        for mode, verdict in (("greedy", right if i < 25 else wrong), ("sampled", wrong)):
            record = {"mode": mode, "task_id": f"{i}" + hostile("", "t"), "category": f"c{i % 2}"} | verdict
            record |= {"request": hostile("", "q"), "reference": hostile("", "r")}
            append(tmp_path, "predictions", record)
    return write_evaluation_page(tmp_path)


def test_answers_are_filtered_and_paged(evaluation):
    steps = """
      const rows = () => shown("[data-row]").length, items = () => shown("article").length;
      return [
        page.querySelector("output").textContent, items(), rows(),
        click("next"), click("next"), items(), click("next"),
        set("category", "c1"), set("group", "correct"), items(), rows(),
        set("mode", "sampled"), items(), set("group", "form"), items(), rows(),
      ];"""
    found, console = visit(evaluation, steps)
    assert found["steps"] == [
        *("45 of 45, page 1 of 3", 20, 40),
        *("45 of 45, page 2 of 3", "45 of 45, page 3 of 3", 5, "45 of 45, page 3 of 3"),
        *("22 of 45, page 1 of 2", "12 of 45, page 1 of 1", 12, 12),
        *("0 of 45, page 1 of 1", 0, "22 of 45, page 1 of 2", 20, 20),
    ]
    assert (found["overflow"], found["ran"], console) == (0, False, [])


def test_generations_are_filtered(tmp_path):
    workdir = write_run(tmp_path / "run", epochs=3)
    append(workdir, "tasks", hostile(generation(3, 99, "duplicate"), "x"))
    run = load_run(workdir)
    page = write_run_page(run, {}, tmp_path / "page.html")
    steps = """
        page.querySelector('a[data-to="2"]').click();
        return [page.querySelector("output").textContent, set("verdict", "accepted"),
        set("phat", "0.5", "low"), set("phat", "0.6", "high"), shown("article").length];"""
    found, console = visit(page, steps)
    second = [task for task in run.tasks if task["epoch"] == 2]
    rates = [task["p_hat"] for task in second if task["verdict"] == "accepted"]
    near = sum(0.5 <= rate <= 0.6 for rate in rates)
    counts = [int(text.split()[0]) for text in found["steps"][:4]]
    assert counts == [len(second), len(rates), sum(rate >= 0.5 for rate in rates), near] and near
    assert found["steps"][4] == min(20, near)
    assert (found["overflow"], found["ran"], console) == (0, False, [])


def test_a_script_that_was_not_escaped_would_not_run(evaluation):
    page = evaluation.with_name("page.html")
    attack = "<script>parent.alert(1)</script><img src=x onerror='parent.alert(1)'>"
    text = evaluation.read_text().replace("<h2>Metrics</h2>", f"<h2>Metrics</h2>{attack}")
    page.write_text(text)
    found, console = visit(page)
    assert found["ran"] is False and "Content Security Policy" in "".join(console)
    page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text))
    assert visit(page)[0]["ran"] is True  # the test can fail


def test_without_scripts_it_is_a_plain_list(evaluation):
    page = evaluation.with_name("page.html")
    page.write_text(re.sub("<script>.*?</script>", "", evaluation.read_text(), flags=re.DOTALL))
    found, _ = visit(page, 'return [shown("article").length, shown("form").length];', width=1200)
    assert found["steps"] == [45, 0] and found["overflow"] == 0
