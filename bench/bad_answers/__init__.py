"""Answers that are wrong, nearly right or hostile: one module a benchmark, and what all share.

The red team bounds what they earn, the fuzzer starts from them, and `bench.agreement` compares verdicts on
them.
"""
