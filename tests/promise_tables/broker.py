"""Promises of broker: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "broker:refused-name-never-resolved",
        "A name that policy refuses costs zero DNS queries.",
        "design invariant 2, R470, field report B: E1",
    ),
    (
        "broker:no-unjudged-address",
        (
            "A connection goes only to an address that was judged for this request; one bad answer refuses "
            "the set."
        ),
        "design invariant 3, R472",
    ),
    (
        "broker:metadata-never",
        (
            "Link-local and cloud metadata addresses are refused, with +private, with an entry of their "
            "own, in audit mode, in every spelling."
        ),
        "R472",
    ),
    (
        "broker:address-table",
        "Every special range has its class from our own table.",
        "IANA special-purpose registries, R472",
    ),
    (
        "broker:rebinding-changes-nothing",
        (
            "A name that resolves differently for the next request is judged again; the vetted address is "
            "dialled and nothing else."
        ),
        "R024",
    ),
    (
        "broker:lying-dns-reaches-nothing",
        (
            "A name server that lies, loops, truncates, is late or sends garbage leads to no unjudged "
            "address and to no hang."
        ),
        "R024",
    ),
    (
        "broker:deny-wins",
        "A deny entry of host or tool outranks every allow entry, in enforce and in audit mode.",
        "contract section 2",
    ),
    (
        "broker:one-spelling-of-a-host",
        "A host has one spelling; text with two readings is refused, never repaired.",
        "R473",
    ),
    ("broker:one-reading-of-a-url", "A URL goes out only in the form that two parsers read alike.", "R473"),
    (
        "broker:rule-errors-give-the-corrected-rule",
        "A bad rule is an error with place, value and, where known, the corrected rule.",
        "contract section 1",
    ),
    (
        "broker:every-refusal-has-a-reason",
        (
            "Each refusal carries a code of the vocabulary that fits the case, and a near miss says what "
            "differs."
        ),
        "design invariant 12",
    ),
    (
        "broker:row-before-first-byte",
        "EGRESS_ALLOWED is on disk before the dial, EGRESS_DENIED before the refusal returns.",
        "R022, contract section 7",
    ),
    (
        "broker:redirect-decided-again",
        "Each redirect hop is decided, resolved, judged and pinned as if it were asked for first.",
        "R471",
    ),
    (
        "broker:credentials-dropped-on-origin-change",
        "No header that could be a credential follows a redirect to another scheme, host or port.",
        "R471",
    ),
    (
        "broker:host-and-hop-headers-ours",
        "Host, hop-by-hop and proxy headers come from the broker alone.",
        "R474",
    ),
    (
        "broker:response-bounded",
        (
            "Bytes, header lines, interim answers and time of a response are bounded; a broken answer is "
            "an error, not a short success."
        ),
        "R474",
    ),
    (
        "broker:bombs-bounded",
        "A compressed bomb costs no more than the cap it runs into, in gzip, deflate, br and zstd.",
        "R474",
    ),
    ("broker:time-bounded", "A host that never answers, or never ends, is cut at the deadline.", "R474"),
    (
        "broker:event-streams-flow",
        "A piece of a streamed body is handed on before the next one arrives.",
        "field report B12",
    ),
    (
        "broker:connection-clean-or-closed",
        "A connection with one byte too many on it never answers another request.",
        "field report B16",
    ),
    (
        "broker:proxy-environment-ignored",
        "Proxy, netrc and certificate variables of the parent steer nothing.",
        "R475",
    ),
    (
        "broker:tls-verified-on-the-name",
        (
            "The certificate is verified for the decided name, against the system's store and the "
            "operator's file."
        ),
        "design D5",
    ),
    (
        "broker:no-network-outside-a-call",
        "Before a call has begun and after it has ended nothing goes out.",
        "design D1",
    ),
    (
        "broker:secret-bound-to-origin",
        "An injected secret goes to its rule's origin alone, and is in no event, error or echo.",
        "design invariant 4",
    ),
    (
        "broker:rate-bounded",
        "Requests over a rule's rate are refused with the time to wait.",
        "contract section 2",
    ),
    (
        "broker:server-name-equals-decision",
        (
            "Behind an https entry TLS passes only when its server name is the decided host; else the "
            "alert access_denied."
        ),
        "design D5",
    ),
    (
        "broker:no-request-smuggling",
        "A request head or body with two readings is refused and nothing of it is sent on.",
        "field report B30",
    ),
    (
        "broker:reload-ends-what-it-refuses",
        "A new policy is asked for the next request at once, and open tunnels it refuses end.",
        "issue 4.7",
    ),
    (
        "broker:no-way-around",
        "A tool that ignores DNS and proxy has no route to anything.",
        "design D3, R025, field report B33",
    ),
    (
        "broker:every-attempt-is-a-row",
        (
            "What no door takes (an odd port, a datagram, anything before the call) fails at once and is a "
            "row all the same, which no tool can forge and no flood can multiply without bound."
        ),
        "contract section 7, design D3, invariant 12",
    ),
    (
        "broker:literals-need-their-own-entry",
        "An IP literal is decided as a literal; no name, not even *, covers it.",
        "contract section 2",
    ),
    (
        "broker:clients-work-unchanged",
        (
            "Unmodified programs reach allowed hosts, and fail at once elsewhere, with the reason where "
            "they can show one."
        ),
        "issue 4, client matrix",
    ),
    (
        "broker:inspection-enforces-inside-tls",
        "With +inspect methods, paths and secrets hold inside TLS, and the upstream is verified as ever.",
        "design D5",
    ),
    (
        "broker:grpc-passes-inspection",
        (
            "Every kind of gRPC call passes +inspect with methods, paths and secrets enforced, and a refused "
            "one has a status and the reason."
        ),
        "design D5",
    ),
    (
        "broker:http2-floods-end",
        (
            "A flood of resets, empty frames or header blocks, from a child or a host, ends its connection; "
            "an honest amount of each does not."
        ),
        "CVE-2019-9512 to 9518, CVE-2023-44487, CVE-2024-27316, CVE-2025-8671",
    ),
    (
        "broker:nobody-keeps-the-loop",
        (
            "What a child or a host keeps ready, in chunks, records, frames or questions however small, "
            "leaves the event loop to others, deadlines among them."
        ),
        "design invariant: a tool cannot hang the host; CWE-400",
    ),
    (
        "broker:http2-streams-apart",
        "What is wrong with one stream of HTTP/2, a child's or a host's, ends that stream and no other.",
        "RFC 9113 sections 5.1.2, 5.4.2, 6.9 and 8.1.1",
    ),
    (
        "broker:http2-nothing-smuggled",
        (
            "No HTTP/2 head, body or trailer leaves as something that HTTP/1.1 or another reader could take "
            "for more than one."
        ),
        "RFC 9113 section 8.2, RFC 9113 section 10.3",
    ),
    (
        "broker:no-rule-past-an-override",
        (
            "Fields by which servers take a request for another method or path let nothing past the rules, "
            "in every door that reads HTTP."
        ),
        "contract section 2",
    ),
    (
        "broker:http2-no-coalescing",
        "A connection serves the one origin it was decided for; another :authority is 421 with a row.",
        "design D5, RFC 9110 section 15.5.20",
    ),
    (
        "broker:tunnel-budget-to-the-byte",
        "Not one byte over a tunnel's budget goes on, whether its bytes are copied or spliced.",
        "contract section 1 (max_request, max_response)",
    ),
    (
        "broker:tunnels-bounded-and-fair",
        (
            "A thousand idle and two hundred busy tunnels share the broker fairly, within 100 MB, and "
            "leave nothing behind."
        ),
        "issue 4, must hold",
    ),
]
