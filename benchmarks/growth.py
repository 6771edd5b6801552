"""Check Table 1 by time: exit with 1 if the time of a layer does not grow as in the paper.

python -m benchmarks.growth
"""

import sys

from multihead.paper import table1

LENGTH_BOUND = 0.3  # largest difference of a fitted exponent of n from the paper's
SHORT, SHORT_BOUND = 1024, 0.5  # a layer that is measured up to fewer positions has not left its overhead behind
WIDTH_BOUND = 0.5  # the same for d: narrow layers have overhead, and large matrix products are more efficient


def main() -> int:
    found = [table1.measure(layer) for layer in table1.LAYERS]
    table1.to_table(found).show()
    wrong = [
        f"{one.layer.name}: n^{one.n_exponent:.2f} d^{one.d_exponent:.2f}, expected n^{one.layer.n_exponent} "
        f"d^{one.layer.d_exponent}"
        for one in found
        if abs(one.n_exponent - one.layer.n_exponent) > (LENGTH_BOUND if max(one.lengths) > SHORT else SHORT_BOUND)
        or abs(one.d_exponent - one.layer.d_exponent) > WIDTH_BOUND
    ]
    print("\n".join(wrong) or "every exponent agrees with the paper", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
