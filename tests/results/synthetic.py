"""Runs as `genenv_jax.main` leaves them, made without a model; hostile text; pages as parsed HTML."""

import html.parser
import json
import pathlib

import numpy as np

from genenv_jax import results
from genenv_jax.results.runs import Run
from tests.experiment import fake_main

EPOCHS = 8
GENERATIONS = 64  # an epoch
REASONS = ("unparsable", "wrong_answer", "duplicate", "near_duplicate", "too_long")


def write_run(workdir, epochs=EPOCHS) -> pathlib.Path:
    """A plausible run with tasks: p̂ nears alpha, held-out accuracy rises, fewer generations are rejected."""
    random = np.random.default_rng(0)

    def change(lines):
        for line in lines[1:]:
            step, progress = line["step"], float(1 - np.exp(-line["step"] / 2.5))
            rejected = random.choice(REASONS, int(GENERATIONS * (0.45 - 0.35 * progress))).tolist()
            accepted = GENERATIONS - len(rejected)
            p_hats = random.binomial(8, random.beta(2, 4 - 2 * progress, accepted)) / 8
            generated = {
                "count": GENERATIONS,
                "valid_share": accepted / GENERATIONS,
                "p_hat_mean": float(p_hats.mean()),
                "solved_all": int(np.sum(p_hats == 1)),
                "solved_none": int(np.sum(p_hats == 0)),
                "difficulty_mean": 1.0 + step,
            } | {f"rejected/{reason}": rejected.count(reason) for reason in REASONS}
            line |= {f"generated/{name}": value for name, value in generated.items()}
            line |= {"simulator/kl_to_initial": 0.03 * progress}
            del line["generated/p_rerolled_mean"], line["agent/zero_variance_share"]
            tasks = [generation(step, i, p_hat=float(p)) for i, p in enumerate(p_hats)]
            tasks += [generation(step, i, reason) for i, reason in enumerate(rejected, accepted)]
            append(workdir, "tasks", *tasks)
            append(workdir, "d_train", *[{"epoch": step}] * step)
            append(workdir, "d_env", *[{"epoch": step}] * 2)

    fake_main.write_run(workdir, 0.5, 0, epochs, change)
    return workdir


def generation(epoch, index, verdict="accepted", p_hat=None, text=None, **changes):
    """One line of tasks.jsonl."""
    text = text or f"Compute ({index} + 3) * 2 with the tools (epoch {epoch})."
    task = {
        "id": f"g{epoch}-{index}",
        "messages": [{"role": "user", "content": text}],
        "tools": [{"name": "add"}],
        "answer": {"value": 2 * (index + 3)},
    }
    attempted = p_hat is not None
    return {
        "epoch": epoch,
        "id": f"g{epoch}-{index}",
        "seed_id": f"s{index % 7}",
        "context_success_rate": None,
        "text": text,
        "verdict": verdict,
        "detail": "",
        "task": task if verdict == "accepted" else None,
        "attempts": 10 if attempted else None,
        "successes": round(10 * p_hat) if attempted else None,
        "p_hat": p_hat,
        "r_env": float(np.exp(-2 * (p_hat - 0.5) ** 2)) if attempted else None,
        "weight": float(abs(p_hat - 0.5) <= 0.1) if attempted else None,
        "response_length_mean": 140.0 if attempted else None,
    } | changes


def run_of(*tasks, workdir=pathlib.Path("run"), config=None, metrics=None, timing=()) -> Run:
    """A run in memory."""
    return Run(workdir.name, workdir, config or {}, metrics or {1: {}}, timing, tasks)


def append(workdir, name, *records):
    with open(workdir / f"{name}.jsonl", "a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


SCRIPT = (pathlib.Path(results.__file__).parent / "templates" / "browse.js").read_text("utf-8")
ATTACK = (
    "</pre></div></title><script>alert(1)</script><img src=x onerror=alert(1)>\" ' & &lt; \x00\x1b[2J"
    "\u202e<!-- \ud800 ]]> --></style><style>*{display:none}</style>{{ 7 * 7 }}"
)


def hostile(value, place):
    """`value` with every string replaced by its path and an attack."""
    if isinstance(value, str):
        return f"[{place}]{ATTACK}"
    if isinstance(value, list):
        return [hostile(item, place) for item in value]
    if isinstance(value, dict):
        return {key: hostile(item, f"{place}.{key}") for key, item in value.items()}
    return value


class Page(html.parser.HTMLParser):
    """Tags with attributes, and text by the tag that holds it."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.source, self.tags, self.open, self.text = text, [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], "tags are not closed"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, "the tags do not nest"

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def within(self, *tags):
        """The text inside these tags; inside all but scripts if none is named."""
        return "".join(data for tag, data in self.text if tag in tags or (not tags and tag != "script"))

    def check_harmless(self, images, scripts=0):
        """Checks that the page shows the text of `ATTACK` and executes none of it."""
        names = [tag for tag, _ in self.tags]
        assert not {"link", "iframe", "object", "svg"} & set(names)
        assert {attrs["href"] for tag, attrs in self.tags if tag == "a"} <= {"#tasks"}
        assert tuple(names.count(name) for name in ("style", "img", "script")) == (1, images, scripts)
        assert all(data == SCRIPT for tag, data in self.text if tag == "script")
        assert not any(name.startswith("on") for _, attrs in self.tags for name in attrs)
        assert "<script>alert(1)</script><img src=x" in self.within() and "& &lt;" in self.within()
        assert "{{ 7 * 7 }}" in self.within()
        for character in ("\x00", "\x1b", "\u202e", "\ud800"):
            assert character not in self.source
            assert f"\\u{ord(character):04x}" in self.within()
