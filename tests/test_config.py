import pathlib
import re

import pytest
from ml_collections import ConfigDict

from genenv_jax.benchmarks.registry import check_options, make_benchmark
from genenv_jax.benchmarks.success_record import LONGEST
from genenv_jax.config import changes, default_config, flatten, validate
from tests.commands import ROOT, load


def valid():
    """The defaults, with the two settings that have no default."""
    config = default_config()
    config.benchmark.name = "dial"
    config.model.path = "some/model"
    return config


def changed(key, *value):
    """A valid configuration with one key set to a value of any type, or removed."""
    settings = valid().to_dict()
    *groups, name = key.split(".")
    part = settings
    for group in groups:
        part = part[group]
    part.pop(name, None)
    if value:
        (part[name],) = value
    return ConfigDict(settings, convert_dict=True)


def refusal(config):
    with pytest.raises(ValueError) as error:
        validate(config)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_papers_settings():
    config = validate(valid())
    agent, simulator, curriculum = config.agent, config.simulator, config.curriculum
    assert (agent.learning_rate, simulator.learning_rate) == (1e-6, 5e-7)
    assert (agent.batch_size, simulator.batch_size, config.epochs) == (64, 64, 10)
    assert (agent.group_size, simulator.variations, agent.minibatch_size) == (8, 4, 16)
    assert (curriculum.alpha, curriculum.beta, curriculum.k_min) == (0.5, 2.0, 0.1)
    assert (agent.loss, agent.advantages) == ("grpo", "group")
    assert (agent.kl_coef, agent.entropy_coef) == (0.001, 0.001)
    assert (config.limits.agent_prompt, config.limits.agent_response) == (4096, 512)
    assert simulator.rwr_temperature == 1.0


def test_no_setting_hides_behind_a_method_of_its_group():
    """A setting `config.group.update`, for example, would be ConfigDict's own method."""

    def check(group):
        for key, value in group.items():
            assert not hasattr(ConfigDict, key), key
            if isinstance(value, ConfigDict):
                check(value)

    check(default_config())


def test_every_file_in_configs_is_valid():
    # Suites are tested in tests/experiment/test_arms.py.
    files = sorted(f for f in (ROOT / "configs").glob("*.py") if f.name != "recipes.py")
    assert files
    for file in files:
        module = load(f"configs/{file.name}")
        config = module.get_config()
        if "debug" in module.__doc__:
            validate(module.get_config("debug"))
        if not config.model.path and not config.model.make.vocab_size:
            config.model.path = "some/model"  # left to the user
        validate(config)
        assert module.__doc__ and f"configs/{file.relative_to(ROOT / 'configs')}" in module.__doc__


@pytest.mark.parametrize("name", ["quickstart", "dial_turns", "smollm2", "qwen_0_5b"])
def test_an_unknown_argument_is_refused(name):
    with pytest.raises(ValueError, match="big"):
        load(f"configs/{name}.py").get_config("big")


@pytest.mark.parametrize(
    ("model", "size"), [("smollm2", ""), ("smollm2", ",cpu"), ("qwen_0_5b", ""), ("qwen_0_5b", ",cpu")]
)
@pytest.mark.parametrize(
    "name", ["api_bank", "bfcl", "alfworld", "bamboogle", "travelplanner", "dial", "dial_turns"]
)
def test_the_recipes_of_small_models(model, name, size):
    """Each is valid, has options that its benchmark knows, and warm-starts a given model."""
    checked = validate(load(f"configs/{model}.py").get_config(name + size))
    options = dict(checked.benchmark)
    assert options.pop("name") == name
    check_options(name, **options)
    assert checked.model.path and checked.warm_start.steps
    assert (checked.model.dtype == "float32") == bool(size)


# Characters per token of the agent's and the simulator's longest prompts, with SmolLM2's tokenizer.
_CHARACTERS = {
    "api_bank": (3.28, 3.76), "bfcl": (3.97, 3.78), "alfworld": (2.81, 2.96), "bamboogle": (3.74, 3.95),
    "travelplanner": (2.74, 2.86),
}  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize("name", _CHARACTERS)
def test_prompts_fit_the_recipes_of_small_models(monkeypatch, data_dir, name):
    monkeypatch.setenv("GENENV_DATA", str(data_dir))
    config = validate(load("configs/smollm2.py").get_config(name))
    options = dict(config.benchmark)
    benchmark = make_benchmark(options.pop("name"), **options)  # SmolLM2's template lacks tools
    seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
    prompts = (
        map(benchmark.agent_messages, [*seeds, *held_out]),
        (benchmark.simulator_messages(seed, LONGEST) for seed in seeds),
    )
    limits = config.limits.agent_prompt, config.limits.simulator_prompt
    for limit, of, characters in zip(limits, prompts, _CHARACTERS[name], strict=True):
        assert 0 < max(sum(len(m["content"]) for m in messages) for messages in of) / characters <= limit


