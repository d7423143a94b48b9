"""Programs that attack the sandbox or look strange, each with the verdict it must get.

The numbers are those of the list in docs/sandbox.md. A program that tries to break out prints
`held` where every try failed and what it got otherwise, so that its verdict tells.
"""

from __future__ import annotations

import os
from typing import Any

from attrs import evolve, field, frozen

__all__ = ["ATTACKS", "Attack", "in_warm_cell"]

MIB = 1024 * 1024
QUICK = {"cpu_limit_seconds": 0.5}
IDLE = {"wall_limit_seconds": 1.0}
SMALL = {"memory_limit_bytes": 256 * MIB}


@frozen(kw_only=True)
class Attack:
    """A program, the tests it is run against, and the verdicts that are right."""

    number: str
    name: str
    source: str
    tests: tuple[tuple[str, str], ...] = (("20 22\n", "42\n"),)
    verdicts: tuple[str, ...] = ("AC",)
    exit_code: int | None = None
    limits: dict[str, Any] = field(factory=dict)
    needs_bwrap: bool = False
    needs_memory_group: bool = False


def attack(number: str, name: str, source: str, *verdicts: str, **more: Any) -> Attack:
    return Attack(number=number, name=name, source=source, verdicts=verdicts or ("AC",), **more)


def probe(number: str, name: str, source: str, stdin: str = "", **more: Any) -> Attack:
    """Return an attack by tries: `got` collects what succeeded, `fails(call)` notes a success."""
    return Attack(
        number=number,
        name=name,
        source=PROBE + source + "\nprint('held' if not got else got)\n",
        tests=((stdin, "held\n"),),
        needs_bwrap=more.pop("needs_bwrap", True),
        **more,
    )


PROBE = """\
import ctypes, os, resource, signal, socket, sys
got = []
libc = ctypes.CDLL(None, use_errno=True)

def fails(name, call, *arguments):
    try:
        result = call(*arguments)
    except (OSError, ValueError):
        return
    if isinstance(result, int) and result == -1:
        return
    got.append((name, repr(result)[:200]))
"""

SUM = "print(sum(map(int, input().split())))\n"
ENVIRONMENT = """\
HOME LANG MKL_NUM_THREADS OMP_NUM_THREADS OPENBLAS_NUM_THREADS PATH PWD PYTHONHASHSEED
"""
FORGE = """\
import os
written = 0
for fd in range(3, 4096):
    try: written += os.write(fd, b'done 0 0 0\\n')
    except OSError: pass
"""

