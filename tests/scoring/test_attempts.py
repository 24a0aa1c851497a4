import pytest

from genenv_jax.benchmarks.base import Score
from genenv_jax.scoring.attempts import attempt
from genenv_jax.scoring.requests import PROMPT_TOO_LONG
from genenv_jax.scoring.scorer import Scorer, ScoringConfig
from tests.evaluate.games import STEPS, Games, Scripted


def run(tasks, script, isolated=False, timeout=60.0, on_end=lambda: None, **options):
    benchmark = Games(isolated)
    chat_model = Scripted(script, **options)
    config = ScoringConfig(2 if isolated else 0, timeout)
    with Scorer(benchmark, chat_model.text, config) as scorer:
        attempts = attempt(benchmark, tasks, chat_model, scorer, on_end)
    return {(a.task.id, a.sample): a for of in attempts for a in of}, chat_model


def number(text, _):
    """The right answer to games and tasks whose ids end in their number."""
    return text.split()[0].rpartition("-")[2]


@pytest.mark.parametrize("isolated", [False, True])
def test_games_and_single_answers_are_scored_side_by_side(isolated):
    games = Games()
    tasks = [games.task(f"game-{i}", i) for i in range(7)] + [games.task("single-9", 9)]
    tasks.insert(3, games.task("single-5", 6))
    seen = []
    attempts, chat_model = run(tasks, number, isolated, on_end=lambda: seen.append(1), samples=2)
    assert len(attempts) == 2 * len(tasks)
    assert len(seen) == 2 * len(tasks)
    for (task_id, _), made in attempts.items():
        if task_id == "single-5":
            assert made.score == Score(0.0, False, True, "wrong") and made.answers == ("5",)
        else:
            assert made.score.success
            assert len(made.answers) == (STEPS if task_id.startswith("game") else 1)
    # Four at a time, and the next ones begin as others end.
    assert max(chat_model.sizes) == 4 and sum(chat_model.sizes) == 2 * 7 * STEPS


def test_an_episode_says_why_it_failed_and_keeps_all_answers():
    games = Games()
    attempts, _ = run([games.task("game-1", 1)], lambda text, turn: ["1", "stop", "1"][turn])
    made = attempts["game-1", 0]
    assert made.score == Score(0.0, False, False, "stopped", {"turns": 2})
    record = made.record()
    assert record["answers"] == ["1", "stop"] and record["answer"] == "stop"
    assert record["detail"] == {"turns": 2} and record["reason"] == "stopped"


def test_a_conversation_that_no_longer_fits_ends_its_episode():
    games = Games()
    long = games.task("game-" + "x" * 50 + "-1", 1)
    attempts, _ = run([long, games.task("game-1", 1)], number, limit=40)
    assert attempts[long.id, 0].score.reason == PROMPT_TOO_LONG
    assert attempts[long.id, 0].answers == ()
    assert attempts["game-1", 0].score.success


@pytest.mark.parametrize(("mischief", "reason"), [("hang", "episode_timeout"), ("die", "episode_crash")])
def test_a_game_that_takes_its_process_down_leaves_the_others_alone(mischief, reason):
    games = Games()
    tasks = [games.task(f"game-{i}", i) for i in range(8)]
    script = lambda text, turn: (  # noqa: E731
        mischief if text.startswith("game-3 turn 1") else number(text, turn)
    )
    attempts, _ = run(tasks, script, isolated=True, timeout=3.0, max_concurrent=8)
    for (task_id, _), made in attempts.items():
        if task_id == "game-3":
            assert made.score == Score(0.0, False, False, reason)
        else:  # also those in its process, which were replayed from their answers
            assert made.score.success, (task_id, made.score)


@pytest.mark.parametrize("isolated", [False, True])
def test_an_engine_that_raises_fails_its_episode_only(isolated):
    games = Games()
    tasks = [games.task("game-1", 1), games.task("game-2", "broken"), games.task("game-4", 4)]
    script = lambda text, turn: "raise" if text.startswith("game-4") else number(text, turn)  # noqa: E731
    attempts, _ = run(tasks, script, isolated)
    reasons = {task_id: made.score.reason for (task_id, _), made in attempts.items()}
    assert reasons == {"game-1": "", "game-2": "episode_crash", "game-4": "episode_crash"}
