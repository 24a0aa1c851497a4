import sys

import numpy as np
import pytest
from drift import kinds_left, main


def test_what_is_lost_to_noise_is_what_a_random_walk_loses():
    """Steps: rate · (share − p), variance p (1 − p) / records; entropy falls by half the logits' variance."""
    left = kinds_left(epochs=16, runs=300, passes=1)
    variance = np.arange(1, 17) * (1 / 12) * (11 / 12) / 64
    np.testing.assert_allclose(left.mean(axis=1), 12 * np.exp(-variance / 2), rtol=2e-3)


def test_a_penalty_or_initial_tasks_hold_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["drift.py", "--epochs", "4", "60", "--runs", "50"])
    main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[2:]]
    one, four, penalty, half = (float(cells[-1].split("±")[0]) for cells in rows)
    assert four < 9 and min(one, penalty, half) > 11
    assert float(rows[1][1].split("±")[0]) == pytest.approx(11.6, abs=0.2)
