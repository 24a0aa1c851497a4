import json

import pytest

from genenv_jax.results.pages import _epochs, write_run_page
from genenv_jax.results.runs import load_run
from tests.results.synthetic import ATTACK, Page, append, generation, hostile, run_of


@pytest.fixture
def page_of(tmp_path):
    """The page of a run without its figures."""

    def make(run):
        return Page(write_run_page(run, {}, tmp_path / "page.html").read_text("utf-8"))

    return make


def test_it_is_self_contained(reported):
    out, _ = reported
    page = Page((out / "report.html").read_text("utf-8"))
    images = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    assert len(images) == len(set(images)) == len(list(out.glob("*.png"))) == 7  # each figure once
    assert all(source.startswith("data:image/png;base64,") for source in images)


def test_it_shows_all_generations_with_what_they_are_filtered_by(run, page_of):
    items = [attrs for tag, attrs in page_of(run).tags if tag == "article"]
    assert [(int(i["data-epoch"]), i["data-verdict"], i["data-origin"]) for i in items] == [
        (task["epoch"], task["verdict"], "generated") for task in run.tasks
    ]
    rates = [None if i["data-phat"] == "" else float(i["data-phat"]) for i in items]
    assert rates == [task["p_hat"] for task in run.tasks]


def test_what_it_was_made_with_is_at_the_top(tmp_path):
    append(tmp_path, "metrics", {"step": 1})
    first = {"command": "genenv train a", "code": "jax 1", "tasks": {"eval/t/greedy/accuracy": 7}}
    again = {"command": "genenv train b", "settings": "config.seed = 1"}
    append(tmp_path, "timing", {"step": 0, "about": first}, {"step": 1, "about": again}, {"step": 2})
    run = load_run(tmp_path)
    assert run.about == first | again and run.sizes == {"eval/t/greedy/accuracy": 7}
    page = Page(write_run_page(run, {}, tmp_path / "page.html").read_text("utf-8"))
    assert page.within("td").startswith("epochs1commandgenenv train bcodejax 1")
    assert page.within("summary").startswith("1 setting differs from the defaults")


def test_an_epoch_leads_to_its_tasks(run, page_of):
    page = page_of(run)
    links = [attrs["data-to"] for tag, attrs in page.tags if tag == "a"]
    assert links == sorted({str(task["epoch"]) for task in run.tasks}, key=int)
    assert any(attrs.get("id") == "tasks" for tag, attrs in page.tags if tag == "h2")


def test_where_the_time_went(page_of):
    timing = [{"seconds/eval": 3.0, "seconds/total": 5.0, "seconds/generate": 2.0}] * 2
    page = page_of(run_of(timing=[*timing, {"programs/compiled": 4.0}]))
    cells = [data for tag, data in page.text if tag == "td"]
    at = cells.index("eval")
    assert cells[at : at + 6] == ["eval", "6.0", "60.0\xa0%", "generate", "4.0", "40.0\xa0%"]
    assert "4 programs were compiled" in page.within("p")


def test_answers_before_and_after_training(tmp_path, page_of):
    append(tmp_path, "metrics", {"step": 1})
    (tmp_path / "held_out").mkdir()
    for name, step, solved in (("before", 0, "b"), ("after", 7, "ab")):
        records = (
            {"step": step, "mode": "greedy", "task_id": t, "category": "c", "answer": f"{name}-{t}"}
            | {"request": f"what is {t}?", "reference": '[{"name": "x"}]', "success": t in solved}
            | {"reason": "unparsable", "valid": False, "ended": False}
            for t in "abc"
        )
        append(tmp_path / "held_out", name, *records)
    page = page_of(load_run(tmp_path))
    assert "after epoch 0 and after epoch 7" in page.within("p")
    texts = [data for tag, data in page.text if tag == "pre"]
    assert texts[:4] == ["what is a?", '[\n  {\n    "name": "x"\n  }\n]', "before-a", "after-a"]
    changes = [attrs["data-change"] for tag, attrs in page.tags if tag == "article"]
    assert changes == ["learnt", "never solved", "always solved"]
    assert "before: ✗ unparsable, cut off" in page.within("p")
    (tmp_path / "held_out" / "after.jsonl").write_text("damaged\n")
    assert "learnt" not in page_of(load_run(tmp_path)).within()


