"""Plays ALFWorld's official expert in its own environment and keeps what it did and how it ended.

The tests read only `verdicts/alfworld_walkthroughs.json`.  To make that file again (about ten seconds per
game; a second run continues where the first one ended):

    pip install alfworld==0.4.2 textworld==1.7.0
    GENENV_DATA=... python -m bench.agreement.alfworld_walkthroughs

The expert is `HandCodedTWAgent`, which speaks only the newer grammar: each game of valid_unseen gets the
domain and the texts of the package, with its own task sentence, and the wrappers that
`AlfredTWEnv.init_env` uses.  Officially, 150 steps decide solvability, so up to 150 are recorded.
The file holds ids, commands and verdicts, and no other text of the games.
"""

import json
import pathlib
import shutil
import tempfile
from typing import Any

from genenv_jax.benchmarks.alfworld import commands, engine, tasks

WALKTHROUGHS = pathlib.Path(__file__).with_name("verdicts") / "alfworld_walkthroughs.json"
MAX_STEPS = 150


def play(game: tasks.Game) -> dict[str, Any]:
    """What the official expert does in one game: {"won": bool, "commands": "a, b, c"}."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import (
        AlfredDemangler,
        AlfredExpert,
        AlfredInfos,
    )
    from textworld.envs.pddl import PddlEnv

    infos = textworld.EnvInfos(
        won=True, admissible_commands=True, facts=True, extras=["gamefile", "expert_plan"]
    )
    env = AlfredExpert(AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False)), expert_type="handcoded")
    with tempfile.TemporaryDirectory() as directory:
        # The expert reads its parameters from the file beside the game's.
        path = pathlib.Path(directory) / tasks.FILE
        path.write_text(json.dumps(engine.game_data(game, commands.MOVE_TO)), encoding="utf-8")
        shutil.copy(game.path.with_suffix(".json"), directory)
        env.load(str(path))
        state, written = env.reset(), []
        while not state["won"] and len(written) < MAX_STEPS:
            written.append(state["extra.expert_plan"][0])
            try:
                state, _, _ = env.step(written[-1])
            except Exception as error:  # "Timeout" is how the expert gives up
                print(f"{game.id}: {error}")
                break
    return {"won": bool(state["won"]), "commands": ", ".join(written)}


def main() -> None:
    """Plays all games that are not recorded yet."""
    version = engine.versions()["alfworld"]
    expert = f"HandCodedTWAgent of alfworld {version}, at most {MAX_STEPS} steps"
    recorded = json.loads(WALKTHROUGHS.read_text("utf-8"))["games"] if WALKTHROUGHS.is_file() else {}
    for game in tasks.load(tasks.find_directory(), "valid_unseen"):
        if game.id not in recorded:
            recorded[game.id] = play(game)
            games = dict(sorted(recorded.items()))
            found = {"expert": expert, "grammar": commands.MOVE_TO, "games": games}
            text = json.dumps(found, separators=(",", ":"))
            WALKTHROUGHS.write_text(f"{text}\n", encoding="utf-8")
    won = [len(r["commands"].split(", ")) for r in recorded.values() if r["won"]]
    print(f"{len(recorded)} games, {len(won)} won, {sum(n <= 50 for n in won)} within 50 steps")


if __name__ == "__main__":
    main()
