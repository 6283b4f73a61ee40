"""Launcher of a command under Landlock: restricts it, supervises what it starts, and ends all of it together.

    confine.py NAME=VALUE … -- PROGRAM [ARGUMENT …]      the names: those of `Options`

Three processes: the first is the one that others know, and is killed to end the command; the second, the supervisor,
adopts every process that loses its parent, changes modes of files on the command's behalf, and kills all that is left;
the third becomes the command. The supervisor is in a group of its own, so that it outlives the first.

Landlock restricts what a process opens, not the modes of files that it names. The filter (`sandbox/seccomp.py`) hands
these calls to the supervisor, which makes them itself on the file that it found, inside the writable folders alone:
what the command changes meanwhile has no effect. It imports little, for it is in the way of every command.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct
import sys

__all__ = ["Options", "main"]

_signal = __import__("_signal")  # the C module: importing its Python wrapper takes some 5 ms
_LIBC = ctypes.CDLL(None, use_errno=True)
_LEFT = _signal.SIGRTMAX
"""Tells the supervisor that the first process has gone."""

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
_SCOPES = 3
"""Abstract sockets, signals: of processes under the same restriction alone."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND and _ID_VALID."""
_HERE, _EMPTY, _UNFOLLOWED = -100, 0x1000, 0x100
"""AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW."""
_PATH = 4096
_PAGE = 4096
_NOT_STARTED = 125
_KILLED = 128 + 9


class Options:
    """What the command may do, and the descriptors of its start."""

    def __init__(self, words: list[str]) -> None:
        """Read `NAME=VALUE`; `read` and `write` come once for each path."""
        values: dict[str, list[str]] = {}
        for word in words:
            name, _, value = word.partition("=")
            values.setdefault(name, []).append(value)
        self.status = int(values["status"][0])
        """Descriptor on which the first process is reported."""
        self.alive = int(values["alive"][0])
        """Descriptor that is open as long as anything of the command lives; where nobody reads it, the command ends."""
        self.filter = int(values["filter"][0])
        """Descriptor with the filter of its calls."""
        self.modes = {int(number): kind for number, _, kind in (one.partition(":") for one in values["modes"])}
        """Calls that change modes, by number, with the kind of their arguments."""
        self.network = values["network"][0] == "yes"
        self.cwd = values["cwd"][0]
        self.read = values.get("read", [])
        self.write = values.get("write", [])


def main(options: Options, program: list[str]) -> None:
    """Run the program; does not return. Exits with its status, 128 + N where a signal ended it."""
    first = os.getpid()
    os.write(options.status, f'{{"child-pid": {first}}}\n'.encode())
    os.close(options.status)
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
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _supervise(options: Options, program: list[str], first: int) -> int:
    """Start the command, and return its status once it has ended or nobody wants it any more."""
    os.setpgid(0, 0)
    _LIBC.prctl(_DEATH_SIGNAL, _LEFT, 0, 0, 0)
    _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
    told, tell = os.pipe()
    heard, hear = os.pipe()
    command = os.fork()
    if not command:
        os.close(told)
        os.close(hear)
        _become(options, program, tell, heard)
    os.close(tell)
    os.close(heard)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2):
        _signal.signal(number, _signal.SIG_IGN)  # they are for the command
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    for number in (_signal.SIGCHLD, _LEFT):
        _signal.signal(number, _wake)
    _signal.set_wakeup_fd(wake)
    is_left = os.getppid() != first
    number = os.read(told, 4)
    listener = -1
    if number:
        handle = os.pidfd_open(command)
        listener = _LIBC.syscall(_GET_DESCRIPTOR, handle, int.from_bytes(number, sys.byteorder), 0)
        os.close(handle)
        os.write(hear, b"x")
    for descriptor in (*range(3), told, hear):
        os.close(descriptor)
    status = _KILLED if is_left else _serve(listener, woken, command, options)
    if listener >= 0:
        os.close(listener)  # what still waits for an answer gets an error
    return status


def _wake(number: int, frame: object) -> None:
    """Let the descriptor of `set_wakeup_fd` tell."""


