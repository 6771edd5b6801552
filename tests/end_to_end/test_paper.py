"""The commands of the paper as a user types them; those of the README are run in test_commands.py."""

from tests.end_to_end.test_commands import multihead
from tests.fault.test_bad_input import assert_refused


def test_misuse_is_said_in_words() -> None:
    assert_refused(multihead("paper", "table3", "--rows", "f", status=2), 2, "Table 3 has no row 'f'")
    assert_refused(multihead("paper", "table2", "nowhere", status=1), 1, "'nowhere' is not a preset")
