"""The state machine of the `h2` package, set up for one side of a connection, where a fault on one stream
ends that stream and no other (RFC 9113 section 5.4.2).

Guarantees: more streams than were announced are handed out, for whoever takes them to refuse (section 5.1.2:
REFUSED_STREAM, which a client may send again; many send their first hundreds before they have read our
SETTINGS); trailers without END_STREAM and an interim answer that ends its stream reset the stream (section
8.1). What breaks the state that streams share (field compression, a stream's number, the connection's
window) ends the connection as ever.
Not here: how long a body is against its Content-Length, which its reader looks at; floods (_h2_gate.py).
Before editing: a stream of `h2` has no public place for this, so the class of one is changed once it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, StreamReset
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from h2.stream import H2Stream

_UNBOUNDED = 2**31 - 1


class Machine(H2Connection):
    """An `H2Connection` that has announced `settings` and has `window` bytes for all of its streams."""

    def __init__(self, *, server: bool, settings: dict[SettingCodes, int], window: int) -> None:
        super().__init__(
            H2Configuration(  # heads are read and written by _h2_head.py, strictly and once
                client_side=not server,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.local_settings = Settings(client=not server, initial_values=settings)
        self.initiate_connection()
        self.increment_flow_control_window(window - 65535)  # RFC 9113 section 6.9.2: it begins at 65535
        lenient = settings | {SettingCodes.MAX_CONCURRENT_STREAMS: _UNBOUNDED}
        self.local_settings = Settings(client=not server, initial_values=lenient)

    def _begin_new_stream(self, *args: Any, **options: Any) -> H2Stream:
        stream = super()._begin_new_stream(*args, **options)
        stream.__class__ = _Stream
        return stream


class _Stream(H2Stream):
    def receive_headers(self, *args: Any, **options: Any) -> tuple[list[Any], list[Event]]:
        try:
            return super().receive_headers(*args, **options)
        except StreamClosedError:
            raise  # `h2` makes a reset of it, or of a stream that has ended twice over the connection's end
        except ProtocolError:
            code = ErrorCodes.PROTOCOL_ERROR
            reset = StreamReset(stream_id=self.stream_id, error_code=code, remote_reset=False)
            return self.reset_stream(code), [reset]

    def _initialize_content_length(self, headers: Iterable[Any]) -> None:
        pass

    def _track_content_length(self, length: int, end_stream: bool) -> None:
        pass
