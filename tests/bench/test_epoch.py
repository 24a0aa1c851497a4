"""The table of where an epoch's time goes."""

import epoch

LINE = {
    "step": 1,
    "host_share": 0.3,
    "programs/compiled": 2,
    "programs/loaded": 1,
    "sampling/prefill": 1.0,
    "sampling/decode": 2.0,
    "seconds/generate": 1.5,
    "seconds/interact": 1.5,
    "seconds/evaluate (greedy)": 1.0,
    "seconds/verify": 0.5,
    "seconds/update agent": 3.0,
    "seconds/host": 2.5,
    "seconds/total": 10.0,
}


def cells(table):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_the_table():
    second = LINE | {
        "step": 2,
        "host_share": 0.1,
        "programs/compiled": 0,
        "seconds/checkpoint": 0.0,
    }
    third = second | {"step": 3, "host_share": 0.3, "seconds/total": 30.0, "seconds/host": 22.5}
    table = cells(epoch.table([LINE, second, third]))
    assert list(table)[-4:] == ["total", "**host's share**", "programs compiled", "programs loaded"]
    assert table["seconds"] == ["epoch 1", "epoch 2", "epoch 3", "share after epoch 1"]
    assert table["host"] == ["2.500", "2.500", "22.500", "62.5%"]  # 25 of 40 seconds
    assert table["total"][-1] == "100.0%"
    assert table["**host's share**"] == ["30.0%", "10.0%", "30.0%", "**25.0%**"]
    assert table["programs compiled"] == ["2", "0", "0", ""]
