"""Child program: puts itself into a jail, then runs the harness in it.

Three processes, all forked from one interpreter:

    outer    stays in the parent's process namespace; makes the new namespaces; its end is the end of all
    init     process 1 of the jail: builds the private root, supervises, reaps, kills on too much memory
    worker   unprivileged; runs the harness and, in the same process, the untrusted program

Descriptors at start: 0 the job, 1 the results, 2 the control channel. The worker closes the control channel
before any untrusted code runs, so what stands on it is true: `error TEXT` (set-up failed, the program has not
run), `ready` (it is about to run), `end KIND NUMBER` (how the worker ended: exit, signal, memory).

Covered: user, mount, process, network, IPC, UTS and cgroup namespaces; a root that holds /usr, /lib* and this
interpreter's library, read-only; a private /proc and /tmp; limits; no capabilities, no new privileges; a
seccomp filter where the parent sends one. Not covered: holes of the kernel itself, and timing side channels.
"""

from __future__ import annotations

import _signal
import ctypes
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all the rest
    from typing import Any

    from reasoner.sandbox.inside.root import build_root
    from reasoner.sandbox.inside.syscalls import check, libc, prctl, tell, write

NOBODY = 65534
_NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 28, 38
_SECUREBITS = 0x01 | 0x02 | 0x20 | 0x40 | 0x80  # no root magic, no keep-caps, no ambient capabilities; locked
_POLL_S = 0.05


def _map_as_root(outer: int) -> tuple[int, int]:
    """Fork a helper that stays outside and maps root and nobody once told to; returns (pipe, pid)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(writer)
            if os.read(reader, 1):
                for name in ("uid_map", "gid_map"):
                    write(f"/proc/{outer}/{name}", f"0 0 1\n{NOBODY} {NOBODY} 1\n")
                status = 0
        finally:
            os._exit(status)
    os.close(reader)
    return writer, pid


def enter_namespaces(as_root: bool) -> None:
    """Move this process into new namespaces, in which it is root.

    Root maps itself and nobody; an ordinary user can map only itself.
    """
    uid, gid = os.geteuid(), os.getegid()
    helper = _map_as_root(os.getpid()) if as_root else None
    check("unshare", libc.unshare(_NAMESPACES))
    if helper is None:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"0 {uid} 1\n")
        write("/proc/self/gid_map", f"0 {gid} 1\n")
        return
    writer, pid = helper
    os.write(writer, b"x")
    os.close(writer)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError(f"uid_map: root of this machine may not map the user {NOBODY}")


def drop_privileges(as_root: bool) -> None:
    """Give up users, groups and every capability, for this process and all that it will start."""
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    prctl("securebits", _PR_SET_SECUREBITS, _SECUREBITS)
    if as_root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    check("capset", libc.capset(header, (ctypes.c_uint32 * 6)()))
    prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


def set_limits(config: dict[str, Any]) -> None:
    """Resource limits of the worker, soft and hard alike; only SIGXCPU comes a second before SIGKILL."""
    cpu = config["cpu_seconds"]
    limits = {
        resource.RLIMIT_AS: config["memory_bytes"],
        resource.RLIMIT_NPROC: config["processes"],
        resource.RLIMIT_NOFILE: config["files"],
        resource.RLIMIT_FSIZE: config["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def filter_system_calls(program: bytes) -> None:
    """Load a seccomp filter: `program` is an array of 8-byte BPF instructions."""
    buffer = ctypes.create_string_buffer(program, len(program))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]

    header = Filter(len(program) // 8, ctypes.addressof(buffer))
    prctl("seccomp", _PR_SET_SECCOMP, 2, ctypes.addressof(header))


def _resident_bytes() -> int:
    """Resident memory of every process in the jail but init, which is not the program's."""
    pages = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/statm", "rb") as file:
                    pages += int(file.read().split()[1])
            except (OSError, IndexError):
                continue
    return pages * resource.getpagesize()


def supervise(worker: int, memory_bytes: int) -> str:
    """Wait for the worker, reap orphans, and kill everything once all processes together hold too much."""
    watched = os.path.isdir("/proc/1")
    killed = False
    while True:
        _signal.sigtimedwait([_signal.SIGCHLD], _POLL_S)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return "end exit 0"
            if pid == worker:
                if os.WIFSIGNALED(status):
                    return "end memory 0" if killed else f"end signal {os.WTERMSIG(status)}"
                return f"end exit {os.WEXITSTATUS(status)}"
            if pid == 0:
                break
        if watched and not killed and _resident_bytes() > memory_bytes:
            killed = True
            os.kill(-1, _signal.SIGKILL)


def run_worker(config: dict[str, Any], harness: Any) -> None:
    """Become the worker and hand over to the harness; never returns."""
    os.setsid()  # signals to its own group must reach neither init nor the outer process
    set_limits(config)
    drop_privileges(config["as_root"])
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
    job, results = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.set_inheritable(null, True)
    os.dup2(null, 0)
    os.dup2(null, 1)
    space: dict[str, Any] = {"__name__": "harness", "__builtins__": dict(vars(sys.modules["builtins"]))}
    for code in harness:
        exec(code, space)
    if config["filter"]:
        filter_system_calls(config["filter"])
    tell("ready")
    os.dup2(null, 2)
    os.close(null)
    space["run"](config["job"], job, results)


def run_init(config: dict[str, Any], harness: Any) -> None:
    """Process 1 of the jail; never returns."""
    code = 1
    try:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        prctl("pdeathsig", _PR_SET_PDEATHSIG, _signal.SIGKILL)
        os.umask(0o022)
        build_root(config)
        check("sethostname", libc.sethostname(b"sandbox", 7))
        prctl("dumpable", _PR_SET_DUMPABLE, 0)
        worker = os.fork()
        if worker == 0:
            run_worker(config, harness)
        os.close(0)
        os.close(1)
        tell(supervise(worker, config["memory_bytes"]))
        code = 0
    except BaseException as error:
        tell(f"error {getattr(error, 'strerror', None) or error}")
    finally:
        os._exit(code)


def run(config: dict[str, Any], harness: Any) -> None:
    """The outer process: makes the namespaces, starts init, and ends when init has.

    SIGTERM, or the death of the parent, makes it kill init and wait: once this process has gone, nothing of
    the sandbox is left. (The kernel's death signal would follow the parent's thread, not its process.)
    """
    parent = os.getppid()
    init = 0

    def end(*_: object) -> None:
        if init == 0:
            os._exit(0)
        os.kill(init, _signal.SIGKILL)

    try:
        _signal.signal(_signal.SIGTERM, end)
        write("/proc/self/oom_score_adj", "1000")  # short of memory, the kernel takes this one first
        enter_namespaces(config["as_root"])
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGCHLD])
        init = os.fork()
        if init == 0:
            run_init(config, harness)
        os.close(0)
        os.close(1)
        while os.waitpid(init, os.WNOHANG)[0] == 0:
            _signal.sigtimedwait([_signal.SIGCHLD], 10 * _POLL_S)
            if os.getppid() != parent:
                os.kill(init, _signal.SIGKILL)
    except BaseException as error:
        tell(f"error {getattr(error, 'strerror', None) or error}")
    finally:
        os._exit(0)
