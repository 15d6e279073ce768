"""The child package with walls taken out, for tests: found before the real one, and made of it but for
`launch`.

The host starts this folder instead of `isolate/child` when the runner says so. Stdlib-only, like what it
stands in for.
"""

from pathlib import Path

REAL = Path(__file__).resolve().parents[3] / "isolate" / "child"
__path__.append(str(REAL))
