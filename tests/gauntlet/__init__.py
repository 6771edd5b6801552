"""Attacks on the whole program, counted: `make gauntlet`, or `python -m tests.gauntlet [AREA ...] [--fast]`.

Each module is an area: a seeded list of cases, and `run(fast, folder)`, which returns a row of the table. `outcome`
runs commands with a limit on time and memory. The fast cases also run as tests (tests/fault/test_gauntlet.py).
"""
