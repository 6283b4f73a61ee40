"""Launcher of a command under Landlock: restricts it, supervises what it starts, and ends all of it together.

    confine.py NAME=VALUE … -- PROGRAM [ARGUMENT …]      the names: those of `Options`

Three processes: the first is the one that others know, and is killed to end the command; the second, the supervisor,
adopts every process that loses its parent, makes some calls in its place (`answer.py`), and kills all that is left; the
third becomes the command. The supervisor is in a group of its own, so that it outlives the first; the first kills what
is left where the supervisor was killed.

Both kill everything that their signals reach, in one step that no process forks out of: each is under a restriction of
its own, by which they reach what they started and nothing else. It imports little, for it is in the way of every
command.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys

_signal = __import__("_signal")  # the C module: importing its Python wrapper takes some 5 ms
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
_answer = __import__("answer")  # beside this file, which is not in a package where it runs
_LIBC = ctypes.CDLL(None, use_errno=True)
_LEFT = _signal.SIGRTMAX
"""Signals the supervisor that the first process has ended."""

_CREATE, _ADD, _RESTRICT, _GET_DESCRIPTOR = 444, 445, 446, 438
"""landlock_create_ruleset, landlock_add_rule, landlock_restrict_self, pidfd_getfd: on every architecture."""
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_DEATH_SIGNAL, _BOUNDING_DROP, _NO_NEW_PRIVILEGES, _SUBREAPER = 1, 24, 38, 36
_CAPABILITIES = 0x20080522
"""The third version of the kernel's capability sets."""
_LAST_CAPABILITY = 63

