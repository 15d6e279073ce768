"""The calls of one turn until all of them are answered, over a pause and over the end of a process.

Guarantees: what a batch gives to the transcript is one user message with an answer to every call, in the
order of the calls (R483); answers that came before a pause are kept and are in it (R484); a call behind the
paused one that never ran is answered by a fixed sentence and named as such in data (R209, R253, R256);
nothing is answered twice, and the transcript holds nothing of a batch while one call waits. Pairing is by
position, since a vendor may use one id twice (R197). Pure values: whoever runs the calls keeps the batch, as
JSON, where it keeps the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fumehood.agent._parts import (
    Message,
    NotDispatched,
    PausedCall,
    ToolResultPart,
    ToolUsePart,
    tool_result_part,
)
from fumehood.agent._results import results_message

NOT_DISPATCHED: Final = (
    "This call was not run: the run stopped at the call of {tool} in the same turn. Ask again if it is still "
    "wanted."
)
"""What the model reads for a call that never ran. Nothing reads it back: the message says it as data too."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The calls of one assistant message. answers, not_run: by position; paused: the position that waits."""

    calls: tuple[ToolUsePart, ...]
    answers: Mapping[int, ToolResultPart] = field(default_factory=dict)
    paused: int | None = None
    stopped_at: int | None = None
    not_run: frozenset[int] = frozenset()

    @classmethod
    def of(cls, message: Message) -> Batch:
        """The calls of an assistant message, none answered."""
        content = message.content
        parts = () if isinstance(content, (str, dict)) else content
        return cls(tuple(part for part in parts if isinstance(part, ToolUsePart)))

    @property
    def open(self) -> tuple[int, ...]:
        """The positions without an answer, in order."""
        return tuple(at for at in range(len(self.calls)) if at not in self.answers)

    def answered(self, position: int, answer: ToolResultPart) -> Batch:
        """With one more answer. Raises: ValueError for a second one, or another call's."""
        call = self._call(position)
        if answer.tool_use_id != call.id:
            raise ValueError(f"call {position} is {call.id!r}; the answer is for {answer.tool_use_id!r}")
        return replace(
            self,
            answers={**self.answers, position: answer},
            paused=None if position == self.paused else self.paused,
        )

    def parked(self, position: int) -> Batch:
        """Waiting for an approval or an answer from outside at `position`. Raises: ValueError when that call
        has its answer, or another one waits.
        """
        self._call(position)
        if self.paused not in (None, position):
            raise ValueError(f"call {self.paused} waits already")
        return replace(self, paused=position, stopped_at=position)

    def settled(self) -> Batch:
        """Every call behind the one that the run stopped at that has no answer, answered as never run (R209).
        Unchanged when it never stopped. Raises: ValueError while a call still waits.
        """
        if self.paused is not None:
            raise ValueError(f"call {self.paused} waits; answer it first")
        if self.stopped_at is None:
            return self
        left = [at for at in self.open if at > self.stopped_at]
        sentence = NOT_DISPATCHED.format(tool=self.calls[self.stopped_at].name)
        made = {
            at: tool_result_part(self.calls[at].id, self.calls[at].name, sentence, is_error=True)
            for at in left
        }
        return replace(self, answers={**self.answers, **made}, not_run=self.not_run.union(left))

    def message(self) -> Message:
        """The one user message. Raises: ValueError while a call has no answer."""
        made = results_message(self.calls, self.answers)
        if not self.not_run or self.stopped_at is None:
            return made
        stopped = self.calls[self.stopped_at]
        mark = NotDispatched(
            paused_call=PausedCall(tool_call_id=stopped.id, tool_name=stopped.name),
            answers=tuple(sorted(self.not_run)),
        )
        return made.model_copy(update={"not_dispatched": mark})

    def to_json(self) -> dict[str, Any]:
        """The batch as it is kept with a run that waits."""
        return {
            "calls": [call.to_json() for call in self.calls],
            "answers": {str(at): answer.to_json() for at, answer in sorted(self.answers.items())},
            "paused": self.paused,
            "stopped_at": self.stopped_at,
            "not_run": sorted(self.not_run),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Batch:
        """A batch that was kept. Raises: KeyError, ValueError for what is none."""
        return cls(
            tuple(ToolUsePart.model_validate(call) for call in value["calls"]),
            {int(at): ToolResultPart.model_validate(answer) for at, answer in value["answers"].items()},
            value["paused"],
            value["stopped_at"],
            frozenset(value["not_run"]),
        )

    def _call(self, position: int) -> ToolUsePart:
        if not 0 <= position < len(self.calls):
            raise ValueError(f"there is no call {position}; the turn has {len(self.calls)}")
        if position in self.answers:
            raise ValueError(f"call {position} was answered before")
        return self.calls[position]
