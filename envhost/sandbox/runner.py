"""The first process inside a cell: it forks the program, waits for it, and reports how it ended.

Runs under the cell's interpreter with nothing but the standard library, as
`python -S -s -P /cell/runner.py RESULT LIFELINE GROUPS NOFILE AS NPROC CPU CALL [FILE…]`: two
descriptors, those of the cgroups to join with commas between, four limits, the function to call or
nothing, and files of the runner's own directory as the program's arguments.

Goals. The program's end comes to the host as the true wait status, not as bwrap's translation of
it. A host that dies takes the cell with it at any moment: the lifeline's end of file ends this
process, and with it the cell's pid namespace. The program cannot read or steal anything of this
process (it is not dumpable) and behaves as under a plain interpreter.

Known weak points. The program has the same uid: it can kill this process, which ends its own cell
without a report, a runtime error.
"""

import os
import resource
import sys
from _ctypes import call_function, dlopen, dlsym

CELL = "/cell"  # where bubblewrap's cells have this file, and no others
DIRECTORY = os.path.dirname(os.path.abspath(sys.argv[0]))
MAIN = DIRECTORY + "/main.py"
PRELUDE = DIRECTORY + "/prelude.py"
PENDING_SIGNALS = 1024
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36


def prctl(option, value):
    """Set an attribute of this process."""
    # ctypes itself takes 4 ms to import, half of the interpreter's start.
    call_function(dlsym(dlopen(None, os.RTLD_NOW), "prctl"), (option, value, 0, 0, 0))


def watch(child, result, lifeline):
    """Wait for the program or the host's end, report the former, and leave."""
    import select

    poller = select.poll()
    pidfd = os.pidfd_open(child)
    poller.register(pidfd, select.POLLIN)
    poller.register(lifeline, select.POLLIN | select.POLLHUP)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if lifeline in ready:
            end_all()
            os._exit(1)
        if pidfd in ready:
            break
    # Everything that the program started and waited for is in its own children's times.
    _, status, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    report = f"done {status} {seconds} {usage.ru_maxrss * 1024}\n"
    try:  # noqa: SIM105 - contextlib is an import more
        os.write(result, report.encode())
    except OSError:
        pass  # the host has just died
    end_all()
    os._exit(0)


def end_all():
    """Kill the program and what it left behind: in a pid namespace the kernel does, else we."""
    if DIRECTORY == CELL:
        return
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            for pid in file.read().split():
                os.kill(int(pid), 9)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def is_host_gone(lifeline):
    """Whether the host has ended before the program was begun."""
    import select

    poller = select.poll()
    poller.register(lifeline, select.POLLIN | select.POLLHUP)
    return bool(poller.poll(0))


def join(groups):
    """Join the cgroups of these descriptors."""
    for fd in groups.split(",") if groups else ():
        os.write(int(fd), b"0")


def close_all_from(lowest):
    """Close every descriptor from a number on; how high they go is the host's affair."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= lowest:
            try:  # noqa: SIM105 - contextlib is an import more
                os.close(int(name))
            except OSError:
                pass  # the listing's own


def lower_limits(nofile, address_space, processes, cpu):
    """Bound the program; what was the hard limit before cannot be raised again."""
    bounds = {
        resource.RLIMIT_AS: (address_space, address_space),
        # Not 0: a crash would still start what the host has in its core_pattern, on the host.
        resource.RLIMIT_CORE: (1, 1),
        resource.RLIMIT_CPU: (cpu, cpu + 1),  # soft below hard, so that it shows as SIGXCPU
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_NOFILE: (nofile, nofile),
        resource.RLIMIT_NPROC: (processes, processes),
        resource.RLIMIT_SIGPENDING: (PENDING_SIGNALS, PENDING_SIGNALS),  # a user's, in all cells
    }
    for name, bound in bounds.items():
        most = resource.getrlimit(name)[1]
        if most == resource.RLIM_INFINITY:  # else the host may have less than we would give
            most = max(bound)
        resource.setrlimit(name, tuple(min(number, most) for number in bound))


def load(result):
    """Return the compiled program, or report that it cannot be compiled, and leave."""
    try:
        with open(MAIN, "rb") as file:
            return compile(file.read(), MAIN, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        os.write(result, b"uncompiled\n")
        sys.stderr.write(f"{type(error).__name__}: {error}\n".encode("ascii", "replace").decode())
        sys.stderr.flush()
        os._exit(1)


def begin():
    """Fork the program's process; return there its code, its module and how to call it."""
    result, lifeline = map(int, sys.argv[1:3])
    nofile, address_space, processes, cpu = map(int, sys.argv[4:8])
    groups, call = sys.argv[3], sys.argv[8]
    os.nice(10)
    # Programs cannot read, trace or steal from this process.
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if is_host_gone(lifeline):
        os._exit(1)
    os.write(result, b"begun\n")
    child = os.fork()
    if child:
        watch(child, result, lifeline)
    join(groups)  # the program alone: where memory runs out, the runner lives to tell
    return become_program(result, (nofile, address_space, processes, cpu), call, sys.argv[9:])


def become_program(result, limits, call, names):
    """Bound this process and make it the program's; return its code, module and how to call it."""
    # So that kill(0, …) reaches the program's own processes only. Not a session of its own: the
    # kernel's scheduler shares a machine out between sessions, and this one has been set back.
    os.setpgrp()
    lower_limits(*limits)
    code = load(result)
    channel = arguments = None
    if call:
        import json

        arguments = json.loads(read_all(0))
        channel = os.dup2(1, 3)  # over one that is not needed here
        os.dup2(2, 1)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    close_all_from(4 if call else 3)
    sys.argv = [MAIN, *(f"{DIRECTORY}/{name}" for name in names)]
    sys.path[:] = [os.getcwd(), *sys.path, *package_directories()]
    prctl(PR_SET_DUMPABLE, 1)
    prefer_as_victim()
    module = program_module()
    if os.path.exists(PRELUDE):
        with open(PRELUDE) as file:
            exec(compile(file.read(), PRELUDE, "exec"), module.__dict__)
    return code, module, (call, arguments, channel)


def package_directories():
    """Return where the interpreter's packages lie; `site` would read and run files there."""
    library = f"{sys.prefix}/lib/python{sys.version_info[0]}"
    return [f"{library}.{sys.version_info[1]}/site-packages", f"{library}/dist-packages"]


def prefer_as_victim():
    """Where memory runs out, end the program and not the runner."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def read_all(fd):
    """Return everything that a descriptor gives."""
    with open(fd, "rb", closefd=False) as file:
        return file.read()


def program_module():
    """Make the module that the program runs as, and what `site` adds to the builtins."""
    import _sitebuiltins
    import builtins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    module = type(sys)("__main__")
    module.__file__ = MAIN
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    return module


def answer(module, call, arguments, channel):
    """Call the program's function and send its return value as JSON."""
    import json

    function = getattr(module, call, None)
    if function is None:
        function = getattr(module.Solution(), call)
    value = function(*arguments)
    text = json.dumps(value, default=plain).encode()
    with open(channel, "wb") as file:
        file.write(text)


def plain(value):
    """Return a JSON value for what JSON does not know."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "__iter__"):
        return list(value)
    return str(value)


# At the module's top level, and not in a function: the interpreter's own end (exit codes, atexit,
# threads, flush errors, tracebacks) is then the program's.
if __name__ == "__main__":
    code, module, how = begin()
    exec(code, module.__dict__)
    if how[0]:
        answer(module, *how)
