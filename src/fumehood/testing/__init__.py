"""Conformance checks and fakes for people who write their own stores, logs, providers and back ends."""

from __future__ import annotations

from fumehood.testing.agent import check_content_store, check_event_log
from fumehood.testing.providers import check_provider
from fumehood.testing.sandbox import check_sandbox_backend

__all__ = ["check_content_store", "check_event_log", "check_provider", "check_sandbox_backend"]
