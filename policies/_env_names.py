"""Environment names that a configuration may not set, each with what would obey it.

Guarantees: no name in `env` makes a loader, an interpreter or a widely used program run code or read code
from another place before the tool's own first line. `PATH` is the operator's to set and is not here; neither
is what only places data (HOME, TMPDIR, LANG, TZ, SSL_CERT_FILE, PYTHONUNBUFFERED) or names a program that a
person would see started (EDITOR, PAGER).
Not a wall: a tool may set any name for the programs it starts itself. The cage holds; this list only keeps
the start of a tool what the file says it is.
Before editing: an entry that ends in "*" stands for every name with that beginning. Each reason completes the
sentence "this name is reserved: …".
"""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""What a name may look like (POSIX portable names, letter case free); exported bash functions fall
outside."""

RESERVED: dict[str, str] = {
    # --- the dynamic loader and the C library: obeyed by every program that is not static -------------------
    "LD_*": "the loader reads it and may load other libraries first",  # PRELOAD, LIBRARY_PATH, AUDIT, DEBUG…
    "GLIBC_TUNABLES": "the loader parses it before anything else runs",  # CVE-2023-4911 began here
    "GCONV_PATH": "the C library loads character set converters from it as code",
    "GETCONF_DIR": "getconf runs programs from it",
    "LOCPATH": "the C library reads compiled locales from it",
    "NLSPATH": "the C library reads format strings from it",
    "HOSTALIASES": "the C library renames hosts by it, and names are the broker's to judge",
    "LOCALDOMAIN": "the C library completes host names by it, and names are the broker's to judge",
    "RES_OPTIONS": "the C library's resolver obeys it, and names are the broker's to judge",
    "RESOLV_HOST_CONF": "the C library's resolver obeys it, and names are the broker's to judge",
    # --- OpenSSL: loaded into Python, curl, git and Node alike ----------------------------------------------
    "OPENSSL_CONF": "OpenSSL loads providers and engines that its file names",
    "OPENSSL_ENGINES": "OpenSSL loads engines from it as code",
    "OPENSSL_MODULES": "OpenSSL loads providers from it as code",
    # --- Python ---------------------------------------------------------------------------------------------
    "PYTHONPATH": "Python imports modules from it before its own",
    "PYTHONHOME": "Python takes its standard library from it",
    "PYTHONPLATLIBDIR": "Python takes its standard library from it",
    "PYTHONUSERBASE": "Python imports modules and runs .pth lines from it",
    "PYTHONSTARTUP": "Python runs the file it names",
    "PYTHONINSPECT": "Python goes on reading commands after the program",
    "PYTHONBREAKPOINT": "Python imports and calls what it names",
    "PYTHONWARNINGS": "Python imports the module of the category it names",
    "PYTHONEXECUTABLE": "Python believes it about where it was installed",
    "PYTHONPYCACHEPREFIX": "Python takes compiled modules from it",
    "PYTHONCASEOK": "Python matches module names to files in another way",
    "PYTHON_PRESITE": "Python imports the module it names before site",  # debug builds, 3.13
    # --- shells ---------------------------------------------------------------------------------------------
    "ENV": "sh runs the file it names",
    "BASH_ENV": "bash runs the file it names before a script",
    "SHELLOPTS": "bash switches on the options it lists",
    "BASHOPTS": "bash switches on the options it lists",
    "PS4": "a tracing shell runs the commands in it",
    "PROMPT_COMMAND": "bash runs it before each prompt",
    "ZDOTDIR": "zsh runs the start files in it",
    "CDPATH": "a shell's cd goes elsewhere by it",
    # --- other interpreters ---------------------------------------------------------------------------------
    "NODE_OPTIONS": "Node obeys it as command line options, --require among them",
    "NODE_PATH": "Node takes modules from it",
    "NODE_REPL_EXTERNAL_MODULE": "Node loads the module it names",
    "PERL5OPT": "Perl obeys it as command line options, -M among them",
    "PERL5LIB": "Perl takes modules from it before its own",
    "PERLLIB": "Perl takes modules from it before its own",
    "PERL5DB": "Perl runs it as code under its debugger",
    "RUBYOPT": "Ruby obeys it as command line options, -r among them",
    "RUBYLIB": "Ruby takes libraries from it before its own",
    "LUA_INIT*": "Lua runs it as code, or the file it names",  # also LUA_INIT_5_4 and its kin
    "LUA_PATH*": "Lua takes modules from it",
    "LUA_CPATH*": "Lua takes compiled modules from it",
    "PHPRC": "PHP takes its settings, auto_prepend_file among them, from it",
    "PHP_INI_SCAN_DIR": "PHP takes its settings, auto_prepend_file among them, from it",
    "R_PROFILE": "R runs the file it names",
    "R_PROFILE_USER": "R runs the file it names",
    "TCLLIBPATH": "Tcl takes packages from it",
    "GUILE_LOAD_PATH": "Guile takes modules from it",
    "JAVA_TOOL_OPTIONS": "the Java machine obeys it as command line options, -javaagent among them",
    "JDK_JAVA_OPTIONS": "the Java launcher obeys it as command line options",
    "_JAVA_OPTIONS": "the Java machine obeys it as command line options",
    "CLASSPATH": "Java takes classes from it",
    "DOTNET_STARTUP_HOOKS": ".NET loads the assemblies it names",
    "CORECLR_*": ".NET loads the profiler it names",
    "COR_PROFILER*": ".NET loads the profiler it names",
    # --- git: variables by which it runs another program, or reads settings that name one -------------------
    "GIT_SSH": "git runs the program it names",
    "GIT_SSH_COMMAND": "git runs it as a command",
    "GIT_PROXY_COMMAND": "git runs it as a command",
    "GIT_EXTERNAL_DIFF": "git runs it as a command",
    "GIT_ASKPASS": "git runs the program it names",
    "GIT_EDITOR": "git runs it as a command",
    "GIT_SEQUENCE_EDITOR": "git runs it as a command",
    "GIT_PAGER": "git runs it as a command",
    "GIT_EXEC_PATH": "git takes its own subprograms from it",
    "GIT_TEMPLATE_DIR": "git copies hooks from it into new repositories",
    "GIT_CONFIG*": "git reads settings by it, and settings name commands",  # GLOBAL, SYSTEM, COUNT, KEY_n…
    "GIT_ALLOW_PROTOCOL": "git allows transports by it, and ext:: runs commands",
    "SSH_ASKPASS": "ssh and git run the program it names",
    # --- helpers of common programs -------------------------------------------------------------------------
    "LESSOPEN": "less runs it as a command for every file",
    "LESSCLOSE": "less runs it as a command for every file",
    "MANPAGER": "man runs it as a command",
    # --- our own --------------------------------------------------------------------------------------------
    "FUMEHOOD_*": "names with this beginning belong to fumehood itself",
}


def reserved_reason(name: str) -> str | None:
    """Why `name` may not be set, or None when it may.

    Letter case counts, as it does for those who obey it.
    """
    if name in RESERVED:
        return RESERVED[name]
    for pattern, why in RESERVED.items():
        if pattern.endswith("*") and name.startswith(pattern[:-1]):
            return why
    return None
