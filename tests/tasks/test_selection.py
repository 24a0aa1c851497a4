"""Which groups are trained on."""

import numpy as np

from genenv_jax.tasks.selection import All, Frontier, Informative, make_selection

REWARDS = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]], float)


def chosen(selection, rewards=REWARDS):
    return selection.choose(rewards, rewards > 0.9).tolist()


def test_all_are_all():
    assert chosen(All()) == [0, 1, 2, 3, 4]


def test_informative_groups_have_different_rewards():
    assert chosen(Informative()) == [1, 2, 4]
    graded = np.array([[0.5, 0.5], [0.5, 0.4]])  # never a success, and still something to learn
    assert chosen(Informative(), graded) == [1]


def test_the_frontier_is_closest_to_alpha_and_ties_keep_their_order():
    assert chosen(Frontier(5)) == [4]
    assert chosen(Frontier(2)) == [1, 2, 4]  # half of five, rounded up
    assert chosen(Frontier(3)) == [1, 4]
    assert chosen(Frontier(3, alpha=1.0)) == [2, 3]


def test_the_setting_names_them():
    assert make_selection("all", 3, 0.4) == All()
    assert make_selection("informative", 3, 0.4) == Informative()
    assert make_selection("frontier", 3, 0.4) == Frontier(3, 0.4)
    assert make_selection("informative", 3, 0.4).oversampling == 1
