"""ALFWorld: household chores in text games, trained on an expert's single steps.

    genenv train --config=configs/alfworld.py --workdir=runs/alfworld \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

The paper's protocol: games are decomposed into single (state, action) pairs, and the agent answers one
command, which is right if it is the expert's.  Seeds are the steps of the training games; the steps of the
134 games of valid_unseen are held out.  The games are read from $ALFWORLD_DATA or $GENENV_DATA
(docs/benchmarks.md, Data).  Neither this nor training needs the engine.  Qwen2.5-7B-Instruct plays both
roles, 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations a seed.

    genenv train --config=configs/alfworld.py:episodes --workdir=runs/alfworld-episodes

evaluates whole games on the real engine instead, as ALFWorld's authors do: 50 steps, success means won.
This needs `pip install -e '.[alfworld]'`.  `--config.benchmark.eval_splits="('valid_unseen',
'valid_seen')"` adds the seen rooms where their games are there, and `--config.benchmark.grammar=move_to`
plays with the texts of alfworld 0.4 ("move X to Y") instead of the games' own ("put X in/on Y").

    genenv train --config=configs/alfworld.py:games --workdir=runs/alfworld-games

trains on whole games as well: the agent plays the training games, and games in rooms that the simulator
writes in JSON (docs/benchmarks.md) and a planner solves.  An episode is one conversation of up to 20
commands, without a list of possible commands.  The games of valid_unseen are held out, with 50 steps.  Games
are played on the engine where it is installed, and by our own rules elsewhere; the rules take a hundredth of
the time (`--config.benchmark.played_on=rules`).

    genenv train --config=configs/alfworld.py:games,debug --workdir=runs/alfworld-games-debug

does the same with a small random model and our own rules, and

    genenv train --config=configs/alfworld.py:debug --workdir=runs/alfworld-debug

checks in two minutes on a CPU that the parts work together: two epochs on a few real records, with a small,
randomly initialised model, which solves nothing.

Metrics of valid_unseen (and valid_seen): `valid_unseen/accuracy` is the share of right steps (=
`valid_unseen/step_accuracy`) or of games won (= `valid_unseen/success_rate`).  `valid_unseen/<type>` is the
same for each of the six types of chore, `valid_unseen/mean_over_types` their mean.
`valid_unseen/inadmissible` is the share of commands that were not possible, `valid_unseen/steps` the mean
length of the games won.  Numbers of the two protocols cannot be compared.  The paper reports 14.2 before and
54.5 after training, for steps of an expert that are not published.
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
    config.limits.simulator_prompt = 4608  # the possible commands and the instructions come on top
    if arg.startswith("games"):
        config.benchmark.episodes = True
        # In tokens of a vocabulary of 50,000 or more: the simulator's prompt has 900, a room 300; a game of
        # the expert's 700, at most 1,250; a sentence of thought in each answer doubles that.
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