ATTACKS = [
    attack("1", "a busy loop", "while True: pass", "TLE", limits=QUICK),
    attack("2", "a long sleep", "import time; time.sleep(1e9)", "ILE", limits=IDLE),
    attack("3", "one read too many", "input(); input()", "RE", exit_code=1),
    attack(
        "4",
        "no input is the end of file",
        "import sys; print(repr(sys.stdin.read()))",
        tests=(("", "''\n"),),
    ),
    attack(
        "5",
        "a busy loop that ignores signals",
        "import signal\n"
        "for number in (signal.SIGTERM, signal.SIGXCPU, signal.SIGALRM, signal.SIGINT):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "while True: pass",
        "TLE",
        limits=QUICK,
    ),
    attack("6", "stops itself", "import os; os.kill(os.getpid(), 19)", "ILE", limits=IDLE),
    attack("7", "stops its group", "import os; os.kill(0, 19)", "ILE", limits=IDLE),
    attack(
        "8",
        "a fork bomb",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "TLE",
        "RE",
        "MLE",
        limits=QUICK,
    ),
    attack(
        "9",
        "a thread bomb",
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(1e9,), daemon=True).start()",
        "RE",
        limits={"wall_limit_seconds": 10.0},
    ),
    attack(
        "10",
        "a child keeps the output open",
        "import os, time\nif os.fork() == 0: time.sleep(1e9)\n" + SUM,
    ),
    attack(
        "11",
        "a daemon",
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: time.sleep(1e9)\n"
        "    os._exit(0)\n" + SUM,
    ),
    attack(
        "12",
        "a daemon that waits for the next test",
        "import os, time\n"
        "print(os.path.exists('/tmp/left'))\n"
        "sys_stdin = open(0).read()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True: open('/tmp/left', 'w').write('x'); time.sleep(0.01)\n",
        tests=(("1", "False\n"), ("12", "False\n"), ("123", "False\n")),
        needs_bwrap=True,
    ),
    attack("13", "asks for 100 GB", "bytearray(10**11)", "MLE", "RE"),
    attack(
        "14",
        "grows slowly",
        "held = []\nwhile True: held.append(bytearray(1 << 20))",
        "MLE",
        limits=SMALL,
    ),
    attack(
        "15",
        "many processes, each below the limit",
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0: held = bytearray(b'x') * (50 << 20); time.sleep(1e9)\n"
        "os.wait()",  # none of them ends by itself
        "MLE",
        "RE",
        limits=SMALL,
        needs_memory_group=True,
    ),
    probe(
        "16",
        "fills /tmp",
        "try:\n"
        "    with open('/tmp/big', 'wb', buffering=0) as file:\n"
        "        for _ in range(100): file.write(bytes(1 << 20))\n"
        "    got.append('no end')\n"
        "except OSError as error:\n"
        "    if error.errno != 28: got.append(error)",
        limits={"tmp_limit_bytes": 8 * MIB},
    ),
    probe(
        "17",
        "fills /dev/shm",
        "try:\n"
        "    with open('/dev/shm/big', 'wb', buffering=0) as file:\n"
        "        for _ in range(100): file.write(bytes(1 << 20))\n"
        "    got.append('no end')\n"
        "except OSError as error:\n"
        "    if error.errno != 28: got.append(error)",
        limits={"tmp_limit_bytes": 8 * MIB},
    ),
    attack(
        "18",
        "a million empty files",
        "import os\nfor number in range(10**6): os.close(os.open(f'/tmp/{number}', os.O_CREAT))",
        "TLE",
        "MLE",
        "RE",
        limits=QUICK,
        needs_bwrap=True,
    ),
    attack("19", "endless output", "while True: print('y' * 1000)", "OLE"),
    attack(
        "20",
        "endless error output",
        SUM + "import sys\nfor _ in range(64): sys.stderr.write('e' * (1 << 20))",
    ),
    attack(
        "21",
        "a gigabyte without a newline",
        "import os\nfor _ in range(1024): os.write(1, b'x' * (1 << 20))",
        "OLE",
    ),
    attack("22", "bytes that are no text", r"import os; os.write(1, b'4\x002\xff\n')", "WA"),
    attack("23", "right, then exit 3", SUM + "raise SystemExit(3)", "RE", exit_code=3),
    attack(
        "24",
        "right, then a segfault",
        "print(sum(map(int, input().split())), flush=True)\nimport ctypes; ctypes.string_at(0)",
        "RE",
        exit_code=-11,
    ),
    attack(
        "25",
        "right, then killed by itself",
        "print(sum(map(int, input().split())), flush=True)\nimport os; os.kill(os.getpid(), 9)",
        "RE",
        exit_code=-9,
    ),
    attack(
        "26", "exits with a signal's status", SUM + "raise SystemExit(139)", "RE", exit_code=139
    ),
    attack("27", "ends before the flush", SUM + "import os; os._exit(0)", "WA"),
    attack("28", "closes its output", "import os; os.close(1)", "WA"),
    attack("29", "exits after the answer", SUM + "import sys; sys.exit()"),
    attack(
        "30",
        "a deep recursion in a thread",
        "import sys, threading\n"
        "sys.setrecursionlimit(10**6)\n"
        "threading.stack_size(256 * 1024 * 1024)\n"
        "def down(n): return 0 if n == 0 else 1 + down(n - 1)\n"
        "def main():\n"
        "    assert down(200_000) == 200_000\n"
        "    print(sum(map(int, input().split())))\n"
        "thread = threading.Thread(target=main); thread.start(); thread.join()",
    ),
    attack(
        "31a", "stdin.buffer", "import sys; print(sum(map(int, sys.stdin.buffer.read().split())))"
    ),
    attack("31b", "open(0)", "print(sum(map(int, open(0).read().split())))"),
    attack("31c", "os.read(0)", "import os; print(sum(map(int, os.read(0, 99).split())))"),
    attack(
        "31d",
        "stdout.buffer",
        "import sys; sys.stdout.buffer.write(b'%d\\n' % sum(map(int, input().split())))",
    ),
    attack("32", "from __future__ first", "from __future__ import annotations\n" + SUM),
    attack("33", "a syntax error", "print(42)\nif", "CE"),
    attack("34a", "a NUL in the source", "print(42)\n\0", "CE"),
    attack("34b", "a lone surrogate in the source", "print(42)  # \ud800", "CE", "AC"),
    attack("34c", "a byte order mark", "\ufeff" + SUM),
    attack("34d", "CRLF line ends", "if True:\r\n    print(\r\n  42)\r\n"),
    attack("34e", "tabs", "if True:\n\tprint(42)\n"),
    attack("34f", "an unknown encoding", "# coding: klingon\nprint(42)", "CE"),
    attack("34g", "too deep for the parser", "print(" + "(" * 5000 + ")" * 5000 + ")", "CE"),
    attack("35", "a megabyte of source", f"text = '{'x' * MIB}'\n" + "y = 1\n" * 9999 + SUM),
    attack(
        "36",
        "a main guard, a dataclass, a pickle",
        "import pickle\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Pair:\n"
        "    left: int\n"
        "    right: int\n"
        "if __name__ == '__main__':\n"
        "    pair = Pair(*map(int, input().split()))\n"
        "    pair = pickle.loads(pickle.dumps(pair))\n"
        "    print(pair.left + pair.right)",
    ),
    probe(
        "37",
        "reads the host's files and processes",
        "for path in ('/etc/passwd', '/etc/shadow', '/root/.ssh', '/home', '/var', '/sys'):\n"
        "    fails(path, os.stat, path)\n"
        "fails('~/.ssh', os.listdir, os.path.expanduser('~/.ssh'))\n"
        "pids = [int(name) for name in os.listdir('/proc') if name.isdecimal()]\n"
        "if len(pids) > 4: got.append(pids)\n"
        "secret = input().encode()\n"
        "for pid in pids:\n"
        "    for name in ('environ', 'cmdline', 'maps'):\n"
        "        try:\n"
        "            text = open(f'/proc/{pid}/{name}', 'rb').read()\n"
        "            if secret in text: got.append((pid, name))\n"
        "        except OSError: pass",
        stdin="HOST-SECRET-6031\n",
    ),
    attack(
        "38",
        "reads its environment",
        "import os; print(*sorted(os.environ))",
        tests=(("", ENVIRONMENT),),
        needs_bwrap=True,
    ),
    attack(
        "39",
        "looks for the expected output",
        "import os, sys\n"
        "secret = 'expected'.encode() + b'-output-2718'\n"
        "for top in ('/cell', '/tmp', '/dev', '/run', '/proc/1', '/proc/self', '/var', '/opt'):\n"
        "    for directory, _, names in os.walk(top):\n"
        "        for name in names:\n"
        "            path = f'{directory}/{name}'\n"
        "            if not os.path.isfile(path) or path.endswith('/main.py'): continue\n"
        "            try: text = open(path, 'rb').read(1 << 20)\n"
        "            except OSError: continue\n"
        "            if secret in text: print('expected-' + 'output-2718'); sys.exit()\n"
        "for path in sys.path:\n"
        "    for directory, _, names in os.walk(f'{path}/site-packages'):\n"
        "        for name in names:\n"
        "            if name.endswith('.jsonl'): print(name)\n",
        "WA",
        tests=(("", "expected-output-2718\n"),),
        needs_bwrap=True,
    ),
    probe(
        "40",
        "writes to the interpreter and to its own source",
        "for path in (__file__, os.__file__, sys.executable, '/cell/runner.py', '/usr/x', '/x'):\n"
        "    fails(path, open, path, 'ab')\n"
        "    fails(path, os.unlink, path)\n"
        "    fails(path, os.rename, path, '/tmp/x')",
    ),
    probe(
        "41",
        "reaches for the network",
        "port, name = input().split()\n"
        "def connect(family, address):\n"
        "    with socket.socket(family, socket.SOCK_STREAM) as one:\n"
        "        one.settimeout(1)\n"
        "        one.connect(address)\n"
        "fails('public', connect, socket.AF_INET, ('1.1.1.1', 443))\n"
        "fails('loopback', connect, socket.AF_INET, ('127.0.0.1', int(port)))\n"
        "fails('loopback', connect, socket.AF_INET6, ('::1', int(port)))\n"
        "fails('abstract', connect, socket.AF_UNIX, b'\\0' + name.encode())\n"
        "fails('vsock', socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM)\n"
        "fails('alg', socket.socket, socket.AF_ALG, socket.SOCK_SEQPACKET)\n"
        "fails('packet', socket.socket, socket.AF_PACKET, socket.SOCK_RAW)\n"
        "fails('raw', socket.socket, socket.AF_INET, socket.SOCK_RAW)",
        stdin="{port} {name}\n",
    ),
    probe(
        "42",
        "mounts and changes its root",
        "fails('mount', libc.mount, b'none', b'/tmp', b'tmpfs', 0, None)\n"
        "fails('remount', libc.mount, None, b'/usr', None, 0x20 | 0x1000, None)\n"
        "fails('umount', libc.umount2, b'/tmp', 2)\n"
        "fails('chroot', os.chroot, '/tmp')\n"
        "fails('pivot_root', libc.syscall, 155, b'/tmp', b'/tmp')\n"
        "fails('open_tree', libc.syscall, 428, -100, b'/usr', 1)\n"
        "fails('fsopen', libc.syscall, 430, b'tmpfs', 0)\n"
        "fails('mknod', os.mknod, '/tmp/disk', 0o60666, os.makedev(8, 0))\n"
        "fails('setuid', os.setuid, 0)\n"
        "fails('setgroups', os.setgroups, [0])",
    ),
    probe(
        "43",
        "opens a namespace of its own",
        "for name, flag in {'user': 0x10000000, 'mount': 0x20000, 'pid': 0x20000000}.items():\n"
        "    fails('unshare ' + name, libc.unshare, flag)\n"
        "    fails('clone ' + name, libc.syscall, 56, flag | 17, 0, 0, 0, 0)\n"
        "arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)\n"
        "fails('clone3', libc.syscall, 435, ctypes.byref(arguments), 88)",
    ),
    probe(
        "44",
        "takes hold of its parent",
        "parent = os.getppid()\n"
        "fails('ptrace', libc.ptrace, 16, parent, 0, 0)\n"
        "fails('seize', libc.ptrace, 0x4206, parent, 0, 0)\n"
        "fails('mem', open, f'/proc/{parent}/mem', 'r+b')\n"
        "fails('fds', os.listdir, f'/proc/{parent}/fd')\n"
        "fails('environ', open, f'/proc/{parent}/environ', 'rb')\n"
        "text = ctypes.create_string_buffer(b'x' * 8)\n"
        "vector = (ctypes.c_void_p * 2)(ctypes.addressof(text), 8)\n"
        "fails('writev', libc.process_vm_writev, parent, vector, 1, vector, 1, 0)\n"
        "descriptor = os.pidfd_open(parent)\n"
        "for number in range(3, 64): fails('getfd', libc.syscall, 438, descriptor, number, 0)",
    ),
    probe(
        "45",
        "changes limits",
        "fails('parent', resource.prlimit, os.getppid(), resource.RLIMIT_CPU, (1, 1))\n"
        "for name in ('AS', 'CPU', 'NPROC', 'NOFILE'):\n"
        "    number = getattr(resource, 'RLIMIT_' + name)\n"
        "    soft, hard = resource.getrlimit(number)\n"
        "    if hard == resource.RLIM_INFINITY: got.append(name)\n"
        "    fails(name, resource.setrlimit, number, (hard + 1, hard + 1))",
    ),
    attack(
        "46",
        "writes a fake report to every descriptor",
        FORGE + "print(written)",
        tests=(("", "0\n"),),
    ),
    attack(
        "46b",
        "writes a fake report and kills who would write the true one",
        FORGE + "print(42, flush=True)\nos.kill(os.getppid(), 9)",
        "RE",
        exit_code=-9,
    ),
    attack("47", "prints our own protocol", "print('begun\\ndone 0 0.0 0')", "WA"),
    attack(
        "48",
        "patches what might compare",
        "import builtins, sys\n"
        "class Equal(str):\n"
        "    def __eq__(self, other): return True\n"
        "    __hash__ = str.__hash__\n"
        "frame = sys._getframe()\n"
        "while frame:\n"
        "    for name in list(frame.f_globals):\n"
        "        if name in ('expected', 'answer'): frame.f_globals[name] = Equal()\n"
        "    frame = frame.f_back\n"
        "show = print\n"
        "builtins.print = lambda *words: show(*map(Equal, words))\n"
        "print(41)",
        "WA",
    ),
    attack(
        "49",
        "prints after its end",
        "import atexit\n"
        "class Last:\n"
        "    def __del__(self): print('deleted', flush=True)\n"
        "last = Last()\n"
        "atexit.register(print, 'at exit')\n"
        "print(sum(map(int, input().split())))",
        tests=(("20 22\n", "42\nat exit\ndeleted\n"),),
    ),
    attack(
        "50",
        "leaves the answer for the next test",
        "import os\n"
        "number = len(open(0).read())\n"
        "if number == 1: open('/tmp/answer', 'w').write('2'); print(1)\n"
        "else: print(open('/tmp/answer').read() if os.path.exists('/tmp/answer') else 'nothing')",
        "WA",
        tests=(("a", "1\n"), ("bb", "2\n")),
        needs_bwrap=True,
    ),
    probe(
        "51",
        "changes its scheduling",
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "os.nice(1)\n"
        "fails('nice', os.nice, -5)\n"
        "fails('fifo', os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))",
    ),
    probe(
        "52",
        "types into a terminal",
        "import fcntl\n"
        "fails('tty', open, '/dev/tty', 'rb')\n"
        "for fd in (0, 1, 2):\n"
        "    fails('TIOCSTI', fcntl.ioctl, fd, 0x5412, b'x')\n"
        "    fails('TIOCSTI above 32 bits', libc.ioctl, fd, ctypes.c_ulong(0x100005412), b'x')",
    ),
    probe(
        "44b",
        "kills what stands above it",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.kill(1, 9)\n"
        "import time; time.sleep(0.05)",
    ),
    attack("44c", "kills the runner", "import os; os.kill(os.getppid(), 9)", "RE", exit_code=-9),
    probe(
        "58",
        "asks for rare system calls",
        "numbers = {'io_uring_setup': 425, 'userfaultfd': 323, 'bpf': 321}\n"
        "numbers |= {'perf_event_open': 298, 'request_key': 249}\n"
        "numbers |= {'memfd_create': 319, 'memfd_secret': 447, 'keyctl': 250, 'add_key': 248}\n"
        "numbers |= {'io_setup': 206, 'inotify_init1': 294, 'fanotify_init': 300, 'kcmp': 312}\n"
        "numbers |= {'mq_open': 240, 'semget': 64, 'msgget': 68, 'shmget': 29, 'modify_ldt': 154}\n"
        "for name, number in numbers.items() if os.uname().machine == 'x86_64' else ():\n"
        "    ctypes.set_errno(0)\n"
        "    libc.syscall(number, 1, ctypes.create_string_buffer(128), 0, 0, 0)\n"
        "    if ctypes.get_errno() != 1: got.append(name)",
    ),
    attack(
        "59",
        "makes system calls by another table",
        "import ctypes, mmap\n"
        "code = mmap.mmap(-1, 4096, prot=7)\n"
        "code.write(bytes.fromhex('b814000000cd80c3'))  # getpid, as 32-bit programs do\n"
        "print(42, flush=True)\n"
        "ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()",
        "RE",
        # SIGSYS; elsewhere it is no program at all
        exit_code=-31 if os.uname().machine == "x86_64" else None,
        needs_bwrap=True,
    ),
    probe(
        "60",
        "takes the machine's terminals",
        "fails('ptmx', os.open, '/dev/ptmx', os.O_RDWR)\n"
        "fails('pts', os.listdir, '/dev/pts') if os.listdir('/dev/pts') else None",
    ),
    attack(
        "61a",
        "stops what would report its end",
        SUM + "import os; os.kill(os.getppid(), 19)",
        "ILE",
        limits=IDLE,
        needs_bwrap=True,
    ),
    attack(
        "61b",
        "kills all that it can",
        "import os\nprint(41, flush=True)\nos.kill(-1, 9)",
        "RE",
        needs_bwrap=True,
    ),
    attack(
        "62",
        "leaves closed connections for the next test",
        "import socket\n"
        "number = len(open(0).read())\n"
        "print(len(open('/proc/net/tcp').readlines()) - 1)\n"
        "try:\n"
        "    listener = socket.create_server(('127.0.0.1', 0))\n"
        "    for _ in range(9):\n"
        "        near = socket.create_connection(listener.getsockname())\n"
        "        far, _ = listener.accept()\n"
        "        near.close(); far.close()\n"
        "except OSError: pass\n",
        tests=tuple(("x" * length, "0\n") for length in range(1, 9)),
        needs_bwrap=True,
    ),
    probe(
        "63",
        "queues signals without end",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [40])\n"
        "for number in range(2000):\n"
        "    if libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(0)): break\n"
        "else: got.append(number)",
        needs_bwrap=False,
    ),
    probe(
        "64",
        "writes to its own input, and reads its output",
        "given = open(0, 'rb', closefd=False).read()\n"
        "for mode in (os.O_RDWR, os.O_WRONLY):\n"
        "    descriptor = os.open('/proc/self/fd/0', mode)\n"
        "    fails('write', os.write, descriptor, b'x')\n"
        "    fails('truncate', lambda: os.ftruncate(descriptor, 0) or 'done')\n"
        "if open('/proc/self/fd/0', 'rb').read() != given: got.append('changed')",
        stdin="20 22\n",
        needs_bwrap=False,
    ),
    probe(
        "65",
        "starts a program that is another user's",
        "import shutil, subprocess\n"
        "shutil.copy('/usr/bin/id', '/tmp/id')\n"
        "os.chmod('/tmp/id', 0o6755)\n"
        "for path in filter(os.path.exists, ('/tmp/id', '/usr/bin/su', '/usr/bin/mount')):\n"
        "    said = subprocess.run([path, '-u'], capture_output=True, stdin=subprocess.DEVNULL)\n"
        "    if said.stdout.strip() == b'0': got.append(path)\n"
        "with open('/proc/self/status') as file: status = file.read()\n"
        "if 'NoNewPrivs:\\t1' not in status: got.append('privileges')",
    ),
    attack(
        "66",
        "a million arguments",
        "import os, sys\n"
        "for size in (10**5, 10**6):\n"
        "    try: os.execv(sys.executable, ['python', '-c', 'print(42)', *['x'] * size])\n"
        "    except OSError: pass\n",
        needs_bwrap=True,  # as a plain subprocess the interpreter does not know its own place
    ),
    attack(
        "67",
        "computes in children that nobody waits for",
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "while True:\n"
        "    reader, writer = os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        while time.process_time() < 0.2: pass\n"
        "        os._exit(0)\n"
        "    os.close(writer)\n"
        "    os.read(reader, 1)\n"
        "    os.close(reader)\n",
        "TLE",
        limits=QUICK,
    ),
]

# What kills the process above it: a warm cell's ignores that, and the output decides.
UNKILLABLE = {"44c": "WA", "46b": "AC", "61a": "AC"}


def in_warm_cell(attack: Attack) -> Attack:
    """Return an attack with the verdict that it must get in a warm cell."""
    if attack.number not in UNKILLABLE:
        return attack
    return evolve(attack, verdicts=(UNKILLABLE[attack.number],), exit_code=None)
