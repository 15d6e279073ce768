"""Promises of agent: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "agent:acknowledged-is-on-disk",
        "A row whose id was returned survives kill -9 of the host at any instant.",
        "design.md invariant 10",
    ),
    (
        "agent:one-chain",
        "Any number of processes append to one log and leave one unbroken chain.",
        "design.md D9",
    ),
    (
        "agent:tampering-shows",
        "An altered, removed, inserted or reordered row is found and named.",
        "contract.md section 7",
    ),
    (
        "agent:cut-tail-needs-anchor",
        (
            "A cut tail shows against an anchor kept outside the log, and the documents say that it "
            "does not show without."
        ),
        "docs/log.md",
    ),
    (
        "agent:hostile-values-are-kept",
        "No value that a tool can send keeps an event out of the log or breaks its chain.",
        "design.md invariant 7",
    ),
    (
        "agent:refusals-fold",
        "Every egress refusal of an execution is under variables['_egress'].",
        "R022, R023",
    ),
    (
        "agent:private-files",
        "The log and the store are readable by their owner alone.",
        "design.md invariant 4",
    ),
    (
        "agent:never-rewrites-foreign-files",
        "A file of another program or of a newer fumehood is refused and left as it was.",
        "docs/log.md",
    ),
    (
        "agent:store-is-crash-safe",
        "A put that was killed at any step leaves the store readable, and no acknowledged content is lost.",
        "design.md invariant 10",
    ),
    ("agent:digest-on-read", "Bytes that the disk changed are never returned.", "docs/store.md"),
    (
        "agent:owners-are-a-set",
        "Identical bytes have every putter as owner and are erased when the last one leaves.",
        "R144, R145, R146",
    ),
]
PROMISES += [
    ("agent:taint-survives", "A taint mark survives the log, a replay and serialization.", "R028, R029"),
    (
        "agent:tainted-only-in-fences",
        "Tainted content reaches a model only inside a fence in a user message.",
        "R032, design.md invariant 8",
    ),
    (
        "agent:fence-cannot-be-closed",
        "No text and no origin can close or open the fence it stands in.",
        "R469",
    ),
    ("agent:text-passes-untouched", "A request of plain text comes out of the guard byte for byte.", "R066"),
    (
        "agent:untrusted-chooses-no-blob",
        "An untrusted party never chooses which stored bytes enter a prompt.",
        "R057, R058, design.md invariant 9",
    ),
]
PROMISES += [
    (
        "agent:guard-raises-only-its-errors",
        "The guard raises its named errors and nothing else, whatever JSON it gets.",
        "issue 6",
    ),
    (
        "agent:no-media-letters-in-text",
        "No base64 of media stands in any text that goes to a model.",
        "issue 6, field report A9",
    ),
    (
        "agent:untrusted-media-bracketed",
        "Untrusted media stand between the fence's tags wherever a wire moves them.",
        "R051, R055",
    ),
    (
        "agent:providers-conform",
        "Every shipped provider passes the conformance check that third parties are given.",
        "R452 to R457",
    ),
    (
        "agent:media-only-as-declared",
        "Only an untainted output of a tool that the operator declared returns media.",
        "R103, R104",
    ),
    (
        "agent:reasoning-never-in-the-log",
        "Readable reasoning is in a sealed blob and nowhere in the log.",
        "R312, R331, R334",
    ),
    (
        "agent:reasoning-is-sealed",
        "Captured reasoning is read back by the execution it belongs to and by no other.",
        "R344",
    ),
    (
        "agent:an-address-opens-nothing",
        "From outside, stored content is opened by a ticket and never by its address alone.",
        "issue 6",
    ),
    (
        "agent:guard-is-linear",
        "Twice the request is at most twice the guard's work, whatever shape it has.",
        "issue 6",
    ),
]
PROMISES += [
    (
        "agent:what-a-vendor-said-goes-back",
        "What a vendor says with a part, such as citations, goes back to it with the part, and to no other.",
        "R185, docs/providers.md",
    ),
    (
        "agent:redacted-reasoning-is-never-at-rest",
        "What a redaction policy takes out of reasoning is never stored, shown live or given to an audit.",
        "R298, R486",
    ),
    (
        "agent:no-half-answers",
        "An answer that is cut off, endless, repeated or no answer at all is an error with a name.",
        "issue 6, design.md invariant 7",
    ),
]
