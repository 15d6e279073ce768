"""`fumehood bench`: figures of this machine, peers side by side.

isolate: the process per call and its targets. _areas: the other parts' own benchmarks behind one adapter.
_render: tables for people. Nothing here runs unless it is asked for, and no test asserts a time.
"""

from fumehood._bench._areas import AREAS, present, run_area
from fumehood._bench._model import Figure, Load, NotRun, Options, Report, Row, Section, Target
from fumehood._bench._render import show

__all__ = [
    "AREAS",
    "Figure",
    "Load",
    "NotRun",
    "Options",
    "Report",
    "Row",
    "Section",
    "Target",
    "present",
    "run_area",
    "show",
]
