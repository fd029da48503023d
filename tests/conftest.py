import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck

# Workers of pytest-xdist share the cores, so that more threads per worker would only compete for them.
torch.set_num_threads(1)
# One cache for all workers and runs: a kernel is compiled once.
os.environ.setdefault("FASTWEIGHTS_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "kernels"))


# No test depends on the speed of a machine. No example of a test changes a fixture, so that all examples may share it.
hypothesis.settings.register_profile(
    "fastweights",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("fastweights")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def benchmark_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script of benchmarks/ by name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return import_module


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all workers: the parent of the folder of a worker."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def data_cache(shared_folder: Path) -> Path:
    """The folder of prepared data sets."""
    return shared_folder / "data"


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch, data_cache: Path) -> None:
    """Data from `$FASTWEIGHTS_DATA` or a folder next to the checkout, and never from the network."""
    default = Path(__file__).parents[2] / "shared" / "data"
    monkeypatch.setenv("FASTWEIGHTS_DATA", os.environ.get("FASTWEIGHTS_DATA", str(default)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(data_cache))

    def no_network(url: str, timeout: float) -> None:
        raise OSError("the tests use no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)


@pytest.fixture
def fastweights() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line in a separate process."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"} | options.pop("env", {})
        command = [sys.executable, "-m", "fastweights.cli", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, **options)

    return run


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.ThreadingHTTPServer]:
    """Serves `answers[path]`: content, with a status and a length that may be wrong. Records the paths of requests."""

    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            status, content, length = server.answers.get(self.path, (404, b"", 0))
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.asked = {}, []
    server.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
