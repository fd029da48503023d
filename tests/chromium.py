"""Pages in headless Chromium, driven by the DevTools protocol over pipes, and folders behind a local web server."""

import base64
import functools
import http.server
import json
import os
import select
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT = 60
OWN = ("data:", "blob:")
"""Beginnings of addresses that need no network."""


class Page:
    """A page of a browser. `errors` has its exceptions, errors of the console, and requests to other pages."""

    def __init__(self, read, write):
        self.read, self.write, self.count, self.session, self.errors, self.url = read, write, 0, None, [], ""

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        os.write(
            self.write, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        while (answer := self._message()).get("id") != self.count:
            self._note(answer.get("method"), answer.get("params", {}))
        return answer["result"]

    def _note(self, event, params):
        is_error = event == "Runtime.exceptionThrown"
        is_error |= event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
        is_error |= event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning")
        if event == "Network.requestWillBeSent":
            address = params["request"]["url"]
            is_error = not address.startswith((*OWN, self.url))
        if is_error:
            self.errors.append(params)

    def _message(self):
        content = bytearray()
        while (byte := self._byte()) != b"\0":
            content += byte
        return json.loads(content)

    def _byte(self):
        readable, _, _ = select.select([self.read], [], [], WAIT)
        assert readable, "Chromium does not answer"
        byte = os.read(self.read, 1)
        assert byte, "Chromium has ended"
        return byte

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression):
        end = time.monotonic() + WAIT
        while not self.value(expression):
            assert time.monotonic() < end, f"{expression}, {self.value('document.body.innerText')}"
            time.sleep(0.05)

    def open(self, url, width=1280, scheme="light", before=""):
        """Opens a page, and waits until it is loaded. The script `before` runs first."""
        self.url, self.session = url.rpartition("/")[0], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=url)
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")

    def press(self, key):
        """Presses a key, such as "ArrowLeft"."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Tab": 9}
        keys = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **keys)

    def screenshot(self):
        """A PNG of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])


@contextmanager
def browser(folder):
    """A Chromium whose file descriptors 3 and 4 are pipes of the protocol."""
    theirs, write = os.pipe()
    read, answers = os.pipe()
    flags = "--headless --no-sandbox --disable-gpu --remote-debugging-pipe"
    command = f"exec {CHROMIUM} {flags} --user-data-dir={folder} 3<&{theirs} 4>&{answers}"
    with subprocess.Popen(["bash", "-c", command], pass_fds=(theirs, answers), stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        os.close(answers)
        try:
            yield Page(read, write)
        finally:
            process.kill()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    """The address of a folder behind the web server of `python -m http.server`."""
    handler = functools.partial(_Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
