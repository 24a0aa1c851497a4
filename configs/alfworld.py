"""ALFWorld: household chores in text games, trained on single steps of an expert.

    genenv train --config=configs/alfworld.py --workdir=runs/alfworld \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

The paper's protocol: games are split into single (state, action) pairs.  The agent answers with one command,
which is right if it equals the expert's.  The steps of the training games are the seeds; the steps of the
134 games of valid_unseen are held out.  The games are read from $ALFWORLD_DATA or $GENENV_DATA
(docs/benchmarks.md, Data).  Neither evaluation nor training needs the engine.  Qwen2.5-7B-Instruct plays
both roles: 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations per seed.

    genenv train --config=configs/alfworld.py:episodes --workdir=runs/alfworld-episodes

evaluates whole games on the real engine instead, as ALFWorld's authors do: 50 steps, success is a won game.
This needs `pip install -e '.[alfworld]'`.  `--config.benchmark.eval_splits="('valid_unseen',
'valid_seen')"` adds the seen rooms if their games are present, and `--config.benchmark.grammar=move_to`
uses the wording of alfworld 0.4 ("move X to Y") instead of the games' own ("put X in/on Y").

    genenv train --config=configs/alfworld.py:games --workdir=runs/alfworld-games

also trains on whole games: the agent plays the training games, and games in rooms that the simulator
writes in JSON (docs/benchmarks.md) and an expert solves.  An episode is one conversation of up to 20
commands, without a list of possible commands.  The games of valid_unseen are held out, with 50 steps.  Games
run on the engine if it is installed, and otherwise on our own rules, which take a hundredth of the time
(`--config.benchmark.played_on=rules`).

    genenv train --config=configs/alfworld.py:games,debug --workdir=runs/alfworld-games-debug

does this with a small random model and our own rules, and

    genenv train --config=configs/alfworld.py:debug --workdir=runs/alfworld-debug

is a two-minute smoke test on a CPU: two epochs on a few real records, with a small, randomly initialised
model, which solves nothing.

Metrics for valid_unseen (and valid_seen): `valid_unseen/accuracy` is the share of right steps (=
`valid_unseen/step_accuracy`) or of games won (= `valid_unseen/success_rate`).  `valid_unseen/<type>` is the
same for each of the six types of chore, and `valid_unseen/mean_over_types` is their mean.
`valid_unseen/inadmissible` is the share of impossible commands, `valid_unseen/steps` the mean length of the
games won.  Results of the two protocols cannot be compared.  The paper reports 14.2 before and 54.5 after
training, on expert steps that are not published.
"""

from genenv_jax.config import default_config
from genenv_jax.configs.recipes import debug


def get_config(arg: str = ""):
    if arg not in ("", "debug", "episodes", "games", "games,debug"):
        raise ValueError(
            "configs/alfworld.py takes no argument, 'debug', 'episodes', 'games' or 'games,debug', got "
            f"{arg!r}"
        )
    config = default_config()
    config.benchmark.name = "alfworld"
    config.benchmark.verify_files = True
    if arg not in ("", "debug"):
        config.benchmark.eval_protocol = "episode"
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = 4608  # room for the possible commands and the instructions
    if arg.startswith("games"):
        config.benchmark.episodes = True
        # Tokens of a vocabulary of 50,000 or more: the simulator's prompt 900, a room 300, an
        # expert's game 700, at most 1,250; a sentence of thought per answer doubles a game's.
        config.limits.simulator_prompt, config.limits.simulator_response = 1536, 768
        config.limits.agent_response = 96
        config.limits.agent_episode = 4096
    if arg == "debug":
        debug(config, 4096, 4096, (1024, 2048))
    if arg == "games,debug":
        debug(config, 2048, 2048, ())
        config.limits.agent_episode = 1024
        config.benchmark.played_on = "rules"
        config.benchmark.max_steps = config.benchmark.train_steps = 8
    return config