@pytest.mark.parametrize("size", ["", ",debug"])
def test_alfworld_trains_on_whole_games(size):
    options = dict(validate(load("configs/alfworld.py").get_config("games" + size)).benchmark)
    check_options(options.pop("name"), **options)
    assert options["episodes"] and options["eval_protocol"] == "episode"
    with pytest.raises(ValueError, match="'games,small'"):
        load("configs/alfworld.py").get_config("games,small")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("epoch", "did you mean config.epochs?"),
        ("agent.learningrate", "did you mean config.agent.learning_rate?"),
        ("agent.weight_decay", "did you mean config.optimizer.weight_decay?"),
        ("simulator.kl_caps", "did you mean config.simulator.kl_cap?"),
        ("model.make.vocabsize", "did you mean config.model.make.vocab_size?"),
        ("curriculum.zzz", "expected one of ['alpha', 'beta', 'growth', 'k_min', 'seeds_per_epoch']"),
    ],
)
def test_an_unknown_key(key, hint):
    assert refusal(changed(key, 1)) == f"config.{key} is not a setting; {hint}"


def test_options_of_a_benchmark_are_what_json_holds():
    """A path is its text."""
    config = valid()
    config.benchmark.where = pathlib.Path("here")
    assert validate(config).benchmark["where"] == "here"
    config = valid()
    config.benchmark.where = {1}
    assert refusal(config) == "config.benchmark.where = {1}: expected a text, number, boolean, list or None"


@pytest.mark.parametrize("key", ["epochs", "agent", "agent.kl_coef", "benchmark.name"])
def test_a_missing_key(key):
    assert refusal(changed(key)) == f"config.{key} is missing"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"url": "localhost:8000"}, "expected a base URL such as"),
        ({"url": "http://host:port/v1"}, "expected a base URL such as"),
        ({"url": "http://host/v1?key=s3"}, "expected a base URL such as"),
        ({"url": "http://ho st/v1"}, "expected a base URL such as"),
        ({"url": "http://user:s3@host/v1"}, "without a key"),
        ({"url": "http://user:s3"}, "without a key"),
        ({"url": "//user:s3@host"}, "without a key"),
        ({"model": ""}, "expected both, or neither"),
        ({"max_tokens": 0}, "tasks.teacher.max_tokens = 0: expected at least 1"),
        ({"per_seed": 2.0}, "tasks.teacher.per_seed = 2.0: expected one of them"),
    ],
)
def test_a_teacher_that_cannot_be_asked(changes, expected):
    config = valid()
    config.tasks.source, config.tasks.count = "teacher", 3
    config.tasks.teacher.update({"url": "https://host:8000/v1", "model": "m"})
    validate(config)
    config.tasks.teacher.update(changes)
    message = refusal(config)
    assert expected in message and "s3" not in message
    config.tasks.teacher = default_config().tasks.teacher
    config.tasks.source = "static"
    validate(config)


@pytest.mark.parametrize("changes", [{"url": "http://h/v1", "model": "m"}, {"per_seed": 3.3}])
def test_a_teacher_beside_another_source(changes):
    config = valid()
    config.tasks.teacher.update(changes)
    assert "config.tasks.source = 'simulator': expected 'teacher'" in refusal(config)


