"""Programs that try to leave the sandbox, or to use more than they may.

Each defines `attack()`, which returns True if it has succeeded, so that a verdict of `passed` means
harm. `{…}` are filled in by the tests: paths, ports and processes that are there to be attacked.
"""

from __future__ import annotations

from dataclasses import dataclass

N, L, S = "namespaces", "landlock", "seccomp"
TESTS = "assert attack() is True"


@dataclass(frozen=True)
class Attack:
    """An attack, and the mechanisms of which each alone stops it.

    Attributes:
        code: the body of `attack`; it fails by an exception or by returning something else.
        stopped_by: the mechanisms.
        works: whether it succeeds under the limits alone, for an ordinary user on Linux; so that
            the test shows something.
        landlock: the version of Landlock that stops it, if it is one of the mechanisms.
    """

    code: str
    stopped_by: tuple[str, ...]
    works: bool = True
    landlock: int = 1

    @property
    def program(self) -> str:
        """The whole program."""
        lines = "".join(f"    {line}\n" for line in self.code.strip().splitlines())
        return f"{_TOOLS}\ndef attack():\n{lines}"


_TOOLS = """
import ctypes, errno, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    '''A raw system call by its number on x86_64 and aarch64; True unless it is refused.'''
    numbers = NUMBERS[name]
    number = numbers[0] if os.uname().machine == 'x86_64' else numbers[1]
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    return result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EACCES)
NUMBERS = {'fork': (57, 220), 'io_uring': (425, 425), 'userfaultfd': (323, 282), 'bpf': (321, 280),
    'perf': (298, 241), 'keyctl': (250, 219), 'unshare': (272, 97), 'setns': (308, 268),
    'mount': (165, 40), 'ptrace': (101, 117), 'vm_read': (310, 270), 'pidfd_open': (434, 434),
    'chroot': (161, 51), 'shmget': (29, 194), 'memfd': (319, 279), 'handle': (304, 265),
    'personality': (135, 92), 'clone3': (435, 435), 'msgget': (68, 186), 'kcmp': (312, 272),
    'add_key': (248, 217), 'fanotify': (300, 262), 'process_madvise': (440, 440)}
"""

