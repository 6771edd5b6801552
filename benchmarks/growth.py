"""Table 1 by the clock: exits with 1 if a layer's time grows otherwise than the paper says.

python -m benchmarks.growth
"""

import sys

from multihead.paper import table1

LENGTH_BOUND = 0.3  # how far a fitted exponent of n may be from the paper's
WIDTH_BOUND = 0.5  # and one of d: narrow layers have overhead, and matrix products get better with size


def main() -> int:
    found = [table1.measure(layer) for layer in table1.LAYERS]
    table1.to_table(found).show()
    wrong = [
        f"{one.layer.name}: n^{one.n_exponent:.2f} d^{one.d_exponent:.2f}, expected n^{one.layer.n_exponent} "
        f"d^{one.layer.d_exponent}"
        for one in found
        if abs(one.n_exponent - one.layer.n_exponent) > LENGTH_BOUND
        or abs(one.d_exponent - one.layer.d_exponent) > WIDTH_BOUND
    ]
    print("\n".join(wrong) or "every exponent is as the paper says", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
