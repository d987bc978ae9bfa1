"""Hostile programs, as data. Each is a candidate that defines `f`; the test evaluates `f(1, 2)`.

`{…}` places are filled in by the test with what exists on this machine only while it runs: a secret in the
environment, a canary file, two listening sockets, the test's own process.
"""

# ruff: noqa: E501  (programs are kept as they are)

from dataclasses import dataclass

FORGERIES: dict[str, str] = {
    "os._exit at import": "import os\nos._exit(0)",
    "sys.exit at import": "import sys\nsys.exit(0)",
    "exit in the call": "def f(a, b):\n    raise SystemExit(0)",
    "exit in finally": "def f(a, b):\n    try:\n        return 0\n    finally:\n        raise SystemExit(0)",
    "KeyboardInterrupt": "def f(a, b):\n    raise KeyboardInterrupt",
    "always equal": "class E:\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(a, b): return E()",
    "always equal in a list": "class E:\n    def __eq__(self, o): return True\ndef f(a, b): return [E()]",
    "equal dict key": (
        "class E:\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\n"
        "def f(a, b): return {E(): 1}"
    ),
    "lying __class__": "class E:\n    @property\n    def __class__(self): return int\ndef f(a, b): return E()",
    "int subclass": (
        "class I(int):\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\n"
        "    def __add__(self, o): return self\n    def bit_length(self): return 1\ndef f(a, b): return I(5)"
    ),
    "str subclass": (
        "class S(str):\n    def __eq__(self, o): return True\n    __hash__ = str.__hash__\n"
        "    def __str__(self): return self\n    def __len__(self): return 0\ndef f(a, b): return S('x')"
    ),
    "list subclass": (
        "class L(list):\n    def __eq__(self, o): return True\n    def __iter__(self): return iter(())\n"
        "def f(a, b): return L([1])"
    ),
    "metaclass": (
        "class M(type):\n    def __eq__(s, o): return True\n    def __hash__(s): return hash(int)\n"
        "    __name__ = property(lambda s: 'int')\n    def __instancecheck__(s, o): return True\n"
        "    def __subclasscheck__(s, o): return True\nclass E(metaclass=M): pass\ndef f(a, b): return E()"
    ),
    "NaN": "def f(a, b): return float('nan')",
    "minus zero": "def f(a, b): return -0.0",
    "generator": "def f(a, b):\n    yield 5",
    "lazy object": "class Z:\n    def __getattr__(self, n): return Z()\n    def __call__(self, *a): return Z()\nf = Z()",
    "patched builtins": (
        "import builtins\nfor n in ('len', 'sorted', 'isinstance', 'issubclass', 'type', 'str', 'repr', 'all'):\n"
        "    setattr(builtins, n, lambda *a, **k: True)\ndef f(a, b): return 0"
    ),
    "deleted builtins": "import builtins\nfor n in list(vars(builtins)):\n    delattr(builtins, n)\nf = max",
    "patched eval and compile": (
        "import builtins\nbuiltins.eval = lambda *a: 3\nbuiltins.compile = lambda *a, **k: None\n"
        "builtins.exec = lambda *a: None\ndef f(a, b): return 0"
    ),
    "swapped json": "import sys\nfor n in ('json', '_json', 'marshal'):\n    sys.modules[n] = None\ndef f(a, b): return 0",
    "patched json.dumps": "import json\njson.dumps = lambda *a, **k: '3'\ndef f(a, b): return 0",
    "settrace": (
        "import sys\ndef t(frame, event, arg):\n    for k in list(frame.f_locals): frame.f_locals[k] = 3\n"
        "    return t\nsys.settrace(t)\nsys.setprofile(t)\ndef f(a, b): return 0"
    ),
    "gc hunt for numbers": (
        "import gc\ndef f(a, b):\n    found = [o for o in gc.get_objects() for o in gc.get_referents(o)\n"
        "             if type(o) is int and o.bit_length() > 60]\n    return found[0] if found else 0"
    ),
    "frame walk": (
        "import sys\ndef f(a, b):\n    frame = sys._getframe()\n    while frame:\n"
        "        for v in list(frame.f_locals.values()):\n"
        "            if type(v) is int and v.bit_length() > 60: return v\n        frame = frame.f_back\n    return 0"
    ),
    "change the caller's frame": (
        "import ctypes, sys\ndef f(a, b):\n    g = sys._getframe(2).f_globals\n    g['Writer'] = None\n"
        "    g['Unplain'] = BaseException\n    return 0"
    ),
    "read the job again": "import os\ndef f(a, b):\n    return [os.read(i, 9) for i in range(3, 9) if _t(i)]\ndef _t(i):\n"
    "    try:\n        os.set_blocking(i, False)\n        return os.read(i, 1)\n    except OSError:\n        return b''",
    "own memory": (
        "def f(a, b):\n    m = open('/proc/self/mem', 'rb')\n"
        "    for line in open('/proc/self/maps'):\n        pass\n    return 0"
    ),
    "memory of init": "def f(a, b): return open('/proc/1/mem', 'rb').read(1)",
    "descriptors of init": "import os\ndef f(a, b): return os.listdir('/proc/1/fd')",
    "fake protocol lines": (
        'import os\nfor i in range(1, 32):\n    try: os.write(i, b\'{"id":1,"v":3}\\n{"loaded":true}\\n\')\n'
        "    except OSError: pass\ndef f(a, b): return 0"
    ),
    "fake control lines": (
        "import os\nfor i in range(1, 32):\n    try: os.write(i, b'error no sandbox\\nend exit 0\\n')\n"
        "    except OSError: pass\ndef f(a, b): return 0"
    ),
    "close the results": "import os\ndef f(a, b):\n    os.closerange(0, 64)\n    return 0",
    "replace the results": (
        "import os\ndef f(a, b):\n    r, w = os.pipe()\n    for i in range(3, 12):\n"
        "        if i != w:\n            try: os.dup2(w, i)\n            except OSError: pass\n    return 0"
    ),
    "invalid UTF-8": "import os\ndef f(a, b):\n    [_w(i) for i in range(3, 32)]\n    return 0\ndef _w(i):\n"
    "    try: os.write(i, b'\\xff\\xfe\\n')\n    except OSError: pass",
    "deep JSON": "import os\ndef f(a, b):\n    [_w(i) for i in range(3, 32)]\n    return 0\ndef _w(i):\n"
    "    try: os.write(i, b'[' * 60000 + b'\\n')\n    except OSError: pass",
    "deep value": "def f(a, b):\n    x = []\n    for _ in range(10 ** 5): x = [x]\n    return x",
    "endless value": "def f(a, b):\n    x = []\n    x.append(x)\n    return [x, x]",
    "wide value": "def f(a, b):\n    x = []\n    for _ in range(60): x = [x, x]\n    return x",
    "huge integer": "def f(a, b): return 1 << 10 ** 8",
    "integer past the digit limit": "def f(a, b): return '9' * 5000 + str(10 ** 4000)",
    "planted modules": (
        "import os\nfor n in ('conftest.py', 'sitecustomize.py', 'usercustomize.py', 'x.pth', 'json.py', 're.py'):\n"
        "    for d in ('/tmp', '.', '/usr/lib/python3', os.path.dirname(os.__file__)):\n"
        "        try: open(os.path.join(d, n), 'w').write('raise SystemExit(0)')\n        except OSError: pass\n"
        "def f(a, b): return 0"
    ),
    "atexit": "import atexit, os\natexit.register(lambda: os._exit(0))\ndef f(a, b): return 0",
    "a thread that exits": (
        "import os, threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), os._exit(0))).start()\n"
        "def f(a, b):\n    time.sleep(0.3)\n    return 0"
    ),
    "__del__": "class D:\n    def __del__(self): import os; os._exit(0)\ndef f(a, b):\n    D()\n    return 0",
    "a lying exception": (
        "class X(Exception):\n    def __str__(self): raise SystemExit(0)\n    __class__ = int\n"
        "def f(a, b): raise X"
    ),
    "fork answers": "import os\n_p = os.fork()\ndef f(a, b): return 0",
    "replace the process": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(3)'])",
    "stop the reader": "import os, signal\ndef f(a, b):\n    os.kill(os.getppid(), signal.SIGSTOP)\n    return 0",
    "rebound AssertionError": (
        "import builtins\nclass A(SystemExit):\n    def __init__(self, *a): super().__init__(0)\n"
        "builtins.AssertionError = A\ndef f(a, b):\n    raise SystemExit(0)"
    ),
    "append to the caller's lists": (
        "import os, sys\ndef f(a, b):\n    frame = sys._getframe()\n    while frame:\n"
        "        for v in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
        "            if type(v) is list: v.append('passed')\n            if type(v) is dict: v['passed'] = True\n"
        "        frame = frame.f_back\n    os._exit(0)"
    ),
    "inspect.stack": (
        "import inspect\ndef f(a, b):\n    for info in inspect.stack():\n        for v in list(info.frame.f_locals.values()):\n"
        "            if type(v) is int and v.bit_length() > 60: return v\n    return 0"
    ),
    "own descriptors": (
        "import os\ndef f(a, b):\n    out = []\n    for n in os.listdir('/proc/self/fd'):\n"
        "        try:\n            os.set_blocking(int(n), False)\n            out.append(os.read(int(n), 1 << 16))\n"
        "        except OSError: pass\n    return out"
    ),
    "memory of every process": (
        "import glob\ndef f(a, b):\n    out = []\n    for p in glob.glob('/proc/*/mem'):\n"
        "        try:\n            for line in open(p.replace('/mem', '/maps')):\n"
        "                low = int(line.split('-')[0], 16)\n                with open(p, 'rb', 0) as m:\n"
        "                    m.seek(low)\n                    out.append(m.read(64))\n                break\n"
        "        except (OSError, OverflowError): pass\n    return len(out)"
    ),
    "printed protocol lines": (
        "import sys\ndef f(a, b):\n    for s in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):\n"
        '        if s: print(\'{"id":1,"v":3}\\nend exit 0\\nPASSED\', file=s, flush=True)\n    return 0'
    ),
    "a line of 10 MB": (
        "import os\ndef f(a, b):\n    for i in range(3, 32):\n        try:\n            data = b'{\"id\":1,\"v\":\"' + b'x' * (10 << 20) + b'\"}\\n'\n"
        "            while data: data = data[os.write(i, data):]\n        except OSError: pass\n    return 0"
    ),
    "overwritten tests": (
        "import os\ndef f(a, b):\n    for top in ('/tmp', '/usr', '.', '/'):\n        for folder, _, names in os.walk(top):\n"
        "            for n in names:\n                if 'test' in n:\n                    try: open(os.path.join(folder, n), 'w').write('')\n"
        "                    except OSError: pass\n            if folder.count('/') > 3: break\n    return 0"
    ),
    "huge decimal text": "def f(a, b): return 10 ** 10 ** 6",
}
"""Programs that try to look right without being so. The expected value is a random number of 120 bits."""

