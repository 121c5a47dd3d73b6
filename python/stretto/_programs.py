"""The command `stretto`, which runs the programs: `stretto chat MODEL`."""

import signal
import sys

from ._library import programs, run_program, version

_USAGE = f"""Usage: stretto PROGRAM [OPTION]...

Programs: {", ".join(programs)}
`stretto PROGRAM --help` lists the options of a program.
"""


def main():
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in programs:
        # Python's handler would run only after the program. An ignored SIGINT stays ignored (nohup).
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        return run_program(name, arguments)
    if name in ("--help", "-h", "--version"):
        print(f"stretto {version}" if name == "--version" else _USAGE, end="\n" * (name == "--version"))
        return 0
    print(f"stretto: unknown program {name}; accepted: {', '.join(programs)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
