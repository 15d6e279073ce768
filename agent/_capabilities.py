"""Which media a model takes: an allowlist by model family, and the check that runs before anything is fetched
or sent.

Guarantees: a model that no line of the tables names takes text and tool calls only (R148, R158); so does any
model behind a base URL that is not the vendor's own (R160); what the operator configured always wins, `{}`
included (R161). Asking for more is a refusal, never a silent loss (R162). A new family needs one line here
before it is trusted with media (R159).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fumehood.agent._errors import UnsupportedModalityError
from fumehood.agent._parts import (
    AudioPart,
    Capabilities,
    FilePart,
    ImagePart,
    MediaPart,
    RefSource,
    Request,
    ToolResultPart,
)

TEXT_ONLY: Final = Capabilities()

_WEB_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_CLAUDE: Final = Capabilities(image=_WEB_IMAGES, file=("application/pdf",))
_GPT: Final = Capabilities(image=_WEB_IMAGES, file=("application/pdf",))
_GPT_AUDIO: Final = Capabilities(audio=("audio/wav", "audio/mpeg", "audio/mp3"))
_GEMINI: Final = Capabilities(
    image=("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
    audio=("audio/wav", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/flac", "audio/aac", "audio/aiff"),
    file=("application/pdf", "text/*"),
)

# First match wins. The families are the vendors' own names; R154 to R157 say which are known to take media.
ANTHROPIC: Final = (
    (re.compile(r"claude-3-[05]-?.*|claude-3-(?:opus|sonnet|haiku).*"), _CLAUDE),
    (re.compile(r"claude-(?:[3-9]|[1-9]\d)(?:[.-].*)?"), _CLAUDE.model_copy(update={"reasoning": True})),
    (
        re.compile(r"claude-[a-z]+-(?:[4-9]|[1-9]\d)(?:[.-].*)?"),
        _CLAUDE.model_copy(update={"reasoning": True}),
    ),
)
OPENAI: Final = (
    (re.compile(r"gpt-4o(?:-mini)?-audio.*|gpt-audio.*"), _GPT_AUDIO),
    (re.compile(r"gpt-4o.*|gpt-4\.1.*"), _GPT),
    (re.compile(r"gpt-5.*"), _GPT.model_copy(update={"reasoning": True})),
    (
        re.compile(r"(?:o1|o3)(?!.*-(?:mini|preview))(?:-.*)?|o4.*"),
        _GPT.model_copy(update={"reasoning": True}),
    ),
    (re.compile(r"(?:o1|o3)-(?:mini|preview).*"), Capabilities(reasoning=True)),
    (re.compile(r"gpt-4-turbo-\d{4}-\d{2}-\d{2}"), _GPT),
)
GEMINI: Final = (
    (
        re.compile(r"gemini-(?:2\.5|[3-9](?:\.\d+)?|[1-9]\d)(?:-.*)?"),
        _GEMINI.model_copy(update={"reasoning": True}),
    ),
    (re.compile(r"gemini-(?:1\.5|2(?:\.\d+)?)(?:-.*)?|gemini-(?:pro|flash|flash-lite)-latest"), _GEMINI),
)

Table = tuple[tuple[re.Pattern[str], Capabilities], ...]


def capabilities_of(
    table: Table, model: str, *, own_url: bool, configured: Capabilities | None = None
) -> Capabilities:
    """What a model takes.

    own_url: whether the provider talks to the vendor's own address. configured: the operator's word, which
    wins.
    """
    if configured is not None:
        return configured
    if not own_url:
        return TEXT_ONLY
    return next((found for pattern, found in table if pattern.fullmatch(model)), TEXT_ONLY)


def media_parts(request: Request) -> Iterator[tuple[str, MediaPart, bool]]:
    """Every media part with its path, and whether a tool result holds it."""
    for index, message in enumerate(request.messages):
        parts = message.content
        if isinstance(parts, (str, dict)):
            continue
        for at, part in enumerate(parts):
            path = f"messages[{index}].content[{at}]"
            if isinstance(part, (ImagePart, AudioPart, FilePart)):
                yield path, part, False
            elif isinstance(part, ToolResultPart) and not isinstance(part.content, (str, dict)):
                for inner_at, inner in enumerate(part.content):
                    if isinstance(inner, (ImagePart, AudioPart, FilePart)):
                        yield f"{path}.content[{inner_at}]", inner, True


def assert_request_supported(
    request: Request | Mapping[str, Any],
    capabilities: Capabilities | Mapping[str, Any] | None,
    *,
    can_resolve: bool = True,
) -> None:
    """Refuse a request with media that the provider has not declared (R149).

    capabilities: None means none. can_resolve: whether a resolver is there for references (R117).
    Raises: UnsupportedModalityError, before any resolution and any network call.
    """
    if not isinstance(request, Request):
        request = Request.model_validate(request)
    declared = (
        capabilities
        if isinstance(capabilities, Capabilities)
        else Capabilities.model_validate(capabilities or {})
    )
    for path, part, _ in media_parts(request):
        accepted: tuple[str, ...] = getattr(declared, part.type) or ()
        if not _accepts(accepted, part.media_type):
            takes = ", ".join(accepted) or f"no {part.type} at all"
            raise UnsupportedModalityError(
                path,
                f"{part.media_type} was not declared by this provider (it takes {takes})",
                hint=(
                    "use a model that takes it, or declare it in the provider's capabilities when "
                    "you know that it does"
                ),
            )
        if isinstance(part.source, RefSource) and not can_resolve:
            raise UnsupportedModalityError(
                path,
                "a reference to stored content, and no resolver to read it with",
                hint="give the effect a resolve_content",
            )


def _accepts(accepted: tuple[str, ...], media_type: str) -> bool:
    top = media_type.partition("/")[0]
    return media_type in accepted or f"{top}/*" in accepted or "*" in accepted