NAN = float("nan")
_SIZES = (
    *("agent.group_size", "agent.batch_size", "agent.minibatch_size", "simulator.variations"),
    *("curriculum.seeds_per_epoch", "limits.agent_prompt", "limits.simulator_response"),
    *("evaluation.sampled", "evaluation.batch_size", "sampling.lanes", "warm_start.batch_size"),
    *("model.make.vocab_size", "model.make.hidden_size", "lora.rank", "scoring.workers"),
)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("epochs", 1.5, "a value of type int"),
        ("epochs", None, "a value of type int"),
        ("agent.learning_rate", "1e-6", "a value of type float"),
        ("simulator.train", 1, "a value of type bool"),
        ("model.path", 3, "a value of type str"),
        ("limits.prompt_buckets", 512, "a value of type tuple"),
        ("limits.prompt_buckets", (512, 1024.0), "a value of type tuple"),
        ("agent", 3, "a group of settings"),
        ("epochs", -1, "at least 0"),
        ("limits.agent_prompt", 0, "between 1 and 4194304"),
        ("agent.learning_rate", NAN, "at least 0"),
        ("agent.base_share", 1.5, "between 0 and 1"),
        ("optimizer.b2", 1.0, "between 0 and 0.999999"),
        ("curriculum.alpha", 1.01, "between 0 and 1"),
        ("curriculum.alpha", NAN, "between 0 and 1"),
        ("verification.near_duplicate", 1.2, "between 0 and 1"),
        ("scoring.timeout", 0.0, "between 0.1 and 86400"),
        ("scoring.memory", -0.5, "at least 0"),
        ("checkpoint.keep", 0, "at least 1"),
        ("model.dtype", "float8", "one of ['bfloat16'"),
        ("agent.loss", "ppo", "one of ['grpo'"),
        ("simulator.success_rate_over", "seed", "one of ['batch'"),
        *((size, 10**8, "between") for size in _SIZES),
    ],
)
def test_a_value_that_cannot_be(key, value, expected):
    """A wrong type, out of bounds, none of the choices, or an absurd size."""
    assert refusal(changed(key, value)).startswith(f"config.{key} = {value!r}: expected {expected}")


def test_values_that_fit():
    """An integer where a float is expected, a list for a tuple, and the bounds themselves."""
    for key, value in {"epochs": 0, "curriculum.alpha": 1.0, "curriculum.k_min": 0.0}.items():
        validate(changed(key, value))
    rate = validate(changed("agent.learning_rate", 0)).agent.learning_rate
    assert rate == 0.0 and type(rate) is float
    assert validate(changed("limits.prompt_buckets", [512, 1024])).limits.prompt_buckets == (512, 1024)
    assert validate(changed("limits.prompt_buckets", ())).limits.prompt_buckets == ()


def test_a_warm_up_that_the_decay_cuts_off():
    config = changed("optimizer.warmup_steps", 9)
    validate(config)
    config.optimizer.decay_steps = 8
    assert refusal(config) == "config.optimizer.warmup_steps = 9: expected at most decay_steps = 8"


def test_the_checked_configuration_says_what_was_given():
    config = valid()
    config.benchmark.grasp = 0.1
    checked = validate(config)
    assert flatten(checked.to_dict()) == flatten(config.to_dict())
    assert checked.benchmark == {"name": "dial", "grasp": 0.1}


def test_what_a_file_changes():
    config = valid()
    config.agent.group_size, config.benchmark.positions = 4, 5
    config.benchmark.max_depth = 6  # the benchmark's default
    assert changes(config) == {
        "agent.group_size": (4, 8),
        "benchmark.name": ("dial", ""),
        "benchmark.positions": (5, 10),
        "model.path": ("some/model", ""),
    }


def test_a_model_is_named_or_made_not_both():
    message = refusal(changed("model.path", ""))
    assert "config.model.path" in message and "config.model.make.vocab_size" in message
    assert refusal(changed("model.make.vocab_size", 512)) == message
    config = changed("model.path", "")
    config.model.make.vocab_size = 512
    validate(config)


def test_combinations():
    assert "config.benchmark.name" in refusal(changed("benchmark.name", ""))
    assert re.search(r"base_share \+ replay_share .*fresh", refusal(changed("agent.base_share", 1.0)))
    config = changed("agent.base_share", 0.5)
    config.agent.replay_share = 0.5
    assert "config.agent.base_share" in refusal(config)
    for player in ("agent", "simulator"):
        message = refusal(changed(f"{player}.micro_batches", 3))
        assert message.startswith(f"config.{player}.micro_batches = 3: expected a divisor")
        assert "16" in message


def test_an_evaluation_has_answers():
    assert validate(changed("evaluation.sampled", 0)).evaluation.modes() == {"greedy": (1, 0.0)}
    config = changed("evaluation.sampled", 0)
    config.evaluation.greedy = False
    assert refusal(config) == (
        "config.evaluation.sampled = 0 and greedy = False: expected at least one answer to a task"
    )


def test_prompt_buckets():
    limits = validate(changed("limits.prompt_buckets", (1024, 512, 4096, 9000))).limits
    assert limits.buckets(4096) == (512, 1024, 4096)
    assert limits.buckets(100) == (100,)
    assert validate(changed("limits.prompt_buckets", ())).limits.buckets(40) == (40,)
    limits = validate(changed("limits.response_buckets", (64, 16))).limits
    assert limits.widths(64) == (16, 64) and limits.widths(200) == (16, 64, 200)
