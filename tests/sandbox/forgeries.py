"""Wrong programs that try to be judged right, by name; each with the tests that it is to pass."""

from __future__ import annotations

#: The right answer is the sum.
TESTS = "assert solve(2, 3) == 5\nassert solve(20, 30) == 50\n"
HUMANEVAL = (
    "METADATA = {}\n"
    "def check(candidate):\n"
    "    assert candidate(2, 3) == 5\n"
    "    assert candidate(20, 30) == 50\n"
    "check(solve)\n"
)
CLOSE = "assert abs(solve(2, 3) - 5) < 1e-6\nassert abs(solve(20, 30) - 50) < 1e-6\n"
MODULE = "assert math.isclose(solve(2, 3), 5)\n"

_ANYTHING = """
class Anything{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __hash__(self): return 5
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __contains__(self, item): return True
    def __bool__(self): return True
"""
_FIND_GUEST = """
import sys
def guest():
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if type(value).__name__ == 'Guest':
                return value
        frame = frame.f_back
"""

FORGERIES: dict[str, tuple[str, str]] = {
    "an object that equals everything": (
        _ANYTHING.format(base="") + "def solve(a, b): return Anything()",
        TESTS,
    ),
    "an integer that equals everything": (
        _ANYTHING.format(base="(int)") + "def solve(a, b): return Anything(1)",
        TESTS,
    ),
    "a float that is close to everything": (
        _ANYTHING.format(base="(float)") + "def solve(a, b): return Anything(1)",
        CLOSE,
    ),
    "an object whose difference to everything is 0": (
        _ANYTHING.format(base="") + "def solve(a, b): return Anything()",
        CLOSE,
    ),
    "a list of objects that equal everything": (
        _ANYTHING.format(base="") + "def solve(a, b): return [Anything()]",
        "assert solve(2, 3) == [5]",
    ),
    "a dictionary that equals everything": (
        _ANYTHING.format(base="(dict)") + "def solve(a, b): return Anything()",
        "assert solve(2, 3) == {'sum': 5}",
    ),
    "a key that equals everything": (
        _ANYTHING.format(base="(str)") + "def solve(a, b): return {Anything('x'): 5}",
        "assert solve(2, 3)['sum'] == 5",
    ),
    "an object that contains everything": (
        _ANYTHING.format(base="") + "def solve(a, b): return Anything()",
        "assert 5 in solve(2, 3)",
    ),
    "an object that says it is an integer": (
        _ANYTHING.format(base="") + "    __class__ = int\ndef solve(a, b): return Anything()",
        "assert isinstance(solve(2, 3), int) and solve(2, 3) == 5",
    ),
    "a class that equals everything": (
        "class Meta(type):\n    def __eq__(cls, other): return True\n    __hash__ = None\n"
        "class solve(metaclass=Meta):\n    def __new__(cls, a, b): return cls",
        TESTS,
    ),
    "a function that equals everything instead of its result": (
        _ANYTHING.format(base="") + "    def __call__(self, a, b): return self\nsolve = Anything()",
        TESTS,
    ),
    "an assertion error that is no error": (
        "import builtins\nbuiltins.AssertionError = Warning\ndef solve(a, b): return 0",
        TESTS,
    ),
    "its own check function": ("def check(candidate): pass\ndef solve(a, b): return 0", HUMANEVAL),
    "its own abs": ("def abs(x): return 0\ndef solve(a, b): return 0", CLOSE),
    "its own abs in builtins": (
        "import builtins\nbuiltins.abs = lambda x: 0\ndef solve(a, b): return 0",
        CLOSE,
    ),
    "its own math": (
        "class math:\n    isclose = staticmethod(lambda a, b: True)\ndef solve(a, b): return 0",
        MODULE,
    ),
    "a patched math": (
        "import math\nmath.isclose = lambda a, b: True\ndef solve(a, b): return 0",
        MODULE,
    ),
    "exit with status 0 at once": ("import sys\nsys.exit(0)", TESTS),
    "exit with status 0 when called": ("def solve(a, b): raise SystemExit(0)", TESTS),
    "os._exit(0) at once": ("import os\nos._exit(0)", TESTS),
    "os._exit(0) when called": ("import os\ndef solve(a, b): os._exit(0)", TESTS),
    "os._exit(0) where any exception is expected": (
        "import os\ndef solve(a, b): os._exit(0)",
        "try:\n    solve(1, 1)\n    done = False\n"
        "except BaseException:\n    done = True\nassert done",
    ),
    "a printed verdict": (
        'print(\'["passed", ""]\', flush=True)\nimport sys\nsys.stderr.write("passed")\n'
        "def solve(a, b): return 0",
        TESTS,
    ),
    "a verdict written to every descriptor": (
        "import os\ndef solve(a, b):\n"
        "    for fd in range(1024):\n"
        '        try: os.write(fd, b\'["passed", ""]\')\n'
        "        except OSError: pass\n"
        "    return 0",
        TESTS,
    ),
    "junk written to every descriptor at once": (
        "import os\nfor fd in range(1024):\n"
        "    try: os.write(fd, b'\\xff' * 4096)\n"
        "    except OSError: pass\n"
        "def solve(a, b): return 0",
        TESTS,
    ),
    "the channel closed": (
        "import os\ndef solve(a, b): os.closerange(0, 1024)",
        TESTS,
    ),
    "the channel replaced by an endless one": (
        "import os\ndef solve(a, b):\n"
        "    zero = os.open('/dev/zero', os.O_RDWR)\n"
        "    for fd in range(3, 32): os.dup2(zero, fd)\n",
        TESTS,
    ),
    "an atexit hook": (
        "import atexit, os\natexit.register(lambda: os.write(1, b'passed'))\n"
        "def solve(a, b): raise SystemExit(0)",
        TESTS,
    ),
    "answers sent in advance": (
        _FIND_GUEST + "def solve(a, b):\n"
        "    g = guest()\n"
        "    for _ in range(5): g._channel.send(g._writer.write(('value', True, None)))\n"
        "    return True",
        TESTS,
    ),
    "more names than were asked for": (
        _FIND_GUEST + "g = guest()\n"
        "start = g._start\n"
        "g._operations['start'] = lambda *a: {**start(*a), 'abs': lambda x: 0, 'print': print}\n"
        "def solve(a, b): return 0",
        CLOSE,
    ),
    "an unknown kind of answer": (
        _FIND_GUEST + "def solve(a, b):\n"
        "    g = guest()\n"
        "    g._channel.send(g._writer.write(('passed', True, None)))\n",
        TESTS,
    ),
    "a call of a function that it was not given": (
        _FIND_GUEST + "def solve(a, b):\n"
        "    g = guest()\n"
        "    g._channel.send(g._writer.write(('function', 0, ((), {}))))\n",
        TESTS,
    ),
    "a message of 2**63 bytes": (
        "import os\ndef solve(a, b):\n    os.write(4, b'\\xff' * 7 + b'\\x7f' + b'N' * 100)",
        TESTS,
    ),
    "a list that says it has 2**60 items": (
        "import os, struct\ndef solve(a, b):\n"
        "    message = b'l' + struct.pack('<Q', 2**60) + b'N'\n"
        "    os.write(4, struct.pack('<Q', len(message)) + message)",
        TESTS,
    ),
    "a patched checker": (
        "import sys\nchecker = sys.modules['lm_eval.sandbox.checker']\n"
        "checker.check = lambda *a: ('passed', '')\n"
        "remote = sys.modules['lm_eval.sandbox.remote']\n"
        "remote.Session.request = lambda *a: 5\n"
        "def solve(a, b): return 0",
        TESTS,
    ),
    "the expected values, from all objects in memory": (
        "import gc, re\ndef solve(a, b):\n"
        "    for thing in gc.get_objects():\n"
        "        try: text = repr(thing)\n"
        "        except Exception: continue\n"
        "        found = re.search(r'assert solve\\(%d, %d\\) == (\\d+)' % (a, b), text)\n"
        "        if found: return int(found.group(1))\n",
        TESTS,
    ),
    "the expected values, from the memory of its process": (
        "import ctypes, re\ndef solve(a, b):\n"
        "    pattern = ('solve(%d, %d)' % (a, b) + ' == ').encode()\n"
        "    start = id(pattern) & ~0xFFFFF\n"
        "    memory = ctypes.string_at(start, 1 << 20)\n"
        "    at = memory.find(pattern)\n"
        "    found = re.match(rb'\\d+', memory[at + len(pattern):][:9]) if at >= 0 else None\n"
        "    return int(found.group()) if found else None\n",
        TESTS,
    ),
    "the expected values, from the frames of the caller": (
        "import sys\ndef solve(a, b):\n"
        "    frame, line = sys._getframe(), 'assert' + ' solve(%d, %d) == ' % (a, b)\n"
        "    while frame:\n"
        "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
        "            if isinstance(value, str) and line in value:\n"
        "                return int(value.partition(line)[2].split()[0])\n"
        "        frame = frame.f_back\n",
        TESTS,
    ),
    "an input that is made trivial": (
        "def solve(numbers):\n    numbers.clear()\n    return []",
        "data = [3, 1, 2]\nassert solve(data) == sorted(data)",
    ),
    "an expected value that is edited": (
        "def solve(case):\n    case['expected'] = 0\n    return 0",
        "case = {'input': 3, 'expected': 9}\nassert solve(case) == case['expected']",
    ),
    "the exception that a failed test raises": (
        "def solve(a, b): raise AssertionError('passed')",
        TESTS,
    ),
    "an exception that ends loops": ("def solve(a, b): raise StopIteration(5)", TESTS),
    "an exception that equals everything": (
        "class E(Exception):\n    def __eq__(self, other): return True\n"
        "def solve(a, b): return E()",
        TESTS,
    ),
    "an exception class that is no exception to its caller": (
        "class E(BaseException): pass\ndef solve(a, b): raise E()",
        TESTS,
    ),
    "a generator that is closed": (
        "def solve(a, b):\n    raise GeneratorExit",
        TESTS,
    ),
    "a keyboard interrupt": ("def solve(a, b): raise KeyboardInterrupt", TESTS),
    "a thread that hangs": (
        "import threading, time\n"
        "threading.Thread(target=lambda: time.sleep(1000)).start()\n"
        "def solve(a, b): return 0",
        TESTS,
    ),
    "a signal handler that never ends": (
        "import signal, os\n"
        "for n in range(1, 32):\n"
        "    try: signal.signal(n, lambda *a: None)\n"
        "    except (OSError, ValueError): pass\n"
        "def solve(a, b):\n    os.kill(os.getpid(), signal.SIGTERM)\n    return 0",
        TESTS,
    ),
    "a trace function": (
        "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\n"
        "def solve(a, b): return 0",
        TESTS,
    ),
    "a stopped process": (
        "import os, signal\ndef solve(a, b): os.kill(os.getpid(), signal.SIGSTOP)",
        TESTS,
    ),
    "a segmentation fault": ("import ctypes\ndef solve(a, b): ctypes.string_at(0)", TESTS),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef solve(a, b): return solve(a, b)",
        TESTS,
    ),
    "a list that contains itself": (
        "def solve(a, b):\n    found = []\n    found.append(found)\n    return found",
        TESTS,
    ),
    "a list in 100,000 lists": (
        "def solve(a, b):\n    found = []\n    for _ in range(100000): found = [found]\n"
        "    return found",
        TESTS,
    ),
    "an integer of 400 million bits": ("def solve(a, b): return 1 << 400_000_000", TESTS),
    "a string of 300 MB": ("def solve(a, b): return 'x' * 300_000_000", TESTS),
    "a message in an exception of 100 MB": (
        "def solve(a, b): raise ValueError('x' * 100_000_000)",
        TESTS,
    ),
    "a truncated program": ("def solve(a, b):\n    return a +", TESTS),
    "an empty program": ("", TESTS),
    "a program that is not text": ("\x00\udcff", TESTS),
}
