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

NOBODY = 65534
_NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1,
    2,
    4,
    8,
    4096,
    16384,
    1 << 18,
)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 28, 38
_SECUREBITS = 0x01 | 0x02 | 0x20 | 0x40 | 0x80  # no root magic, no keep-caps, no ambient capabilities; locked
_SYS_MOUNT_SETATTR = 442  # one number on every architecture
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_POLL_S = 0.05

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def _check(step: str, result: int) -> None:
    """Raise OSError naming the step when a system call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None
    )
    _check(f"mount {target}", result)


def _prctl(step: str, option: int, value: int, third: int = 0) -> None:
    _check(step, _libc.prctl(option, value, third, 0, 0))


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _tell(text: str) -> None:
    os.write(2, (text.replace("\n", " ")[:500] + "\n").encode("utf-8", "replace"))


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
                    _write(f"/proc/{outer}/{name}", f"0 0 1\n{NOBODY} {NOBODY} 1\n")
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
    _check("unshare", _libc.unshare(_NAMESPACES))
    if helper is None:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1\n")
        _write("/proc/self/gid_map", f"0 {gid} 1\n")
        return
    writer, pid = helper
    os.write(writer, b"x")
    os.close(writer)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError(f"uid_map: root of this machine may not map the user {NOBODY}")


def _sources() -> tuple[list[str], list[str]]:
    """Folders that the root shows: those of the system, and those of this interpreter."""
    system = [path for path in ("/usr", "/lib", "/lib32", "/lib64", "/libx32") if os.path.isdir(path)]
    library = os.path.dirname(os.path.dirname(os.path.realpath(os.__file__)))
    own = [library, os.path.join(os.path.realpath(sys.base_exec_prefix), "bin")]
    return system, [path for path in own if not any(_within(path, top) for top in system)]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(source, target, flags=_MS_BIND | _MS_REC)


def build_root(config: dict[str, Any]) -> None:
    """Make and enter a root with nothing but the system's libraries, this interpreter, /proc, /dev and /tmp.

    The private tree stands one folder below the mount namespace's root, and is entered by chroot after
    pivot_root has detached the old root: a process in a chroot may not make user namespaces.
    """
    system, own = _sources()
    base = next(p for p in ("/tmp", "/mnt", "/run", "/var/tmp") if os.path.isdir(p) and p not in own)
    if any(_within(path, base) for path in own):
        base = next(p for p in ("/mnt", "/run", "/media", "/srv") if os.path.isdir(p))
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    _mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m,nr_inodes=256")
    root = base + "/root"
    os.mkdir(root, 0o755)
    for path in system:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        else:
            _bind(path, root + path)
    for path in config["hide"]:
        if any(_within(path, top) and path != top for top in system) and os.path.isdir(root + path):
            _mount("tmpfs", root + path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=64k,nr_inodes=64")
    for path in own:
        _bind(path, root + path)
    for name in ("proc", "dev", "tmp"):
        os.mkdir(f"{root}/{name}", 0o755)
    for name in ("null", "zero", "urandom"):
        os.close(os.open(f"{root}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o644))
    attributes = (ctypes.c_uint64 * 4)(_MS_RDONLY | _MS_NOSUID | _MS_NODEV, 0, 0, 0)
    _check(
        "mount_setattr (Linux 5.12 or later is needed)",
        _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, base.encode(), _AT_RECURSIVE, attributes, 32),
    )
    for name in ("null", "zero", "urandom"):
        _mount(f"/dev/{name}", f"{root}/dev/{name}", flags=_MS_BIND)
    _mount_proc(root + "/proc")
    private = f"mode=1777,size={config['tmp_bytes']},nr_inodes={config['tmp_inodes']}"
    _mount("tmpfs", root + "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, private)
    os.chdir(base)
    _check("pivot_root", _libc.pivot_root(b".", b"."))
    _check("umount the old root", _libc.umount2(b".", 2))
    os.chroot("/root")
    os.chdir("/tmp")


def _mount_proc(target: str) -> None:
    """A /proc of this namespace only; where the kernel refuses even that (a masked /proc), none at all."""
    for options in ("hidepid=2,subset=pid", "hidepid=2", ""):
        try:
            return _mount("proc", target, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
        except OSError:
            continue


def drop_privileges(as_root: bool) -> None:
    """Give up users, groups and every capability, for this process and all that it will start."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    _prctl("securebits", _PR_SET_SECUREBITS, _SECUREBITS)
    if as_root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check("capset", _libc.capset(header, (ctypes.c_uint32 * 6)()))
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


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
    _prctl("seccomp", _PR_SET_SECCOMP, 2, ctypes.addressof(header))


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
    _tell("ready")
    os.dup2(null, 2)
    os.close(null)
    space["run"](config["job"], job, results)


def run_init(config: dict[str, Any], harness: Any) -> None:
    """Process 1 of the jail; never returns."""
    code = 1
    try:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        _prctl("pdeathsig", _PR_SET_PDEATHSIG, _signal.SIGKILL)
        os.umask(0o022)
        build_root(config)
        _check("sethostname", _libc.sethostname(b"sandbox", 7))
        _prctl("dumpable", _PR_SET_DUMPABLE, 0)
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGCHLD])
        worker = os.fork()
        if worker == 0:
            run_worker(config, harness)
        os.close(0)
        os.close(1)
        _tell(supervise(worker, config["memory_bytes"]))
        code = 0
    except BaseException as error:
        _tell(f"error {getattr(error, 'strerror', None) or error}")
    finally:
        os._exit(code)


def run(config: dict[str, Any], harness: Any) -> None:
    """The outer process: makes the namespaces, starts init, and ends when init has.

    SIGTERM makes it kill init and wait: once this process has gone, nothing of the sandbox is left.
    """
    init = 0

    def end(*_: object) -> None:
        if init == 0:
            os._exit(0)
        os.kill(init, _signal.SIGKILL)

    try:
        _signal.signal(_signal.SIGTERM, end)
        _write("/proc/self/oom_score_adj", "1000")  # short of memory, the kernel takes this one first
        enter_namespaces(config["as_root"])
        _prctl("pdeathsig", _PR_SET_PDEATHSIG, _signal.SIGKILL)
        init = os.fork()
        if init == 0:
            run_init(config, harness)
        os.close(0)
        os.close(1)
        os.waitpid(init, 0)
    except BaseException as error:
        _tell(f"error {getattr(error, 'strerror', None) or error}")
    finally:
        os._exit(0)
