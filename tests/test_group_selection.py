"""Which groups are trained on."""

import numpy as np

from genenv_jax.group_selection import select_groups

REWARDS = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]], float)


def test_all_are_all():
    assert select_groups("all", REWARDS, REWARDS, 2, 0.5).tolist() == [0, 1, 2, 3, 4]


def test_informative_groups_have_different_rewards():
    assert select_groups("informative", REWARDS, REWARDS, 2, 0.5).tolist() == [1, 2, 4]
    graded = np.array([[0.5, 0.5], [0.5, 0.4]])  # never a success, and still something to learn
    assert select_groups("informative", graded, graded > 1, 2, 0.5).tolist() == [1]


def test_the_frontier_is_closest_to_alpha_and_ties_keep_their_order():
    assert select_groups("frontier", REWARDS, REWARDS, 1, 0.5).tolist() == [4]
    assert select_groups("frontier", REWARDS, REWARDS, 3, 0.5).tolist() == [1, 2, 4]
    assert select_groups("frontier", REWARDS, REWARDS, 2, 0.5).tolist() == [1, 4]
    assert select_groups("frontier", REWARDS, REWARDS, 2, 1.0).tolist() == [2, 3]
