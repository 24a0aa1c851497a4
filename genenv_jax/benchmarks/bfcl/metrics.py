"""BFCL's aggregates under the leaderboard's names.

v4: `eval_checker/eval_runner_helper.py` of bfcl-eval 2026.3.23.  v3: the same file in the last v3
release, where (ir)relevance still counts in the non_live and live means, and the overall score is
the mean of three parts.
"""

from collections.abc import Mapping, Sequence

from genenv_jax.benchmarks.base import mean
from genenv_jax.benchmarks.bfcl.categories import LIVE, MULTI_TURN, NON_LIVE

_V4_WEIGHTS = {"non_live": 0.1, "live": 0.1, "irrelevance_overall": 0.1}
_V4_MULTI_TURN = 0.3  # the remaining 0.4 is agentic


def official_metrics(version: str, successes: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Aggregates successes, 0.0 or 1.0 per task of each category (or `<category>_<rule>` of turns).

    Returns:
      The accuracy of each category under its own name, and
        accuracy     mean over all scored tasks (the headline);
        simple       v4: mean of simple_python, simple_java, simple_javascript;
                     v3: named simple_ast, because `simple` is a category there;
        non_live     mean of simple, multiple, parallel, parallel_multiple (v3: and irrelevance);
        live         mean over the tasks of the four live_* AST categories (v3: and of
                     live_irrelevance and live_relevance);
        irrelevance_overall  v4: mean of irrelevance and live_irrelevance;
        multi_turn   mean of the four multi-turn categories as whole conversations;
        overall      v4: 0.1 non_live + 0.1 live + 0.1 irrelevance_overall + 0.3 multi_turn + 0.4 agentic;
                     v3: (non_live + live + multi_turn) / 3.  Agentic (memory, web search), which is not
                     run, and multi_turn, if it was not scored, count 0, as on the leaderboard.
      Any other aggregate is present only if all its parts were scored.  Turns scored on their own never enter
      official aggregates.
    """
    metrics = {name: mean(values) for name, values in sorted(successes.items()) if values}
    scored = [value for values in successes.values() for value in values]
    if not scored:
        return {"accuracy": 0.0}
    aggregates = {"accuracy": mean(scored)}

    simple_name = "simple" if version == "v4" else "simple_ast"
    _put(aggregates, simple_name, metrics, NON_LIVE[version][:3])
    sources = {**metrics, **aggregates}
    parts = [simple_name, "multiple", "parallel", "parallel_multiple"]
    live_parts = list(LIVE)
    if version == "v3":
        parts.append("irrelevance")
        live_parts += ["live_irrelevance", "live_relevance"]
    _put(aggregates, "non_live", sources, parts)
    if all(successes.get(name) for name in live_parts):
        aggregates["live"] = mean([v for name in live_parts for v in successes[name]])
    _put(aggregates, "multi_turn", metrics, MULTI_TURN)
    multi_turn = aggregates.get("multi_turn", 0.0)
    if version == "v4":
        _put(aggregates, "irrelevance_overall", metrics, ("irrelevance", "live_irrelevance"))
        if all(name in aggregates for name in _V4_WEIGHTS):
            aggregates["overall"] = _V4_MULTI_TURN * multi_turn + sum(
                weight * aggregates[name] for name, weight in _V4_WEIGHTS.items()
            )
    elif "non_live" in aggregates and "live" in aggregates:
        aggregates["overall"] = (aggregates["non_live"] + aggregates["live"] + multi_turn) / 3
    return {**metrics, **aggregates}


def _put(target: dict[str, float], name: str, sources: Mapping[str, float], parts: Sequence[str]) -> None:
    if all(part in sources for part in parts):
        target[name] = mean([sources[part] for part in parts])
