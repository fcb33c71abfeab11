"""How long do 50 simultaneous readers wait for a page? A dashboard in a process of its own, runs of the samples, page callbacks and figures over loopback.

    python benchmarks/page_readers.py [--readers 50] [--seconds 20] [--think 1.0]

A reader opens a page (the callback that Dash Pages makes, and the one around it), fetches its figures, reads for a while and goes on.
Printed: percentiles of page callbacks and figures, errors, and the server's memory.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import random
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

SAMPLES = Path(__file__).resolve().parent.parent / "sample_traces"
RUNS = ("3d", "pp-1f1b", "recompute-full", "tp")
PAGES = ("overview", "collectives", "pipeline", "memory", "recompute")


def serving(root: str, told: multiprocessing.Queue[str]) -> None:
    """The dashboard, until it is told to end."""
    from dashboard.serve import serve
    from dashboard.settings import Settings

    serve(Settings(root=Path(root), port=0, min_free_bytes=0), told.put)


def stored(root: Path) -> list[str]:
    """Runs of the samples, once they are ready."""
    from dashboard.library import Library, UploadedFile
    from dashboard.settings import Settings

    library = Library(Settings(root=root, min_free_bytes=0))
    ids = []
    for name in RUNS:
        files = [p for p in sorted((SAMPLES / name).rglob("*")) if p.is_file()]
        ids.append(library.create_run(name, "benchmark", [UploadedFile(p, str(p.relative_to(SAMPLES))) for p in files]))
    while not all(library.run(i).state.ended for i in ids):
        time.sleep(0.5)
    states = [library.run(i).state.value for i in ids]
    library.close()
    assert states == ["ready"] * len(ids), states
    return ids


def router(connection: http.client.HTTPConnection) -> str:
    """Under which name the server knows the callback that opens a page."""
    callbacks = json.loads(asked(connection, "GET", "/_dash-dependencies"))
    return next(c["output"] for c in callbacks if "_pages_content.children" in c["output"])


def page(connection: http.client.HTTPConnection, output: str, path: str) -> str:
    """What the browser asks for when a reader opens a page."""
    body = {
        "output": output,
        "outputs": [{"id": "_pages_content", "property": "children"}, {"id": "_pages_store", "property": "data"}],
        "inputs": [{"id": "_pages_location", "property": "pathname", "value": path}, {"id": "_pages_location", "property": "search", "value": ""}],
        "changedPropIds": ["_pages_location.pathname"],
    }
    return asked(connection, "POST", "/_dash-update-component", json.dumps(body))


def asked(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> str:
    """An answer; what is no 2xx is an error."""
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status < 300, f"{answer.status} {path}"
    return data.decode("utf-8", "replace")


def sources(text: str) -> list[str]:
    """The figures that a page fetches."""
    found: list[str] = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if node.get("type") == "Store" and isinstance(node["props"].get("id"), dict) and node["props"]["id"].get("type") == "figure-source":
                found.append(node["props"]["data"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(json.loads(text))
    return found


def reader(port: int, output: str, ids: list[str], until: float, think: float, seed: int, took: dict[str, list[float]], errors: list[str]) -> None:
    """One reader."""
    chance = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    time.sleep(chance.random() * think)
    while time.monotonic() < until:
        try:
            start = time.perf_counter()
            text = page(connection, output, f"/runs/{chance.choice(ids)}/{chance.choice(PAGES)}")
            took["page callback"].append(time.perf_counter() - start)
            for source in sources(text):
                start = time.perf_counter()
                asked(connection, "GET", f"{source}&theme={chance.choice(('light', 'dark'))}")
                took["figure"].append(time.perf_counter() - start)
        except Exception as error:  # counted and shown: a benchmark of readers must not lose one silently
            errors.append(repr(error))
            connection.close()
        time.sleep(think * (0.5 + chance.random()))


def resident(pid: int) -> float:
    """Memory of a process, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> None:
    """Measure and print."""
    given = argparse.ArgumentParser()
    given.add_argument("--readers", type=int, default=50)
    given.add_argument("--seconds", type=float, default=20)
    given.add_argument("--think", type=float, nargs="*", default=[3.0, 1.0, 0.0])
    args = given.parse_args()
    with tempfile.TemporaryDirectory() as root:
        context = multiprocessing.get_context("spawn")
        told: multiprocessing.Queue[str] = context.Queue()
        server = context.Process(target=serving, args=(root, told))
        server.start()
        try:
            port = int(told.get(timeout=60).rstrip("/").rsplit(":", 1)[1])
            ids = stored(Path(root))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            output = router(connection)
            first: list[float] = []
            for run in ids:
                for name in PAGES:
                    start = time.perf_counter()
                    page(connection, output, f"/runs/{run}/{name}")
                    first.append(time.perf_counter() - start)
            print(f"first drawing of {len(first)} pages: median {1e3 * np.median(first):.0f} ms, longest {1e3 * max(first):.0f} ms")
            for think in args.think:
                took: dict[str, list[float]] = {"page callback": [], "figure": []}
                errors: list[str] = []
                until = time.monotonic() + args.seconds
                threads = [threading.Thread(target=reader, args=(port, output, ids, until, think, n, took, errors)) for n in range(args.readers)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                print(f"{args.readers} readers, {think:g} s on a page: {len(errors)} errors {errors[:2]}, server {resident(server.pid or 0):.0f} MiB")
                for what, times in took.items():
                    p50, p95, p99 = 1e3 * np.percentile(times, (50, 95, 99))
                    print(f"  {what:14} {len(times):6,} in {args.seconds:g} s: p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms")
        finally:
            server.terminate()
            server.join(20)


if __name__ == "__main__":
    main()