def test_a_page_of_many_long_generations_is_bounded(page_of):
    tasks = [generation(e, i, "empty", text=ATTACK * 100) for e in (1, 2) for i in range(400)]
    page = page_of(run_of(*tasks))
    assert len(page.source.encode()) < 4.2 * 2**20
    assert len([tag for tag, _ in page.tags if tag == "article"]) == 800  # the texts are shortened


def test_tables_strata_rejections_and_configuration(run, page_of):
    page = page_of(run)
    assert page.within("h1") == "GenEnv: quickstart"
    assert page.within("td").startswith("benchmarkembeddedseed0epochs8 of 8")
    of = {"epochs": 9, "rollouts": 5}
    for done, text in ((4, "1 of 9, not finished"), (6, "1, ended by config.rollouts = 5")):
        assert _epochs(run_of(config=of, metrics={0: {}, 1: {"rollouts/total": done}})) == text
    assert "in_distribution/greedy/depth_2" in page.within("td")
    cells = [data for tag, data in page.text if tag == "td"]
    for verdict in {task["verdict"] for task in run.tasks}:
        count = sum(task["verdict"] == verdict for task in run.tasks)
        assert cells[cells.index(verdict) + 1] == f"{count}"
    assert '"k_min": 0.1' in page.within("pre")


def test_what_was_not_recorded(page_of):
    assert page_of(run_of()).within("p").count("not recorded") == 3


def test_text_of_a_model_is_shown_and_does_nothing(tmp_path):
    workdir = tmp_path / "<script>alert(1)<&"
    workdir.mkdir()
    metrics = ("generated/rejected/", "eval/test/greedy/", "eval/test/<script>/")
    record = {f"{name}{hostile('', 'metric')}": 1.0 for name in metrics}
    append(workdir, "metrics", record | {"step": 1, "generated/count": 2})
    config = hostile({"benchmark": {"name": ""}, "seed": ""}, "config")
    (workdir / "config.json").write_text(json.dumps(config))
    rejected = generation(1, 1, "duplicate", detail="copy of g1-0")
    task = hostile(generation(1, 0, p_hat=0.5), "task")
    trace = {"epoch": 1, "task_id": task["task"]["id"], "reward": 1.0, "success": True}
    append(workdir, "tasks", task)
    append(workdir, "d_train", trace | {"answer": hostile("", "answer")})
    append(workdir, "tasks", hostile(rejected, "rejected"))
    (tmp_path / "p_hat.png").touch()
    run, figures = load_run(workdir), {"p_hat": tmp_path / "p_hat.png"}
    page = Page(write_run_page(run, figures, tmp_path / "page.html").read_text("utf-8"))
    page.check_harmless(images=1, scripts=1)
    assert workdir.name in page.within("title") and workdir.name in page.within("h1")
    places = ("id", "seed_id", "text", "verdict", "task.messages.role", "task.messages.content")
    for place in (
        *("config.benchmark.name", "config.seed", "metric"),
        *(f"task.{place}" for place in (*places, "task.tools.name")),
        *("rejected.verdict", "rejected.detail", "rejected.text", "answer"),
    ):
        assert f"[{place}]" in page.within(), place


DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    "changes",
    [
        {"task": None},
        {"task": []},
        {"task": {"messages": "text", "tools": {"a": 1}, "answer": None}},
        {"task": {"messages": [1, None, {"role": []}], "tools": None}},
        {"task": {"messages": 3, "tools": 3}},
        {"task": {"messages": [{"role": "x" * 10**6, "content": "x" * 10**6}] * 9}},
        {"text": None, "id": None, "seed_id": [1]},
        {"p_hat": "0.5"},
        {"p_hat": 10**400},
        {"attempts": "8", "successes": True, "r_env": [], "weight": {}},
        {"verdict": None},
        {"verdict": ["accepted"]},
        {"text": "x" * 10**6, "id": "x" * 10**6, "seed_id": "x" * 10**6},
        {"verdict": "x" * 10**6, "detail": "x" * 10**6, "text": "x" * 10**6},
        {"text": json.loads(DEEP), "id": json.loads(DEEP), "task": {"answer": json.loads(DEEP)}},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_records_of_any_shape_give_a_bounded_page(tmp_path, page_of, changes):
    append(tmp_path, "metrics", {"step": 1})
    append(tmp_path, "tasks", generation(1, 0, p_hat=0.5) | changes)
    assert len(page_of(load_run(tmp_path)).within()) < 60_000


def test_rollouts_of_a_task(tmp_path, page_of):
    def trace(answer, reward, epoch=1, task_id="g1-0"):
        record = {"epoch": epoch, "task_id": task_id, "answer": answer, "reward": reward}
        return record | {"success": reward == 1} | ({"reason": "wrong"} if reward == 0.5 else {})

    append(tmp_path, "metrics", {"step": 1})
    append(tmp_path, "tasks", generation(1, 0, p_hat=0.2, attempts=16))
    append(tmp_path, "d_train", trace("replayed", 1, epoch=2), trace("another's", 1, task_id="g"))
    append(tmp_path, "d_train", trace("four", 0.5), trace("five", 1), trace("five", 1))
    append(tmp_path, "d_train", *[trace(f"alone {i}", 0) for i in range(9)])
    page = page_of(load_run(tmp_path))
    cells = [data.strip() for tag, data in page.text if tag in ("td", "pre", "span") and data.strip()]
    alone = [cell for i in range(6) for cell in ("1", "✗ 0", f"alone {i}")]
    shown = ["2", "✓ 1", "five", "1", "✗ 0.5", "wrong", "four", *alone, "3", "others", "4", "not valid"]
    assert cells[-len(shown) - 1 : -1] == shown  # the configuration is the last


def test_long_texts_and_tools_are_folded(page_of):
    task = generation(1, 0, p_hat=0.5, text="first line\n" + "x" * 1500)
    task["task"]["messages"] = [{"role": "user", "content": task["text"]}] * 10
    page = page_of(run_of(task))
    summaries = "".join(data for tag, data in page.text if tag == "summary")
    assert summaries.count("first line") == 8 and "1 tool: add" in summaries
    assert page.within("span").count("1,511 characters") == 9  # as the simulator wrote it, too
    assert "and 2 more messages" in page.within("p")


TRACE = {"epoch": 1, "task_id": "g1-0", "answer": "a", "reward": 0.0, "success": False}


@pytest.mark.parametrize(
    "traces",
    [
        [TRACE | {"task_id": ["g1-0"]}],
        [TRACE | {"epoch": {}}],
        [TRACE | {"answer": None, "success": "yes"}],
        [TRACE | {"answer": json.loads(DEEP), "reward": "1"}],
        [TRACE | {"reason": ["x" * 10**6]}],
        [TRACE | {"answer": "x" * 10**6, "reward": 10**400}],
        [TRACE | {"answer": str(i) + "x" * 10**5} for i in range(100)],
    ],
    ids=lambda traces: str(traces[0])[:100],
)
def test_traces_of_any_shape_give_a_bounded_page(tmp_path, page_of, traces):
    append(tmp_path, "d_train", *traces)
    text = page_of(run_of(generation(1, 0, p_hat=0.5), workdir=tmp_path)).within()
    assert "rollouts" in text and "rollouts: not recorded" not in text
    assert len(text) < 60_000


@pytest.mark.parametrize("content", [None, b"damaged\n", b"\xff\n", b"[1]\n", b"9" * 9000 + b"\n"])
def test_traces_that_cannot_be_read(tmp_path, page_of, content):
    if content is not None:
        (tmp_path / "d_train.jsonl").write_bytes(json.dumps(TRACE).encode() + b"\n" + content)
    text = page_of(run_of(generation(1, 0, p_hat=0.5), workdir=tmp_path)).within()
    assert "rollouts: not recorded, or D_train is damaged" in text
    assert "Compute (0 + 3) * 2" in text


def test_values_nested_too_deeply_give_a_page(page_of):
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    record = generation(1, 0, p_hat=0.5) | {"id": deep}
    record["task"]["answer"] = deep
    assert page_of(run_of(record)).within().count("(nested too deeply)") == 2
    while deep:  # so that freeing it does not recurse
        deep = deep.pop()
