"""The table form of an egress rule, as a model. Only `config_schema()` uses it: the reader is
rules.parse_rule.

A test holds that the keys here are the keys that the reader knows.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SecretTemplate(BaseModel):
    """A header that the broker fills in."""

    model_config = ConfigDict(extra="forbid")
    header: str = Field(description='Name of the header, such as "Authorization".')
    value: str = Field(description='Template such as "Bearer {PROM_TOKEN}"; the name is one of [secrets].')


class EgressTable(BaseModel):
    """One egress rule as a table.

    The string form is `[METHODS ][scheme://]host[:port][/prefix][ +private]`.
    """

    model_config = ConfigDict(extra="forbid")
    host: str = Field(description='A name, "*.x" (any depth below x, never x), "*", or an IP literal.')
    port: int | None = Field(default=None, ge=1, le=65535, description="Default: the scheme's own port.")
    scheme: Literal["https", "http", "tcp", "wss", "ws", "any"] | None = Field(
        default=None, description="Default: https without a port, any protocol with one."
    )
    methods: list[str] | str | None = Field(
        default=None, description="HTTP methods in capitals; all when absent."
    )
    paths: list[str] | str | None = Field(default=None, description="Path prefixes; all when absent.")
    private: bool = Field(
        default=False, description="Non-public answers are allowed; metadata addresses never."
    )
    secret: SecretTemplate | None = Field(
        default=None, description="A header the broker fills in for this origin."
    )
    max_request: int | str | None = Field(default=None, description="Size of a request body.")
    max_response: int | str | None = Field(default=None, description="Size of a response body.")
    rate: str | None = Field(default=None, description='Requests in time: "10/s", "100/m", "1000/h".')
    max_connections: int | None = Field(default=None, ge=1, description="Connections at once.")
    timeout: float | None = Field(
        default=None, gt=0, le=86400, description="Seconds for one exchange or tunnel."
    )
    inspect: bool = Field(default=False, description="The broker opens the TLS and reads the HTTP inside.")
    websocket: bool = Field(default=False, description="An Upgrade to WebSocket is allowed.")