LEAKS: dict[str, str] = {
    "environment": "import os\ndef f(a, b): return dict(os.environ)",
    "environment of processes": (
        "import glob\ndef f(a, b):\n    out = []\n    for p in glob.glob('/proc/*/environ'):\n"
        "        try: out.append(open(p, 'rb').read())\n        except OSError: pass\n    return out"
    ),
    "canary file": "def f(a, b): return open({canary!r}).read()",
    "canary through a link": "import os\ndef f(a, b):\n    os.symlink({canary!r}, '/tmp/l')\n    return open('/tmp/l').read()",
    "canary through a hard link": "import os\ndef f(a, b):\n    os.link({canary!r}, '/tmp/l')\n    return open('/tmp/l').read()",
    "canary above the root": (
        "def f(a, b):\n    return [open(p + {canary!r}).read() for p in ('/..' * 8, '/proc/1/root', '/proc/self/root',\n"
        "            '/proc/self/cwd/..')]"
    ),
    "chroot out": (
        "import os\ndef f(a, b):\n    os.mkdir('/tmp/x')\n    os.chroot('/tmp/x')\n    os.chdir('../../..')\n"
        "    os.chroot('.')\n    return open({canary!r}).read()"
    ),
    "tokens in the home": (
        "import os\ndef f(a, b):\n    out = []\n    for p in ('.cache/huggingface/token', '.netrc', '.bashrc', '.config',\n"
        "              '.aws/credentials', '.ssh', '.gitconfig'):\n        p = os.path.join({home!r}, p)\n"
        "        if os.path.lexists(p): out.append({secret_mark!r} + p)\n    return out"
    ),
    "this repository": "def f(a, b): return {secret_mark!r} + open({here!r}).read()",
    "write outside": (
        "import os\ndef f(a, b):\n    for p in ({folder!r}, '/', '/usr', '/usr/lib', '/dev', '/proc/sys/kernel'):\n"
        "        try: open(os.path.join(p, 'escaped'), 'w').write('x')\n        except OSError: pass\n    return 0"
    ),
    "remove outside": "import shutil\ndef f(a, b):\n    shutil.rmtree({folder!r}, ignore_errors=True)\n    return 0",
    "loopback": (
        "import socket\ndef f(a, b):\n    s = socket.create_connection(('127.0.0.1', {port}), 1)\n"
        "    s.sendall(b'hello')\n    return {secret_mark!r}"
    ),
    "abstract socket": (
        "import socket\ndef f(a, b):\n    s = socket.socket(socket.AF_UNIX)\n    s.connect({abstract!r})\n"
        "    return {secret_mark!r}"
    ),
    "metadata service": (
        "import socket\ndef f(a, b):\n    socket.create_connection(('169.254.169.254', 80), 1)\n"
        "    return {secret_mark!r}"
    ),
    "name service": "import socket\ndef f(a, b): return {secret_mark!r} + str(socket.getaddrinfo('example.com', 80))",
    "raw, packet and vsock sockets": (
        "import socket\ndef f(a, b):\n    out = []\n    for k in ((2, 3, 1), (17, 3, 0), (40, 1, 0), (16, 3, 0), (38, 5, 0)):\n"
        "        try:\n            socket.socket(*k)\n            out.append({secret_mark!r} + str(k))\n"
        "        except OSError: pass\n    return out"
    ),
    "devices": (
        "import os\ndef f(a, b):\n    out = sorted(os.listdir('/dev'))\n"
        "    return out if out == ['null', 'urandom', 'zero'] else {secret_mark!r}"
    ),
    "make a device": (
        "import os\ndef f(a, b):\n    os.mknod('/tmp/d', 0o60666, os.makedev(8, 0))\n    return {secret_mark!r}"
    ),
    "a setuid program": (
        "import subprocess\ndef f(a, b):\n    out = subprocess.run(['/usr/bin/su', '-c', 'id'], capture_output=True)\n"
        "    return ({secret_mark!r} if b'uid=0' in out.stdout else 0)"
    ),
    "become root": "import os\ndef f(a, b):\n    os.setresuid(0, 0, 0)\n    return open({canary!r}).read()",
    "trace the parent": (
        "import ctypes, os\ndef f(a, b):\n    r = ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)\n"
        "    return {secret_mark!r} if r == 0 else 0"
    ),
    "nested namespaces": (
        "import ctypes\ndef f(a, b):\n    r = [ctypes.CDLL(None).unshare(n) for n in (0x10000000, 0x20000, 0x40000000)]\n"
        "    return {secret_mark!r} if 0 in r else 0"
    ),
    "mount by system call": (
        "import ctypes\ndef f(a, b):\n    r = ctypes.CDLL(None).mount(b'proc', b'/tmp', b'proc', 0, None)\n"
        "    return {secret_mark!r} if r == 0 else 0"
    ),
    "kill everything": (
        "import os\ndef f(a, b):\n    for p in (-1, 1, os.getppid(), {pid}):\n"
        "        try: os.kill(p, 9)\n        except OSError: pass\n    return 0"
    ),
    "kill the group": "import os\nos.killpg(0, 9)\ndef f(a, b): return 0",
    "real-time priority": (
        "import os\ndef f(a, b):\n    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n"
        "    return {secret_mark!r}"
    ),
    "higher priority": "import os\ndef f(a, b):\n    os.nice(-5)\n    return {secret_mark!r}",
    "raise the limits": (
        "import resource\ndef f(a, b):\n    for k in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):\n"
        "        try:\n            resource.setrlimit(k, (1 << 40, 1 << 40))\n            return {secret_mark!r}\n"
        "        except (OSError, ValueError): pass\n    return 0"
    ),
    "fork without os": (
        "import posix, _posixsubprocess, importlib, os\ndef f(a, b):\n    importlib.reload(os)\n"
        "    os.system('cat ' + {canary!r} + ' > /tmp/o')\n"
        "    return open('/tmp/o').read() if os.path.exists('/tmp/o') else posix.getuid()"
    ),
    "subclasses walk": (
        "def f(a, b):\n    for c in object.__subclasses__():\n        g = getattr(getattr(c, '__init__', None), '__globals__', {{}})\n"
        "        if 'open' in g.get('__builtins__', {{}}): return g['__builtins__']['open']({canary!r}).read()\n"
        "    return 0"
    ),
    "shared memory of this machine": (
        "import os\ndef f(a, b): return {secret_mark!r} if os.path.exists('/dev/shm') else 0"
    ),
    "host name": "import os\ndef f(a, b): return {secret_mark!r} if os.uname().nodename != 'sandbox' else 0",
    "other users' processes": (
        "import os\ndef f(a, b):\n    n = [p for p in os.listdir('/proc') if p.isdigit() and p not in ('1', '2')]\n"
        "    return {secret_mark!r} + str(n) if n else 0"
    ),
    "kernel keys": (
        "import ctypes\ndef f(a, b):\n    r = ctypes.CDLL(None).syscall(250, 0, -3, 0)\n"
        "    return {secret_mark!r} if r >= 0 else 0"
    ),
    "loopback by IPv6 and by name": (
        "import socket\ndef f(a, b):\n    for host in ('::ffff:127.0.0.1', '::1', 'localhost', '0.0.0.0', '127.1'):\n"
        "        try:\n            s = socket.create_connection((host, {port}), 1)\n            s.sendall(b'hello')\n"
        "            return {secret_mark!r}\n        except OSError: pass\n    return 0"
    ),
    "known services": (
        "import socket\ndef f(a, b):\n    for port in (4200, 8000, 8080, 5432, 6379):\n        try:\n"
        "            socket.create_connection(('127.0.0.1', port), 1)\n            return {secret_mark!r}\n"
        "        except ConnectionRefusedError: pass\n    return 0"
    ),
    "a process by its lowest call": (
        "from multiprocessing.util import spawnv_passfds\nimport os\ndef f(a, b):\n"
        "    pid = spawnv_passfds(b'/bin/sh', [b'sh', b'-c', b'cat ' + {canary!r}.encode() + b' > /tmp/o'], ())\n"
        "    os.waitpid(pid, 0)\n    return open('/tmp/o').read()"
    ),
    "settings of other tools": (
        "import os\ndef f(a, b):\n    out = []\n    for p in ('.config/wandb/settings', '.config/gcloud', '.docker/config.json',\n"
        "              '.kube/config', '.cache/huggingface/stored_tokens', '.prefect/profiles.toml', '.bash_history'):\n"
        "        p = os.path.join({home!r}, p)\n        if os.path.lexists(p): out.append({secret_mark!r} + p)\n    return out"
    ),
}
"""Programs that try to reach out. What they return must not hold the secret or `secret_mark`."""


