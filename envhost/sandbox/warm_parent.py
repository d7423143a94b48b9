"""The parent inside a warm cell: it forks each test into namespaces of its own, and runs none.

Runs under the cell's interpreter with nothing but the standard library, as
`python -S -s -P /cell/warm_parent.py CONTROL GROUPS [MODULE…]`: the socket to the host, the
descriptors of the cgroups to join with commas between, and the modules that programs usually
import. A request is one packet: the limits and names as JSON, and with it the descriptors of the
files, the standard input and the two outputs. The reply is the reports of the runner's kind, sent
when every process of the test has ended; its own first packet says that the cell is ready.

A test is two processes. The first becomes the init of a new pid namespace, lays fresh file systems
over what the test could write to, and waits; the second gives up every privilege and becomes the
program.

Goals. No untrusted byte is parsed or run in the parent or the init. Neither can be seen, signalled
or traced by a program: the parent stands outside its namespace, and an init ignores every signal
from inside that it does not handle. Whatever surprises the parent ends it, and the cell with it.

Known weak points. The parent holds CAP_SYS_ADMIN over its own user namespace; only the kernel
stands between it and a program. Programs of one cell share its network namespace, in which the
filter leaves them nothing to do: no socket but those of AF_UNIX, which end with them.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import weakref

sys.path.insert(0, os.path.dirname(sys.argv[0]))
import runner  # it lies beside this file, where a safe path does not look

del sys.path[0]

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x20000, 0x8000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 22, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAP_SETPCAP, CAP_SYS_ADMIN = 8, 21
CAPABILITY_VERSION = 0x20080522
WAIT_ALL = 0x40000000  # __WALL: also for children that end without SIGCHLD
PACKET_BYTES = 1 << 17
REPORT_BYTES = 4096
WORKING_DIRECTORY = "/tmp"

libc = ctypes.CDLL(None, use_errno=True)
# Without what modules do after a fork, which takes longer than the fork: the init runs nothing of
# theirs, and the parent has one thread. With PyDLL the interpreter's lock stays where it is.
fork_bare = ctypes.PyDLL(None).fork


class FilterProgram(ctypes.Structure):
    """What the kernel wants to be given as a seccomp filter."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


class Privileges:
    """What a program is stripped of; all that can be prepared once is."""

    def __init__(self, instructions):
        self._instructions = ctypes.create_string_buffer(instructions, len(instructions))
        self._filter = FilterProgram(len(instructions) // 8, ctypes.addressof(self._instructions))
        self._header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
        self._none = (ctypes.c_uint32 * 6)()

    def drop(self):
        """Give up every capability, for good, and install the filter."""
        for capability in (CAP_SYS_ADMIN, CAP_SETPCAP):
            check(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
        check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
        check(libc.capset(self._header, self._none))
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(self._filter), 0, 0))


def check(result):
    """Raise what libc says went wrong."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def mount(kind, place, flags, options=None):
    """Mount a file system, or change the flags of one that is mounted."""
    check(libc.mount(kind, place, kind, flags, options))


def lay_file_systems(request, content_fd):
    """Cover what a test can write to or look into with file systems of its own."""
    bound = b"mode=0755,size=%d" % request["tmp_limit_bytes"]
    mount(b"proc", b"/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount(b"tmpfs", b"/tmp", MS_NOSUID | MS_NODEV, bound)
    mount(b"tmpfs", b"/dev/shm", MS_NOSUID | MS_NODEV, bound)
    mount(b"tmpfs", b"/cell", MS_NOSUID | MS_NODEV, b"mode=0755")
    for name, size in request["files"]:
        fd = os.open(f"/cell/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        left = size
        while left:
            left -= os.sendfile(fd, content_fd, None, left)
        os.close(fd)
    mount(None, b"/cell", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(WORKING_DIRECTORY)


def be_init(request, fds, report):
    """Run a test as the first process of its pid namespace; return in the program's process."""
    content, stdin, stdout, stderr = fds
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWIPC))
    lay_file_systems(request, content)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an init ignores what it does not handle
    os.write(report, b"begun\n")
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, number)
        return
    _, status = os.waitpid(child, 0)
    kill_all()
    usage = runner.resource.getrusage(runner.resource.RUSAGE_CHILDREN)
    seconds = usage.ru_utime + usage.ru_stime
    os.write(report, b"done %d %f %d\n" % (status, seconds, usage.ru_maxrss * 1024))
    os._exit(0)


