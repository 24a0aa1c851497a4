"""Whole runs in which the agent is trained on episodes."""

import dataclasses

import jax
import numpy as np
import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.base import ENVIRONMENT_ERROR
from genenv_jax.models.scoring import score_completions
from genenv_jax.players.lengths import LimitsConfig, check_prompts
from genenv_jax.rl.advantages import group_advantages
from genenv_jax.scoring.requests import EPISODE_TOO_LONG, PROMPT_TOO_LONG
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.trainers.agent import _Groups
from tests.runs import EPISODES, lines, run
from tests.toy import TURNS, Drawing, Talking


@pytest.fixture(autouse=True)
def talking(monkeypatch):
    monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Talking"))


def play(experiment, tasks, benchmark=None, **sampler):
    """Attempts and rollouts of the run's agent; `sampler` changes its fields."""
    policy = experiment.agent.policy(jax.random.key(3))
    policy = dataclasses.replace(policy, sampler=dataclasses.replace(policy.sampler, **sampler))
    with Scorer(benchmark or experiment.benchmark, experiment.agent.model.decode) as scorer:
        return policy.play(tasks, scorer.episodes, lambda: None)


@pytest.fixture(scope="module")
def trained(cache, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Talking"))
        workdir = tmp_path_factory.mktemp("episodes")
        return run(cache, workdir, **EPISODES), workdir


def test_it_trains_on_whole_episodes(trained):
    _, workdir = trained
    metrics = lines(workdir)
    assert [m["step"] for m in metrics][-1] == 2
    last = metrics[-1]
    assert 1 < last["agent/turns_mean"] <= TURNS
    assert 0 < last["agent/grad_norm"] < np.inf
    # The sampler's log-probs equal the trainer's: both mask observations.
    assert last["agent/sampler_trainer_logp_gap"] < 1e-4
    assert "eval/test/greedy/accuracy" in last
    traces = lines(workdir, "d_train.jsonl")
    assert any(len(trace.get("answers", ())) == TURNS for trace in traces)
    for trace in traces:
        assert trace.get("replies", []) == [str(len(answer)) for answer in trace.get("answers", [])[:-1]]
    assert all(trace["answer"] == trace.get("answers", [trace["answer"]])[-1] for trace in traces)


def test_a_buffer_is_the_template_of_the_transcript(trained):
    """If the text's tokens are those sampled; its log-probs equal those of teacher forcing."""
    experiment, _ = trained
    agent, tasks = experiment.agent, experiment.benchmark.tasks("seed")[:6]
    attempts, rollouts = play(experiment, tasks)
    exact = 0
    for i, of in enumerate(attempts):
        for j, a in enumerate(of):
            talk = experiment.benchmark.episode(a.task)
            for answer in a.answers[:-1]:
                assert talk.step(answer) is None
            conversation = [*talk.messages(), {"role": "assistant", "content": a.answers[-1]}]
            own = [agent.model.encode(answer) for answer in a.answers]
            tokens = rollouts.completion(i, j).content
            loss_mask = rollouts.loss_mask[i, j, : len(tokens)]
            written = np.split(
                np.array(tokens)[loss_mask], np.flatnonzero(np.diff(np.flatnonzero(loss_mask)) > 1) + 1
            )
            plain = [x[: -(x[-1] in agent.model.eos_ids) or None].tolist() for x in written]
            if plain != own or not all(x[-1] == agent.model.eos_ids[0] for x in written):
                continue
            exact += 1
            text = agent.model.tokenizer.apply_chat_template(conversation)["input_ids"]
            buffer = [*rollouts.prompts[i], *tokens]
            assert text[: len(buffer)] == buffer
    assert exact
    forced = score_completions(agent.params, rollouts.batch((64,), 6), agent.model.config)
    np.testing.assert_allclose(rollouts.logprobs, forced, atol=1e-4)


def test_an_observation_is_not_learnt(trained):
    """A gradient step depends on the unmasked tokens and not on the masked ones."""
    experiment, _ = trained
    _, rollouts = play(experiment, experiment.benchmark.tasks("seed")[:4])
    trainer, agent = experiment.agent_trainer, experiment.agent
    rewards = np.arange(16.0).reshape(4, 4) % 3
    state = jax.device_get(agent.state)

    def updated(changed):
        agent.state = jax.device_put(state)
        trainer.update(changed, rewards)
        return jax.device_get(agent.state.params)

    plain = updated(rollouts)
    there = np.arange(rollouts.tokens.shape[-1]) < rollouts.lengths[..., None]
    observed = there & ~rollouts.loss_mask
    assert observed.any()
    other = updated(dataclasses.replace(rollouts, logprobs=np.where(observed, -9.0, rollouts.logprobs)))
    np.testing.assert_array_equal(*map(_flat, (plain, other)))
    assert np.abs(_flat(updated(dataclasses.replace(rollouts, loss_mask=there))) - _flat(plain)).max() > 1e-5
    agent.state = jax.device_put(state)


def _flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_broken_environments_and_missing_room_are_counted(trained):
    experiment, _ = trained

    class Breaking(Talking):
        def episode(self, task):
            if task.id == "seed-2":
                raise OSError("it does not open")
            episode = super().episode(task)
            step, calls = episode.step, []

            def breaks(answer):
                calls.append(answer)
                return step("!" if task.id == "seed-1" and len(calls) == 2 else answer)

            episode.step = breaks
            return episode

    seeds = experiment.benchmark.tasks("seed")
    attempts, rollouts = play(experiment, seeds[:3], Breaking())
    broken = np.array([[a.score.reason == ENVIRONMENT_ERROR for a in of] for of in attempts])
    assert broken[1].any() and not broken[0].any()
    assert [a.score.reason for a in attempts[2]] == ["episode_crash"] * 4
    assert (rollouts.lengths[2] == 0).all() and (rollouts.lengths[:2] > 0).all()
    broken[2] = True
    groups = _Groups()
    reward = groups.add(attempts, rollouts)
    np.testing.assert_array_equal(np.isnan(reward), broken)
    assert groups.metrics()[ENVIRONMENT_ERROR] == broken[1].sum()
    assert groups.metrics()["episode_crash"] == 4
    assert np.isfinite(groups.metrics()["reward_mean"])
    advantages = group_advantages(reward, experiment.config.agent.advantages)
    assert (advantages[broken] == 0).all() and np.isfinite(advantages).all()
    crowded, rollouts = play(experiment, seeds[:3], episode=24)
    assert EPISODE_TOO_LONG in {a.score.reason for of in crowded for a in of} and rollouts.lengths.max() <= 24
    long, rollouts = play(experiment, seeds[:2], prompt_buckets=(3,))
    assert {a.score.reason for of in long for a in of} == {PROMPT_TOO_LONG}
    assert (rollouts.lengths == 0).all()


def test_an_episode_that_rewrites_its_conversation_is_refused(trained):
    experiment, _ = trained
    benchmark = Talking()
    whole = benchmark.episode

    def rewriting(task):
        episode = whole(task)
        messages = episode.messages
        episode.messages = lambda: messages()[-1:]
        return episode

    benchmark.episode = rewriting
    with pytest.raises(ValueError, match="the episode of task seed-0 rewrote its conversation"):
        play(experiment, benchmark.tasks("seed")[:1], benchmark)


def test_settings_are_checked(cache, tmp_path):
    with pytest.raises(ValueError, match=r"config.limits.agent_episode = 0: expected at least"):
        run(cache, tmp_path, **EPISODES | {"limits.agent_episode": 0})
    with pytest.raises(ValueError, match=r"limits.agent_episode = 72: expected 0, since .* not trained on"):
        check_prompts(LimitsConfig(agent_episode=72), None, Drawing(), [], [])


@pytest.mark.slow
def test_a_mesh_plays_the_same_episodes(cache, tmp_path, trained):
    mesh = dict.fromkeys(("mesh.data", "mesh.fsdp", "mesh.tensor"), 2)
    widths = {"agent.minibatch_size": 8, "simulator.minibatch_size": 4}
    options = EPISODES | widths | {"epochs": 1, "model.make.num_kv_heads": 2}
    run(cache, tmp_path / "one", **options)
    run(cache, tmp_path / "eight", **options, **mesh)
    a, b = (lines(tmp_path / name, "d_train.jsonl") for name in ("one", "eight"))
    assert a == b