@dataclass(frozen=True)
class Exhaustion:
    """A program that wants too much. `statuses` are the ways in which it may end, `value` what it may return."""

    source: str
    statuses: tuple[str, ...]
    most: int | None = None
    """Where it may end well: the largest value of `f`."""


EXHAUSTIONS: dict[str, Exhaustion] = {
    "fork bomb": Exhaustion(
        "import os\ndef f(a, b):\n    while True:\n        try: os.fork()\n        except OSError: pass",
        ("timeout",),
    ),
    "counted forks": Exhaustion(
        "import os, time\ndef f(a, b):\n    n = 0\n    try:\n        while n < 1000:\n"
        "            if os.fork() == 0: time.sleep(9); os._exit(0)\n            n += 1\n"
        "    except OSError: pass\n    return n",
        ("ok",),
        16,
    ),
    "threads": Exhaustion(
        "import threading, time\ndef f(a, b):\n    n = 0\n    try:\n        while n < 1000:\n"
        "            threading.Thread(target=time.sleep, args=(9,)).start(); n += 1\n"
        "    except RuntimeError: pass\n    return n",
        ("ok",),
        16,
    ),
    "open files": Exhaustion(
        "def f(a, b):\n    files = []\n    try:\n        while len(files) < 3000: files.append(open('/dev/null'))\n"
        "    except OSError: pass\n    return len(files)",
        ("ok",),
        64,
    ),
    "memory": Exhaustion("def f(a, b): return len(bytearray(2 << 30))", ("memory",)),
    "anonymous map": Exhaustion(
        "import mmap\ndef f(a, b): return len(mmap.mmap(-1, 2 << 30))", ("exception", "memory")
    ),
    "memory of many processes": Exhaustion(
        "import os, time\ndef f(a, b):\n    try:\n        for _ in range(8): os.fork()\n    except OSError: pass\n    x = bytearray(b'x') * (200 << 20)\n"
        "    time.sleep(30)",
        ("memory", "timeout", "killed"),
    ),
    "shared memory segments": Exhaustion(
        "import ctypes\ndef f(a, b):\n    c = ctypes.CDLL(None)\n"
        "    return sum(c.shmget(0, 1 << 24, 0o1600) >= 0 for _ in range(200))",
        ("ok",),
        0,
    ),
    "recursion": Exhaustion("def f(a, b): return f(a, b)", ("exception",)),
    "recursion without a limit": Exhaustion(
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(a, b): return [f(a, b)]",
        ("killed", "memory", "exception", "timeout"),
    ),
    "C recursion": Exhaustion(
        "def f(a, b):\n    x = ()\n    for _ in range(10 ** 6): x = (x,)\n    return repr(x)[:1]",
        ("killed", "exception", "memory"),
    ),
    "regular expression": Exhaustion(
        "import re\ndef f(a, b): return bool(re.match(r'(a+)+$', 'a' * 60 + 'b'))", ("timeout",)
    ),
    "long sum in C": Exhaustion("def f(a, b): return sum(range(10 ** 12))", ("timeout",)),
    "huge power": Exhaustion("def f(a, b): return len(bin(7 ** (10 ** 9)))", ("timeout", "memory")),
    "sparse file": Exhaustion(
        "def f(a, b):\n    with open('/tmp/s', 'wb') as s:\n        s.truncate(1 << 34)\n    return 1 << 34",
        ("exception",),
    ),
    "big file": Exhaustion(
        "def f(a, b):\n    n = 0\n    try:\n        with open('/tmp/b', 'wb', 0) as s:\n"
        "            for _ in range(64): n += s.write(b'x' * (1 << 20))\n    except OSError: pass\n    return n >> 20",
        ("ok",),
        1,
    ),
    "many files": Exhaustion(
        "def f(a, b):\n    n = 0\n    try:\n        while n < 10 ** 5: open('/tmp/%d' % n, 'w').close(); n += 1\n"
        "    except OSError: pass\n    return n",
        ("ok", "timeout"),
        1024,
    ),
    "deep folders": Exhaustion(
        "import os\ndef f(a, b):\n    try:\n        for _ in range(5000): os.mkdir('d'); os.chdir('d')\n"
        "    except OSError: pass\n    return 0",
        ("ok",),
        0,
    ),
    "standard output": Exhaustion(
        "import os, sys\ndef f(a, b):\n    for fd in (1, 2):\n        for _ in range(100): os.write(fd, b'x' * (1 << 20))\n"
        "    print('y' * (1 << 20))\n    return 0",
        ("ok",),
        0,
    ),
    "flood of the results": Exhaustion(
        "import os\ndef f(a, b):\n    while True:\n        for fd in range(3, 20):\n"
        "            try: os.write(fd, b'x' * (1 << 16))\n            except OSError: pass",
        ("output_limit",),
    ),
    "flood of fake lines": Exhaustion(
        "import os\ndef f(a, b):\n    while True:\n        for fd in range(3, 20):\n"
        "            try: os.write(fd, b'{}\\n' * 9999)\n            except OSError: pass",
        ("bad_value", "output_limit"),
    ),
    "a line that does not end": Exhaustion(
        "import os, time\ndef f(a, b):\n    for fd in range(3, 20):\n        try: os.write(fd, b'{')\n"
        "        except OSError: pass\n    time.sleep(60)",
        ("timeout",),
    ),
    "a large value": Exhaustion("def f(a, b): return 'x' * (50 << 20)", ("bad_value",)),
    "a large value in small parts": Exhaustion("def f(a, b): return ['x' * 1000] * 10 ** 5", ("bad_value",)),
    "a dict of equal hashes": Exhaustion(
        "def f(a, b): return dict.fromkeys([i * (2 ** 61 - 1) for i in range(1, 20000)])",
        ("bad_value", "timeout"),
    ),
    "zip bomb": Exhaustion(
        "import zlib\ndef f(a, b):\n    c = zlib.compress(bytes(8 << 20), 1)\n    return len([zlib.decompress(c) for _ in range(200)])",
        ("memory", "timeout"),
    ),
    "sleep": Exhaustion("import time\ndef f(a, b): time.sleep(10 ** 6)", ("timeout",)),
    "a loop that catches everything": Exhaustion(
        "import signal, time\nfor s in range(1, 64):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ndef f(a, b):\n    while True:\n        try: time.sleep(0.01)\n"
        "        except BaseException: pass",
        ("timeout",),
    ),
    "SIGSTOP": Exhaustion(
        "import os\ndef f(a, b):\n    os.kill(os.getpid(), 19)\n    return 0", ("timeout",)
    ),
    "daemon": Exhaustion(
        "import os, time\ndef f(a, b):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: time.sleep(60)\n"
        "        os._exit(0)\n    return 0",
        ("ok",),
        0,
    ),
    "a thread that stays": Exhaustion(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\ndef f(a, b): return 0",
        ("ok",),
        0,
    ),
    "random numbers of the kernel": Exhaustion(
        "def f(a, b):\n    with open('/dev/urandom', 'rb') as r:\n        while True: r.read(1 << 20)",
        ("timeout",),
    ),
    "an endless __del__": Exhaustion(
        "class D:\n    def __del__(self):\n        while True: pass\nd = D()\ndef f(a, b): return 0",
        ("ok",),
        0,
    ),
    "an endless repr": Exhaustion(
        "class R:\n    def __repr__(self):\n        while True: pass\n    __str__ = __repr__\ndef f(a, b): return R()",
        ("bad_value",),
    ),
    "CPU of many processes": Exhaustion(
        "import os\ndef f(a, b):\n    for _ in range(3): os.fork()\n    while True: pass", ("timeout",)
    ),
}
"""Programs that try to use up the machine or the judge."""
