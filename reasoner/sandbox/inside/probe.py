"""Child program of the self-test: the attempts, each returning plain data that says what came of it."""

import errno
import os
import resource
import socket
import threading
import time


def attempt(function, *arguments):  # type: ignore[no-untyped-def]
    """'done', or the name of the error."""
    try:
        function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except Exception as error:
        return type(error).__name__
    return "done"


def connect(family: int, address: object) -> str:
    def go() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(0.3)
            connection.connect(address)  # type: ignore[arg-type]

    return attempt(go)


def readable(paths: list[str]) -> list[str]:
    found = []
    for path in paths:
        if os.path.lexists(path) and attempt(os.lstat, path) == "done":
            found.append(path)
    return found


def status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return {key: value.strip() for key, _, value in (line.partition(":") for line in file)}


def forks() -> int:
    """How many children could be forked before the limit; they are ended again."""
    children: list[int] = []
    try:
        while len(children) < 200:
            pid = os.fork()
            if pid == 0:
                time.sleep(30)
                os._exit(0)
            children.append(pid)
    except OSError:
        pass
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return len(children)


def threads() -> int:
    stop = threading.Event()
    started: list[threading.Thread] = []
    try:
        while len(started) < 200:
            thread = threading.Thread(target=stop.wait)
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    stop.set()
    for thread in started:
        thread.join()
    return len(started)


def open_files() -> int:
    files: list[int] = []
    try:
        while len(files) < 5000:
            files.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for fd in files:
        os.close(fd)
    return len(files)


def allocate(mebibytes: int) -> str:
    return attempt(bytearray, mebibytes << 20)


def write_file(path: str, mebibytes: int) -> str:
    def go() -> None:
        with open(path, "wb") as file:
            for _ in range(mebibytes):
                file.write(b"x" * (1 << 20))

    outcome = attempt(go)
    attempt(os.unlink, path)
    return str(outcome)


def write_mebibyte(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"x" * (1 << 20))


def fill_tmp(most: int) -> int:
    """MiB that could be written to /tmp in files of 1 MiB."""
    count = 0
    while count < most and attempt(write_mebibyte, f"/tmp/{count}") == "done":
        count += 1
    for index in range(count + 1):
        attempt(os.unlink, f"/tmp/{index}")
    return count


def core_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_CORE)[1]