def kill_all():
    """Kill and reap what the program left, so that its time counts; -1 spares the caller only."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        try:
            os.waitpid(-1, WAIT_ALL)
        except ChildProcessError:
            return


def new_pid_namespace(own):
    """Let the next fork begin a pid namespace; back in our own first, or the kernel refuses."""
    check(libc.setns(own, CLONE_NEWPID))
    check(libc.unshare(CLONE_NEWPID))


def wait_for(child, control):
    """Wait for a test's init; leave when the host has gone, or when it ended in any other way."""
    pidfd = os.pidfd_open(child)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.register(control.fileno(), select.POLLIN | select.POLLHUP)
    if any(fd != pidfd for fd, _ in poller.poll()):
        os._exit(1)
    os.close(pidfd)
    _, status = os.waitpid(child, 0)
    if status:
        os._exit(1)


def serve(control, privileges):
    """Serve request after request; return in a program's process only, with what it is to run."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    reports, report = os.pipe()
    control.send(b"ready\n")
    while True:
        packet, fds, _, _ = socket.recv_fds(control, PACKET_BYTES, 4)
        if not packet:
            os._exit(0)
        request = json.loads(packet)
        new_pid_namespace(own)
        child = fork_bare()
        check(child)
        if not child:
            be_init(request, fds, report)
            privileges.drop()
            control.detach()
            return runner.become_program(
                report, request["limits"], request["call"], request["arguments"]
            )
        for fd in fds:
            os.close(fd)
        wait_for(child, control)
        control.send(os.read(reports, REPORT_BYTES))


def enter_own_pid_namespace():
    """Go on in a child that has a pid namespace of ours; bubblewrap's is not ours to return to."""
    check(libc.unshare(CLONE_NEWPID))
    child = os.fork()
    if child:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.waitpid(child, 0)
        os._exit(1)


def prepare(groups, modules):
    """Join the groups, hide from programs, and load what they usually import."""
    os.nice(10)
    enter_own_pid_namespace()
    runner.join(groups)
    for fd in groups.split(",") if groups else ():
        os.close(int(fd))
    runner.prctl(runner.PR_SET_DUMPABLE, 0)
    with open("/cell/filter", "rb") as file:
        privileges = Privileges(file.read())
    sys.path += runner.package_directories()
    for name in modules:
        importlib.import_module(name)
    del sys.path[-len(runner.package_directories()) :]
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit(f"a module that is loaded ahead starts threads: {' '.join(modules)}")
    gc.collect()
    gc.freeze()
    return privileges


class Ending:
    """Ends a program as the interpreter does, without taking the interpreter itself apart.

    That takes milliseconds, most of them for pages copied only to be freed. `at_exit`, registered
    before the program's own functions, runs after them and after the join of its threads: what is
    left then is to flush, and to let go of the program's objects. Where anything is unusual the
    interpreter goes its long way.
    """

    def __init__(self):
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        """Take down the program's status, where it is an ordinary one."""
        if error is None:
            self.status = 0
        elif isinstance(error, SystemExit):
            code = 0 if error.code is None else error.code
            self.status = code if type(code) is int and 0 <= code < 256 else None
        elif isinstance(error, Exception) and sys.excepthook is sys.__excepthook__:
            self.status = 1

    def at_exit(self):
        """End this process, as far as its end is an ordinary one."""
        if self.status is None or not flush():
            return
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            sys.__dict__.pop(name, None)
        alive = weakref.ref(module)
        sys.modules.pop("__main__", None)
        for name in ("code", "module", "how"):
            del globals()[name]
        gc.collect()
        if alive():
            clear(alive().__dict__)
        if flush():
            os._exit(self.status)


def flush():
    """Flush the standard outputs; return whether that was in order."""
    try:
        for file in (sys.stdout, sys.stderr):
            if file is not None and not file.closed:
                file.flush()
    except BaseException:
        return False
    return True


def clear(namespace):
    """Let go of a module's objects in the interpreter's order: the private ones first."""
    for is_private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and (name[:1] == "_" != name[1:2]) is is_private:
                namespace[name] = None


# At the top level, as in the runner: no frame of ours is below the program's but this one.
if __name__ == "__main__":
    ending = Ending()
    atexit.register(ending.at_exit)
    control = socket.socket(fileno=int(sys.argv[1]))
    code, module, how = serve(control, prepare(sys.argv[2], sys.argv[3:]))
    with ending:
        exec(code, module.__dict__)
        if how[0]:
            runner.answer(module, *how)
