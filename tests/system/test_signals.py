import signal
import sys
import time

import pytest

from genenv_jax.system.signals import BOTH, ending, held


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_block_with_its_code(signum, code, interruptible):
    before = signal.getsignal(signum)
    with pytest.raises(SystemExit) as ended, ending(*BOTH):
        signal.raise_signal(signum)
    assert ended.value.code == code and signal.getsignal(signum) is before


def test_a_signal_is_heard_also_where_python_drops_exceptions(capfd):
    class Dropped:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    before = sys.unraisablehook
    with pytest.raises(SystemExit) as ended, ending(*BOTH):
        dropped = Dropped()
        del dropped
        time.sleep(60)
    assert ended.value.code == 143 and capfd.readouterr().err == ""
    assert sys.unraisablehook is before


def test_it_waits_until_what_must_not_be_cut_is_done(interruptible):
    done = []

    @held()
    def save():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        done.append("saved")

    with pytest.raises(SystemExit) as ended, ending(*BOTH):
        with held():
            save()
            done.append("the outer block")
        done.append("not reached")
    assert ended.value.code == 143 and done == ["saved", "the outer block"]
    with pytest.raises(SystemExit), ending(*BOTH), held():
        signal.raise_signal(signal.SIGTERM)
        raise KeyError  # also where it fails


def test_the_block_hears_of_what_it_defers_and_the_other_signal_ends_it(interruptible):
    with pytest.raises(SystemExit) as ended, ending(*BOTH), held(signal.SIGTERM) as came:
        signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
    assert ended.value.code == 143
    with pytest.raises(SystemExit) as ended, ending(*BOTH), held(signal.SIGTERM):
        signal.raise_signal(signal.SIGINT)
    assert ended.value.code == 130


def test_handlers_are_put_back_and_what_is_ignored_stays_ignored():
    before = [signal.getsignal(signum) for signum in BOTH]
    with ending(*BOTH), held():
        pass
    assert [signal.getsignal(signum) for signum in BOTH] == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        with ending(*BOTH), held():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before[BOTH.index(signal.SIGINT)])
