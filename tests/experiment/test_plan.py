import json

import pytest

from genenv_jax.config import default_config, flatten
from genenv_jax.experiment.plan import (
    DONE,
    compare_or_store,
    make_plan,
    nested,
    progress,
    run_dir,
    stored_plan,
)
from genenv_jax.results.suites import load_results
from tests.experiment.fake_main import write_lines, write_run
from tests.experiment.suites import BASE, arm, fake_suite, parsed


def changed(key, value):
    def change(suite):
        suite[key] = value

    return change


def test_arms_are_settings_on_top_of_the_base_and_the_overrides():
    overrides = {"curriculum.alpha": 0.25, "benchmark.seed_depths": (0.5, 0.5)}
    b = {"agent.group_size": 4, "benchmark.max_depth": 2}
    plan = make_plan(fake_suite(overrides=overrides, a={}, b=b))
    start = default_config()
    start.update({"epochs": 4, "model": {"path": "/no/such/model"}})
    start.benchmark.update({"name": "dial", "seed_depths": (0.5, 0.5)})
    start.curriculum.alpha = 0.25
    assert plan.configs["a"] == flatten(start.to_dict())
    start.agent.group_size, start.benchmark.max_depth = 4, 2
    assert plan.configs["b"] == flatten(start.to_dict())


def test_nested_is_the_inverse_of_flatten():
    assert nested({"a.b.c": 1, "a.d": (2,), "e": "x"}) == {"a": {"b": {"c": 1}, "d": (2,)}, "e": "x"}
    settings = default_config().to_dict()
    assert nested(flatten(settings)) == settings
    with pytest.raises(ValueError, match="config.a.b: a is a setting and not a group"):
        nested({"a": 1, "a.b": 2})


def test_arms_keep_their_order_and_flags_may_set_anything(tmp_path):
    (tmp_path / "suite.py").write_text(
        "from tests.experiment.suites import fake_suite\n"
        "def get_config():\n"
        "    return fake_suite(overrides={'rollouts': 10}, z={'agent.group_size': 4}, a={}, k={})\n"
    )
    suite = parsed(
        f"--config={tmp_path / 'suite.py'}", "--config.seeds=(100,101)", "--config.overrides.rollouts=6400",
        "--config.overrides.curriculum.alpha=0.3", "--config.overrides.benchmark.max_depth=3",
        "--config.arms.z.agent.group_size=8", "--config.bootstrap=150",
    )  # fmt: skip
    plan = make_plan(suite)
    assert list(plan.suite.arms) == list(plan.configs) == ["z", "a", "k"]
    assert plan.runs()[:4] == [("z", 100), ("a", 100), ("k", 100), ("z", 101)]
    assert plan.suite.overrides == {"rollouts": 6400, "curriculum.alpha": 0.3, "benchmark.max_depth": 3}
    assert plan.suite.arms["z"] == {"agent.group_size": 8} and plan.suite.bootstrap == 150


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("arms", {}), "config.arms is empty"),
        (changed("arms", {"a/b": {}}), "'a/b' names a directory"),
        (changed("arms", {"a": "a.py"}), "config.arms.a = 'a.py': expected settings"),
        (changed("arms", {"a": {"agent": {"groups": 1}}}), "config.arms.a: config.agent.groups = 1"),
        (changed("arms", {"a": {"agent": 3}}), "config.arms.a: config.agent = 3: expected a group"),
        (changed("arms", {"a": {"seed": 3}}), "config.arms.a: seed is set"),
        (changed("arms", {"a": {"benchmark": {"max_dept": 3}}}),
         "config.arms.a: config.benchmark.max_dept is not .* did you mean max_depth?"),
        (changed("base", "tests/no_such.py"), "config.base = .*no such file"),
        (changed("base", f"{BASE}:much"), "config.base.*takes 0 positional arguments"),
        (changed("seeds", (1, 1)), "config.seeds"),
        (changed("seeds", (-1,)), "config.seeds"),
        (changed("jobs", 0), "config.jobs = 0"),
        (changed("bootstrap", 1), "config.bootstrap = 1"),
        (changed("metric", "accuracy"), "config.metric = 'accuracy'"),
        (changed("metric", "eval/test/other/accuracy"), "a: config.metric = .*expected one of .*greedy"),
        (changed("strata", ""), "config.strata = ''"),
        (changed("contrasts", (("a", "c"),)), "config.contrasts: 'c': expected one of"),
        (changed("contrasts", (("a", "a"),)), "a pair of two arms"),
        (changed("contrasts", (("a", "b"), ("a", "b"))), "each only once"),
        (changed("overrides", {"epoch": 1}), "config.arms.a: config.epoch .* config.epochs?"),
        (changed("overrides", {"epochs": 0}), "evaluation.every and epochs must be positive"),
        (changed("overrides", {"curriculum": {"alpha": 2.0}}), "curriculum.alpha = 2.0"),
        (changed("overrides", {"seed": 4}), "seed is set"),
        (changed("overrides", {"agent": {"learning_rate": 0.1}}),
         "config.arms.a.agent.learning_rate: config.overrides sets it too"),
        (changed("bootstraps", 3), "config.bootstraps is not .* did you mean config.bootstrap?"),
        (lambda suite: suite.__delattr__("jobs"), "config.jobs is missing"),
    ],
)  # fmt: skip
def test_an_unfit_suite_is_refused_by_name(change, message):
    suite = fake_suite()
    with suite.unlocked(), suite.ignore_type():
        change(suite)
    with pytest.raises(ValueError, match=message):
        make_plan(suite)


