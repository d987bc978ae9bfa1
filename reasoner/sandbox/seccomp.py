"""A seccomp filter, built with libseccomp where this machine has it.

It refuses (EPERM) what no solution of a problem needs and what exploits and escapes do: tracing, mounts,
namespaces, keys, bpf, io_uring, userfaultfd, every socket but AF_UNIX, memory that outlives a process. It is
a second wall: the namespaces hold without it. The 32-bit and x32 entries of an x86-64 kernel are closed too.
"""

import ctypes
import os
import tempfile
from functools import cache

_REFUSED = """
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd
    mount umount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr
    unshare setns keyctl add_key request_key bpf perf_event_open
    io_uring_setup io_uring_enter io_uring_register
    userfaultfd kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct
    quotactl quotactl_fd name_to_handle_at open_by_handle_at iopl ioperm syslog settimeofday clock_settime
    adjtimex clock_adjtime lookup_dcookie nfsservctl vhangup fanotify_init
    shmget msgget semget memfd_create memfd_secret mq_open sched_setscheduler sched_setattr
    mbind set_mempolicy migrate_pages move_pages
"""
_ALLOW, _ERRNO, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050000, 1, 38
_NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
_NOT_EQUAL, _MASKED_EQUAL = 1, 7
_AF_UNIX = 1


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Comparison),
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


@cache
def build_filter() -> bytes | None:
    """The filter as BPF instructions of 8 bytes each, or None where libseccomp is missing or refuses."""
    library = _library()
    if library is None:
        return None
    context = library.seccomp_init(_ALLOW)
    if not context:
        return None
    try:
        rules: list[tuple[str, int, list[_Comparison]]] = [(name, _EPERM, []) for name in _REFUSED.split()]
        # glibc falls back from clone3, whose flags a filter cannot read, to clone.
        rules.append(("clone3", _ENOSYS, []))
        rules.append(("socket", _EPERM, [_Comparison(0, _NOT_EQUAL, _AF_UNIX, 0)]))
        for bit in range(32):
            if _NEW_NAMESPACES >> bit & 1:
                rules.append(("clone", _EPERM, [_Comparison(0, _MASKED_EQUAL, 1 << bit, 1 << bit)]))
        for name, error, comparisons in rules:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number < 0:  # this library or architecture does not know it
                continue
            array = (_Comparison * len(comparisons))(*comparisons)
            if library.seccomp_rule_add_array(context, _ERRNO | error, number, len(comparisons), array) < 0:
                return None
        with tempfile.TemporaryFile() as file:
            if library.seccomp_export_bpf(context, file.fileno()) < 0:
                return None
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            return file.read() or None
    finally:
        library.seccomp_release(context)