_ALL = (1 << 16) - 1
"""Every right to files of Landlock's fifth version."""
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, read directories
_WRITE = _READ | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14
"""And write, remove, make directories, files, pipes and links, move between folders, truncate."""
_OF_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_DEVICE = 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_TCP = 3
_SIGNALS = 2
_SCOPES = 3
"""Abstract sockets, signals: of processes under the same restriction alone."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

_CLOSE, _EVERY = 436, 0xFFFFFFFF
"""close_range, which Python replaces by a loop where it was built for an older system."""
_EVEN_CLONED = 0x40000000
"""__WALL: children that report their end with another signal, too."""
_LIKELY_TO_GO = b"1000"
_FILTER_FLAGS = 1 << 3 | 1 << 5
"""A listener; once the supervisor has a call, signals other than SIGKILL wait for its answer."""
_NOT_STARTED = 125
_KILLED = 128 + 9


class Options:
    """Permissions of the command, and the descriptors of its start."""

    def __init__(self, words: list[str]) -> None:
        """Read `NAME=VALUE`; `read` and `write` come once for each path."""
        values: dict[str, list[str]] = {}
        for word in words:
            name, _, value = word.partition("=")
            values.setdefault(name, []).append(value)
        self.status = int(values["status"][0])
        """Descriptor on which the first process is reported."""
        self.alive = int(values["alive"][0])
        """Descriptor that is open as long as anything of the command lives; without a reader the command ends."""
        self.filter = int(values["filter"][0])
        """Descriptor with the filter of its calls."""
        self.asked = {int(number): name for number, _, name in (one.partition(":") for one in values["asked"])}
        """Names of the calls that the supervisor makes, by number."""
        self.network = values["network"][0] == "yes"
        self.cwd = values["cwd"][0]
        self.read = values.get("read", [])
        self.write = values.get("write", [])


def main(options: Options, program: list[str]) -> None:
    """Run the program; does not return. Exits with its status, 128 + N where a signal ended it."""
    first = os.getpid()
    os.write(options.status, f'{{"child-pid": {first}}}\n'.encode())
    os.close(options.status)
    _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
    _reach_nothing_but(os.getppid())
    supervisor = os.fork()
    if not supervisor:
        status = _NOT_STARTED
        try:
            status = _supervise(options, program, first)
        finally:
            _end_all()
            os._exit(status)
    os.close(options.alive)
    os.closerange(0, 3)  # the command's output ends with the command
    _, status = os.waitpid(supervisor, 0)
    _end_all()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else _KILLED)


def _reach_nothing_but(outside: int) -> None:
    """Restrict our signals to what we start. `outside` is a process that they reach before, and must not any more.

    The check by `kill(outside, 0)` proves the restriction: without it, `_end_all` would kill every process of the user.
    """
    rights = struct.pack("=QQQ", 0, 0, _SIGNALS)
    rules = _checked(_LIBC.syscall(_CREATE, rights, len(rights), 0))
    _checked(_LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_LIBC.syscall(_RESTRICT, rules, 0))
    os.close(rules)
    try:
        os.kill(outside, 0)
    except PermissionError:
        return
    os._exit(_NOT_STARTED)  # it has gone, or there is no restriction


def _supervise(options: Options, program: list[str], first: int) -> int:
    """Start the command, and return its status once it has ended or its owner has gone.

    Two pipes between the forks: `started` brings the number of the listener from the command to the supervisor, `heard`
    the permission to go on, once it has the listener.
    """
    os.setpgid(0, 0)
    _LIBC.prctl(_DEATH_SIGNAL, _LEFT, 0, 0, 0)
    _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
    _reach_nothing_but(first)
    started, tell = os.pipe()
    heard, hear = os.pipe()
    command = os.fork()
    if not command:
        os.close(started)
        os.close(hear)
        _become(options, program, tell, heard)
    os.close(tell)
    os.close(heard)
    for number in set(_signal.valid_signals()) - {_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD, _LEFT}:
        _signal.signal(number, _signal.SIG_IGN)  # they are for the command; those of a terminal would stop us
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    for number in (_signal.SIGCHLD, _LEFT):
        _signal.signal(number, _wake)
    _signal.set_wakeup_fd(wake)
    is_left = os.getppid() != first
    number = os.read(started, 4)
    listener = -1
    if number:
        handle = os.pidfd_open(command)
        listener = _LIBC.syscall(_GET_DESCRIPTOR, handle, int.from_bytes(number, sys.byteorder), 0)
        os.close(handle)
        os.write(hear, b"x" if listener >= 0 else b"")
    for descriptor in (*range(3), started, hear):
        os.close(descriptor)
    status = _KILLED if is_left else _serve(listener, woken, command, options)
    if listener >= 0:
        os.close(listener)  # what still waits for an answer gets an error
    return status


def _wake(number: int, frame: object) -> None:
    """Do nothing: the descriptor of `set_wakeup_fd` becomes readable."""


def _serve(listener: int, woken: int, command: int, options: Options) -> int:
    """Answer the calls of the command until it ends, or those who want it go; return its status."""
    answers = _answer.Answers(listener, options.asked, options.write)
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    poll.register(options.alive, 0)  # an error there: it has no reader any more
    if listener >= 0:
        poll.register(listener, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == listener and event & select.POLLIN:
                answers.answer()
            elif descriptor == listener:
                poll.unregister(listener)
            elif descriptor == options.alive or _LEFT in os.read(woken, 64):
                return _KILLED
            else:
                status = _reaped(command)
                if status is not None:
                    return status


def _reaped(command: int) -> int | None:
    """Take leave of processes that have ended; return the status of the command where it is among them."""
    found = None
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not process:
            return found
        if process == command:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else 128 - code


def _end_all() -> None:
    """Kill everything that our signals reach: what we started, and its descendants.

    One `kill(-1)` reaches all at once, so that no process forks out of it; what is adopted meanwhile is killed next.
    """
    while True:
        _LIBC.kill(-1, _signal.SIGKILL)
        try:
            os.waitpid(-1, _EVEN_CLONED)
        except ChildProcessError:
            return


def _become(options: Options, program: list[str], tell: int, heard: int) -> None:
    """Take the restrictions, and become the command; does not return."""
    try:
        os.setpgid(0, 0)
        if os.isatty(0):
            _signal.signal(_signal.SIGTTOU, _signal.SIG_IGN)
            os.tcsetpgrp(0, os.getpid())
            _signal.signal(_signal.SIGTTOU, _signal.SIG_DFL)
        os.chdir(options.cwd)
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(_LIKELY_TO_GO)  # where memory runs out: before the supervisor, and before anything else
        _restrict(options)
        with open(options.filter, "rb") as file:
            listener = _filter(file.read())
        os.write(tell, listener.to_bytes(4, sys.byteorder))
        if not os.read(heard, 1):
            raise OSError(errno.EPERM, "nothing answers its calls")
        _checked(_LIBC.syscall(_CLOSE, 3, _EVERY, 0))
        # The program would inherit what Python ignores, and what our own start ignored: a shell's `&`, `nohup`.
        for number in set(_signal.valid_signals()) - {_signal.SIGKILL, _signal.SIGSTOP}:
            _signal.signal(number, _signal.SIG_DFL)
        os.execvp(program[0], program)
    except OSError as error:
        os.write(2, f"{program[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(_NOT_STARTED)


def _restrict(options: Options) -> None:
    """Give up every right to files but those of the options, every capability, and gains by setuid programs."""
    rights = struct.pack("=QQQ", _ALL, 0 if options.network else _TCP, _SCOPES)
    rules = _checked(_LIBC.syscall(_CREATE, rights, len(rights), 0))
    terminal = [os.ttyname(0)] if os.isatty(0) else []
    for paths, right in (
        (options.read, _READ),
        (options.write, _WRITE),
        ((*_DEVICES, *terminal), _DEVICE),
    ):
        for path in paths:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:  # it is not there, and need not be
                continue
            is_folder = os.path.isdir(path)
            rule = struct.pack("=Qi", right if is_folder else right & _OF_FILE, place)
            _checked(_LIBC.syscall(_ADD, rules, 1, rule, 0))
            os.close(place)
    for number in range(_LAST_CAPABILITY + 1):
        _LIBC.prctl(_BOUNDING_DROP, number, 0, 0, 0)  # refused to who has none to give up
    _checked(_LIBC.capset(struct.pack("=Ii", _CAPABILITIES, 0), bytes(24)))
    _checked(_LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_LIBC.syscall(_RESTRICT, rules, 0))
    os.close(rules)


def _filter(program: bytes) -> int:
    """Install a filter; return the descriptor that brings the calls which are asked about."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    given = Program(len(program) // 8, program)
    return _checked(_LIBC.syscall(_SECCOMP[os.uname().machine], 1, _FILTER_FLAGS, ctypes.byref(given)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    _divide = sys.argv.index("--")
    main(Options(sys.argv[1:_divide]), sys.argv[_divide + 1 :])