def test_a_marker_alone_does_not_make_a_run_finished(tmp_path):
    plan, directory = make_plan(fake_suite()), run_dir(tmp_path, "b", 3)
    write_run(directory, 0.1, 3)
    assert not plan.is_done(tmp_path, "b", 3)
    (directory / DONE).write_text("{}")
    assert plan.is_done(tmp_path, "b", 3)
    path = directory / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])  # the last line is torn
    assert not plan.is_done(tmp_path, "b", 3) and progress(directory)[0] == 3


@pytest.mark.parametrize("limit", ["rollouts", "tokens"])
def test_the_share_of_a_run_is_of_its_epochs_or_of_its_limit(tmp_path, limit):
    plan = make_plan(fake_suite())
    budget = make_plan(fake_suite(overrides={limit: 1000}))
    assert plan.share("a", tmp_path) == 0 and progress(tmp_path) == (None, {"tokens": 0, "rollouts": 0})
    lines = [{"step": 0}, {"step": 1, f"{limit}/total": 700}]
    write_lines(tmp_path, lines)
    assert (plan.share("a", tmp_path), budget.share("a", tmp_path)) == (0.25, 0.7)
    write_lines(tmp_path, [*lines, {"step": 2, f"{limit}/total": 1200}])
    assert (plan.share("a", tmp_path), budget.share("a", tmp_path)) == (0.5, 1)
    (tmp_path / "metrics.jsonl").write_text("damaged\n")
    assert plan.share("a", tmp_path) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("seeds", (3, 6)), r"config.seeds = \[3, 5\], but now it is \[3, 6\]"),
        (changed("contrasts", (("a", "b"),)), "config.contrasts = "),
        (changed("arms", {"b": nested(arm(0.1))}), r"config.arms = \['a', 'b'\]"),
        (changed("arms", {"a": nested(arm(0.31)), "b": nested(arm(0.1))}),
         "config.arms.a.agent.learning_rate = 0.3, but now it is 0.31"),
        (changed("overrides", {"epochs": 3}), "config.overrides.epochs = None, but now it is 3"),
    ],
)  # fmt: skip
def test_other_settings_are_refused_by_name(tmp_path, change, message):
    compare_or_store(make_plan(fake_suite()), tmp_path)
    suite = fake_suite()
    change(suite)
    with pytest.raises(ValueError, match=message):
        compare_or_store(make_plan(suite), tmp_path)
    suite = fake_suite()
    suite.jobs = 2
    compare_or_store(make_plan(suite), tmp_path)


def test_finished_runs_are_read_against_another_cost(tmp_path):
    """Allowed where nothing is run; runs that would continue are refused."""
    compare_or_store(make_plan(fake_suite()), tmp_path)
    suite = fake_suite()
    suite.cost = "rollouts" if suite.cost == "tokens" else "tokens"
    compare_or_store(make_plan(suite), tmp_path, store=False)
    with pytest.raises(ValueError, match="config.cost = "):
        compare_or_store(make_plan(suite), tmp_path)


def test_an_edited_base_is_refused_by_its_setting(tmp_path):
    file, suite = tmp_path / "base.py", fake_suite()
    with open(BASE) as base:
        text = base.read()
    file.write_text(text)
    suite.base = str(file)
    compare_or_store(make_plan(suite), tmp_path / "suite")
    file.write_text(text.replace("config.epochs = 4", "config.epochs = 5"))
    with pytest.raises(ValueError, match=r"config.epochs of arm a = 4, but now it is 5"):
        compare_or_store(make_plan(suite), tmp_path / "suite")


def test_a_setting_that_is_gone_is_named(tmp_path):
    compare_or_store(make_plan(fake_suite()), tmp_path)
    stored = json.loads((tmp_path / "suite.json").read_text())
    stored["configs"]["a"]["gone"] = 3
    (tmp_path / "suite.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"config.gone of arm a = 3, but now there is no such setting"):
        compare_or_store(make_plan(fake_suite()), tmp_path)


def test_a_stored_suite_is_read_as_if_it_had_been_run_here(tmp_path):
    suite = fake_suite(overrides={"benchmark.seed_depths": (0.5, 0.5)}, b=arm(0.1), a=arm(0.3))
    suite.contrasts = (("b", "a"),)
    plan = make_plan(suite)
    compare_or_store(plan, tmp_path)
    for seed in (3, 5):
        write_run(run_dir(tmp_path, "a", seed), 0.3, seed)
    stored = stored_plan(tmp_path)
    assert stored.runs() == plan.runs() and stored.suite.contrasts == plan.suite.contrasts
    one, other = load_results(plan, tmp_path), load_results(stored, tmp_path)
    assert (one.horizon, one.missing, one.scores) == (other.horizon, other.missing, other.scores)
    compare_or_store(stored, tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda stored: "{", "is damaged"),
        (lambda stored: "[]", "is damaged: not a JSON object"),
        (lambda stored: stored | {"suite": stored["suite"] | {"seeds": 3}}, "config.seeds = 3"),
        (lambda stored: stored | {"configs": {"a": stored["configs"]["a"]}}, "is damaged: 'b'"),
        (lambda stored: stored | {"configs": {"a": {}, "b": {}}}, "is damaged: 'epochs'"),
    ],
)
def test_a_damaged_file_of_settings_is_named(tmp_path, damage, message):
    plan = make_plan(fake_suite())
    compare_or_store(plan, tmp_path)
    path = tmp_path / "suite.json"
    damaged = damage(json.loads(path.read_text()))
    path.write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
    with pytest.raises(ValueError, match=f"suite.json.*{message}"):
        compare_or_store(plan, tmp_path)
    with pytest.raises(FileNotFoundError, match="suite.json: no such file; expected the workdir"):
        stored_plan(tmp_path / "elsewhere")
