"""`fumehood demo`: the main job, offline, on a small world of our own.

world: servers on loopback and a copy of examples/demo. tour: real calls through a real Host, each checked.
report: what a person sees.
"""

from fumehood._demo.tour import Call, Line, Tour, take_tour
from fumehood._demo.world import World, open_world

__all__ = ["Call", "Line", "Tour", "World", "open_world", "take_tour"]
