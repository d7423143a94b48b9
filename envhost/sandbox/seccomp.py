"""The system calls that a program has no business with, as a seccomp filter.

Owns pyseccomp, a ctypes wrapper of libseccomp; without the library there is no filter, and the
other guards stand alone.
"""

from __future__ import annotations

import errno
import os
import socket

__all__ = ["deny_filter"]

_DENIED = (
    # other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    # namespaces and mounts; clone3 is answered as missing, so that libc falls back to clone
    "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "move_mount", "open_tree",
    "fsopen", "fsmount", "fsconfig", "mount_setattr",
    # memory outside of RLIMIT_AS
    "shmget", "shmat", "memfd_create", "memfd_secret", "msgget", "semget", "mq_open",
    # what all users of the machine share a bounded number of, or see each other by
    "io_setup", "inotify_init", "inotify_init1", "fanotify_init",
    # kernel attack surface
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "keyctl", "add_key", "request_key", "open_by_handle_at",
    "name_to_handle_at", "modify_ldt", "quotactl", "quotactl_fd", "acct", "kexec_load",
    "init_module", "finit_module", "delete_module", "syslog", "reboot", "swapon", "swapoff",
    "personality",
)  # fmt: skip
_CLONE_NEWUSER = 0x10000000
# Typing into a terminal. The kernel reads 32 bits of the argument, a filter all 64.
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_UNSIGNED = 0xFFFFFFFF
# A network namespace does not confine AF_VSOCK, which reaches a virtual machine's host. The others
# are kernel code that no program needs, and closed TCP connections stay listed for a minute, in a
# warm cell for the next program to read.
_FAMILIES = (socket.AF_UNSPEC, socket.AF_UNIX)


def deny_filter() -> bytes | None:
    """Return the filter as BPF for `bwrap --seccomp`; None where libseccomp is missing."""
    try:
        import pyseccomp as seccomp
    except (ImportError, OSError, RuntimeError):
        return None
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    denied = seccomp.ERRNO(errno.EPERM)
    for name in _DENIED:
        try:
            rules.add_rule(denied, name)
        except (OSError, ValueError, RuntimeError):
            continue  # a call that this kernel's headers or architecture do not know
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    user_namespace = seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_NEWUSER, _CLONE_NEWUSER)
    rules.add_rule(denied, "clone", user_namespace)
    for request in _TERMINAL_INPUT:
        rules.add_rule(denied, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, _UNSIGNED, request))
    rules.add_rule(denied, "socket", seccomp.Arg(0, seccomp.GT, max(_FAMILIES)))
    # prlimit on another process; 0 is the caller
    rules.add_rule(denied, "prlimit64", seccomp.Arg(0, seccomp.NE, 0))
    descriptor = os.memfd_create("seccomp")
    with os.fdopen(descriptor, "w+b", buffering=0) as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