ATTACKS: dict[str, Attack] = {
    # --- reading what is not its own
    "read a file in a home folder": Attack(
        "return open('{home}/secret').read() == 'secret'", (N, L)
    ),
    "list a home folder": Attack("return 'secret' in os.listdir('{home}')", (N, L)),
    "read a file through a symbolic link": Attack(
        "os.symlink('{home}/secret', 'link')\nreturn open('link').read() == 'secret'", (N, L)
    ),
    "read a file through a hard link": Attack(
        "os.link('{home}/secret', 'link')\nreturn open('link').read() == 'secret'",
        (N, L),
        works=False,  # another user's file, or another file system
    ),
    "read a file through a path of many dots": Attack(
        "return open('../' * 30 + '{home}/secret'[1:]).read() == 'secret'", (N, L)
    ),
    "read the list of users": Attack("return 'root' in open('/etc/passwd').read()", (N, L)),
    "list a folder of the system": Attack("return 'passwd' in os.listdir('/etc')", (N, L)),
    "read the process list": Attack(
        "return any(name.isdigit() for name in os.listdir('/proc'))", (N, L)
    ),
    "read another process's command": Attack(
        "return bool(open('/proc/{process}/cmdline').read())", (N, L)
    ),
    "read another process's environment": Attack(
        "return bool(open('/proc/{process}/environ').read())", (N, L), works=False
    ),
    "read the caller's environment": Attack(
        "return any('LMEVAL_TEST_SECRET' in k for k in os.environ)", (), works=False
    ),
    "read its first environment": Attack(
        "return b'LMEVAL_TEST_SECRET' in open('/proc/self/environ', 'rb').read()",
        (N, L),
        works=False,
    ),
    "read another process's memory by a file": Attack(
        "return open('/proc/{process}/mem', 'rb') is not None", (N, L), works=False
    ),
    "read another process's memory by a call": Attack(
        "piece = ctypes.create_string_buffer(16)\n"
        "mine = (ctypes.c_size_t * 2)(ctypes.addressof(piece), 8)\n"
        "theirs = (ctypes.c_size_t * 2)(id(piece), 8)\n"
        "return call('vm_read', {process}, mine, 1, theirs, 1, 0)",
        (S,),
        works=False,
    ),
    "trace another process": Attack(
        "return call('ptrace', 16, {process}, 0, 0)", (S,), works=False
    ),
    "trace the process of its tests": Attack(
        "def parent(pid):\n"
        "    return int(open('/proc/%s/stat' % pid).read().rpartition(')')[2].split()[1])\n"
        "others = [int(n) for n in os.listdir('/proc') if n.isdigit() and int(n) != os.getpid()]\n"
        "siblings = []\n"
        "for pid in others:\n"
        "    try: siblings += [pid] if parent(pid) == os.getppid() else []\n"
        "    except OSError: pass\n"
        "number = 101 if os.uname().machine == 'x86_64' else 117\n"
        "for pid in siblings:\n"
        "    if libc.syscall(number, 16, pid, 0, 0) == 0:\n"
        "        os.waitpid(pid, 0)\n"
        "        libc.syscall(number, 17, pid, 0, 0)\n"
        "        return True",
        (),
        works=False,
    ),
    "compare another process": Attack(
        "return call('kcmp', os.getpid(), os.getpid(), 1, 0, 0)", (S,)
    ),
    "open a handle to another process": Attack(
        "return libc.syscall(434, {process}, 0) >= 0", (N, S)
    ),
    "open a file by its handle": Attack("return call('handle', -100, None, 0)", (S,), works=False),
    # --- the network
    "connect by IPv4": Attack(
        "socket.create_connection(('127.0.0.1', {port}), 2).close()\nreturn True",
        (N, L, S),
        landlock=4,
    ),
    "connect by IPv6": Attack(
        "socket.create_connection(('::1', {port6}), 2).close()\nreturn True", (N, L, S), landlock=4
    ),
    "send by UDP": Attack(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.connect(('127.0.0.1', {port}))\nreturn s.send(b'x') == 1",
        (N, S),
    ),
    "ask a name server": Attack(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "return s.sendto(b'\\0' * 12, ('127.0.0.53', 53)) == 12",
        (N, S),
    ),
    "connect to a unix socket": Attack(
        "s = socket.socket(socket.AF_UNIX)\ns.connect('{home}/socket')\nreturn True", (N, S)
    ),
    "connect to an abstract socket": Attack(
        "s = socket.socket(socket.AF_UNIX)\ns.connect('\\0{abstract}')\nreturn True",
        (N, L, S),
        landlock=6,
    ),
    "send to a unix socket by a socket pair": Attack(
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "return a.sendto(b'x', '{home}/datagrams') == 1",
        (N, S),
    ),
    "listen for TCP": Attack(
        "s = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\nreturn True", (L, S), landlock=4
    ),
    "open a raw socket": Attack(
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\nreturn True", (S,), works=False
    ),
    "open a packet socket": Attack(
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nreturn True", (S,), works=False
    ),
    "read the routes by netlink": Attack(
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\nreturn True", (S,)
    ),
    "open a vsock": Attack("socket.socket(40, socket.SOCK_STREAM)\nreturn True", (S,), works=False),
    # --- other processes
    "signal another process": Attack(
        "os.kill({process}, 0)\nreturn True", (N, L, S), works=False, landlock=6
    ),
    "kill another process": Attack(
        "os.kill({process}, signal.SIGKILL)\nreturn True", (N, L, S), works=False, landlock=6
    ),
    "kill another process by a pipe that it owns": Attack(
        "import fcntl\n"
        "reading, writing = os.pipe()\n"
        "fcntl.fcntl(reading, 8, {process})\nfcntl.fcntl(reading, 10, signal.SIGKILL)\n"
        "fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)\nos.write(writing, b'x')\nreturn True",
        (N, S),
        works=False,
    ),
    "kill the runner": Attack(
        "os.kill(os.getppid() or 2**22, signal.SIGKILL)\nreturn True",
        (N, L, S),
        works=False,
        landlock=6,
    ),
    "kill all processes": Attack("os.kill(-1, signal.SIGUSR1)\nreturn True", (N, S), works=False),
    "start a process": Attack("return os.fork() >= 0", (S,)),
    "start a process by a raw call": Attack(
        "return libc.syscall(57 if os.uname().machine == 'x86_64' else 220, 17, 0, 0, 0, 0) >= 0",
        (S,),
    ),
    "start a process by clone3": Attack("return call('clone3', None, 0)", (S,)),
    "execute a file": Attack(
        "import subprocess\nreturn subprocess.run(['/bin/true']).returncode == 0", (L, S)
    ),
    "execute by a shell": Attack("return os.system('exit 0') == 0", (L, S)),
    "execute the interpreter": Attack(
        "os.execv(sys.executable, [sys.executable, '-c', ''])", (L, S), works=False
    ),
    # --- writing
    "write outside": Attack("open('{open}/planted', 'w').write('x')\nreturn True", (N, L)),
    "write to the temporary folder": Attack(
        "open('/tmp/lm-eval-sandbox-planted', 'w').write('x')\n"
        "os.unlink('/tmp/lm-eval-sandbox-planted')\nreturn True",
        (N, L),
    ),
    "write to shared memory": Attack(
        "open('/dev/shm/lm-eval-sandbox-planted', 'w').write('x')\n"
        "os.unlink('/dev/shm/lm-eval-sandbox-planted')\nreturn True",
        (N, L),
    ),
    "truncate a file outside": Attack(
        "os.truncate('{open}/victim', 0)\nreturn True", (N, L), landlock=3
    ),
    "append by a symbolic link": Attack(
        "os.symlink('{open}/victim', 'link')\nopen('link', 'a').write('x')\nreturn True", (N, L)
    ),
    "rename a file outside": Attack(
        "os.rename('{open}/victim2', '{open}/victim3')\nreturn True", (N, L), works=False
    ),
    "delete a file outside": Attack(
        "os.unlink('{open}/victim4')\nreturn True", (N, L), works=False
    ),
    "make a folder outside": Attack("os.mkdir('{open}/folder')\nreturn True", (N, L)),
    "hard-link a file into the scratch folder": Attack(
        "os.link('{open}/victim', 'mine')\nopen('mine', 'a').write('x')\nreturn True",
        (N, L),
        works=False,
    ),
    "change permissions outside": Attack(
        "os.chmod('{open}/victim', 0)\nreturn True", (N,), works=False
    ),
    "plant a sitecustomize": Attack(
        "import sysconfig\n"
        "open(sysconfig.get_path('purelib') + '/sitecustomize.py', 'w')\nreturn True",
        (N, L),
        works=False,
    ),
    "plant a module in the standard library": Attack(
        "open(os.path.dirname(os.__file__) + '/planted.py', 'w')\nreturn True", (N, L), works=False
    ),
    "plant a locale": Attack(
        "os.mkdir('/usr/lib/locale/planted')\nreturn True", (N, L), works=False
    ),
    "open a disk": Attack(
        "return any(open('/dev/' + name, 'rb') for name in ('vda', 'sda', 'nvme0n1', 'kmsg'))",
        (N, L),
        works=False,
    ),
    "open the terminal": Attack("return open('/dev/tty', 'r+b') is not None", (N, L), works=False),
    "make a device": Attack(
        "os.mknod('null', 0o666 | 0o020000, os.makedev(1, 3))\nreturn True", (S,), works=False
    ),
    "make a set-user-id file that counts": Attack(
        "open('x', 'w').write('x')\nos.chmod('x', 0o4755)\nos.execv('./x', ['x'])",
        (N, L, S),
        works=False,
    ),
    # --- privileges and the kernel
    "become root": Attack("os.setuid(0)\nreturn os.getuid() == 0", (N, L, S), works=False),
    "make a user namespace": Attack("return call('unshare', 0x10000000)", (S,)),
    "make a network namespace": Attack("return call('unshare', 0x50000000)", (S,)),
    "enter a namespace": Attack("return call('setns', 0, 0)", (S,), works=False),
    "mount something": Attack("return call('mount', None, b'/', None, 0, None)", (S,), works=False),
    "change the root": Attack("return call('chroot', b'/')", (S,), works=False),
    "use io_uring": Attack("return call('io_uring', 1, None)", (S,), works=False),
    "use userfaultfd": Attack("return call('userfaultfd', 1)", (S,), works=False),
    "load a bpf program": Attack("return call('bpf', 0, None, 0)", (S,), works=False),
    "measure performance": Attack("return call('perf', None, 0, -1, -1, 0)", (S,), works=False),
    "read the keyring": Attack("return call('keyctl', 0, -3, 0)", (S,), works=False),
    "add a key": Attack("return call('add_key', b'user', b'x', b'y', 1, -2)", (S,), works=False),
    "use System V shared memory": Attack("return call('shmget', 0x7e57, 4096, 0o1666)", (S,)),
    "use System V messages": Attack("return call('msgget', 0x7e57, 0o1666)", (S,)),
    "make a file in memory": Attack("return call('memfd', b'x', 0)", (S,)),
    "change the personality": Attack("return call('personality', 0x0040000)", (S,)),
    "raise a limit": Attack(
        "import resource\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_AS)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (hard * 2, hard * 2))\nreturn True",
        (N, L, S),
        works=False,
    ),
    "lower another process's limits": Attack(
        "import resource\n"
        "resource.prlimit({process}, resource.RLIMIT_NOFILE, (10, 10))\nreturn True",
        (N, S),
        works=False,
    ),
    "set the clock": Attack("time.clock_settime(0, 0)\nreturn True", (N, L, S), works=False),
    "change the name of the machine": Attack(
        "socket.sethostname('planted')\nreturn True", (N, L, S), works=False
    ),
    # --- using too much; limits stop these everywhere
    "allocate 100 GB": Attack("return len(bytearray(100 << 30)) > 0", (), works=False),
    "allocate 100 GB by a mapping": Attack(
        "import mmap\nreturn len(mmap.mmap(-1, 100 << 30)) > 0", (), works=False
    ),
    "allocate 2 GB in small pieces": Attack(
        "kept = [bytes(1 << 20) for _ in range(2048)]\nreturn len(kept) == 2048", (), works=False
    ),
    "write a file of 10 GB": Attack(
        "piece = bytes(1 << 20)\n"
        "with open('big', 'wb') as file:\n"
        "    for _ in range(10240): file.write(piece)\n"
        "return True",
        (),
        works=False,
    ),
    "make a sparse file of 10 GB": Attack(
        "os.truncate(os.open('big', os.O_CREAT | os.O_RDWR), 10 << 30)\nreturn True",
        (),
        works=False,
    ),
    "make a million files": Attack(
        "for n in range(1_000_000): os.close(os.open(str(n), os.O_CREAT))\nreturn True",
        (),
        works=False,
    ),
    "fill the scratch folder with files": Attack(
        "for n in range(1000):\n    with open(str(n), 'wb') as file: file.write(bytes(8 << 20))\n"
        "return True",
        (),
        works=False,
    ),
    "open a thousand files": Attack(
        "kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(1000)]\nreturn True",
        (),
        works=False,
    ),
    "start a thousand threads": Attack(
        "import threading\n"
        "for _ in range(1000):\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "return True",
        (),
        works=False,
    ),
    "start processes that start processes": Attack(
        "while True:\n    try: os.fork()\n    except OSError: pass", (), works=False
    ),
    "loop for ever": Attack("while True: pass", (), works=False),
    "sleep for ever": Attack("time.sleep(1000)\nreturn True", (), works=False),
    "ignore the signals of limits": Attack(
        "for n in (signal.SIGXCPU, signal.SIGALRM, signal.SIGTERM):\n"
        "    signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        (),
        works=False,
    ),
    "compute a huge integer": Attack("return 9 ** 9 ** 9 > 0", (), works=False),
    "print for ever": Attack("while True: print('x' * 65536)", (), works=False),
    "wait for input": Attack("return bool(input())", (), works=False),
    "write core files": Attack("os.abort()", (), works=False),
    # --- leaving something behind
    "start a daemon": Attack(
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n"
        "    os._exit(0)\nreturn False",
        (),
        works=False,
    ),
    "leave a process in a new session": Attack(
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nreturn False", (), works=False
    ),
    "act after the verdict": Attack(
        "import threading\n"
        "def later():\n    time.sleep(0.5)\n    open('{open}/late', 'w')\n"
        "threading.Thread(target=later).start()\nreturn False",
        (),
        works=False,
    ),
    "delete the scratch folder": Attack(
        "import shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\n"
        "os.rmdir(os.getcwd())\nreturn False",
        (),
        works=False,
    ),
    "lock the scratch folder": Attack(
        "os.makedirs('a/b/c')\nopen('a/b/c/d', 'w')\nos.chmod('a/b', 0)\nos.chmod('.', 0)\n"
        "return False",
        (),
        works=False,
    ),
    "make names that are hard to remove": Attack(
        "for name in ('-rf', ' ', '\\n', '\\udcff', 'x' * 255): open(name, 'w')\n"
        "os.symlink('/', 'root')\nos.mkfifo('pipe')\nreturn False",
        (),
        works=False,
    ),
}