def _serve(listener: int, woken: int, command: int, options: Options) -> int:
    """Answer the calls of the command until it ends, or those who want it go; return its status."""
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    poll.register(options.alive, 0)  # an error there: nobody reads it any more
    if listener >= 0:
        poll.register(listener, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == listener and event & select.POLLIN:
                _answer(listener, options)
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
    """Kill everything that the command started: whatever loses its parent comes to this process."""
    ours = os.getpid()
    while True:
        for process in _children_of(ours):
            try:
                os.kill(process, _signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children_of(parent: int) -> list[int]:
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                        found.append(int(name))
            except (OSError, ValueError, IndexError):
                continue
    return found


def _answer(listener: int, options: Options) -> None:
    """Make one call that changes a mode, and answer it."""
    asked = bytearray(80)
    try:
        fcntl.ioctl(listener, _RECEIVE, asked)
    except OSError:  # its process has ended
        return
    key, process, _, number, _, _, *words = struct.unpack("=QIIiIQ6Q", asked)
    try:
        error = _change_mode(listener, key, process, options.modes[number], words, options.write)
    except OSError as failure:
        error = failure.errno or errno.EPERM
    try:
        fcntl.ioctl(listener, _SEND, struct.pack("=QqiI", key, 0, -error, 0))
    except OSError:
        return


def _change_mode(listener: int, key: int, process: int, kind: str, words: list[int], folders: list[str]) -> int:
    """Change the mode of a file in the writable folders; return the error, 0 without one."""
    place, path, mode, flags = {
        "path": (_HERE, words[0], words[1], 0),
        "descriptor": (words[0], 0, words[1], _EMPTY),
        "at": (words[0], words[1], words[2], 0),
        "at_flags": (words[0], words[1], words[2], words[3]),
    }[kind]
    name = _text(process, path) if path else b""
    place = ctypes.c_int32(place & 0xFFFFFFFF).value
    start = f"/proc/{process}/cwd" if place == _HERE else f"/proc/{process}/fd/{place}"
    base = os.open(start, os.O_PATH | os.O_CLOEXEC)
    try:
        fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", key))  # else these may be of another process by now
        if not name and not flags & _EMPTY:
            return errno.ENOENT
        follow = os.O_NOFOLLOW if flags & _UNFOLLOWED else 0
        file = os.open(name, os.O_PATH | os.O_CLOEXEC | follow, dir_fd=base) if name else os.dup(base)
    finally:
        os.close(base)
    try:
        real = os.readlink(f"/proc/self/fd/{file}")
        if not any(real == folder or real.startswith(f"{folder.rstrip('/')}/") for folder in folders):
            return errno.EPERM
        os.chmod(f"/proc/self/fd/{file}", mode & 0o7777)
        return 0
    finally:
        os.close(file)


def _text(process: int, address: int) -> bytes:
    """Return a text in the memory of a process, up to its end."""
    text = b""
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        while b"\0" not in text:
            if len(text) > _PATH:
                raise OSError(errno.ENAMETOOLONG, "the path is too long")
            text += memory.read(_PAGE - (address + len(text)) % _PAGE)
    return text.partition(b"\0")[0]


def _become(options: Options, program: list[str], tell: int, heard: int) -> None:
    """Take the restrictions, and become the command; does not return."""
    try:
        os.setpgid(0, 0)
        if os.isatty(0):
            _signal.signal(_signal.SIGTTOU, _signal.SIG_IGN)
            os.tcsetpgrp(0, os.getpid())
            _signal.signal(_signal.SIGTTOU, _signal.SIG_DFL)
        os.chdir(options.cwd)
        _restrict(options)
        with open(options.filter, "rb") as file:
            listener = _filter(file.read())
        os.write(tell, listener.to_bytes(4, sys.byteorder))
        os.read(heard, 1)
        os.closerange(3, 256)
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them, and the program would, too
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
    return _checked(_LIBC.syscall(_SECCOMP[os.uname().machine], 1, 8, ctypes.byref(given)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    _divide = sys.argv.index("--")
    main(Options(sys.argv[1:_divide]), sys.argv[_divide + 1 :])
