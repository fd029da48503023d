"""The playground page: built for WebAssembly, and used in headless Chromium at two widths."""

import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs ziglang"),
]
DOCS = Path(__file__).parents[1] / "docs"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT = 60


class Page:
    """A page in Chromium, driven by the DevTools protocol over pipes."""

    def __init__(self, read, write):
        self.read, self.write, self.count, self.session, self.errors = read, write, 0, None, []

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        os.write(
            self.write, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        while (answer := self._message()).get("id") != self.count:
            if answer.get("method") in ("Runtime.exceptionThrown", "Network.requestWillBeSent"):
                self.errors.append(answer["params"])
        return answer["result"]

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
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression):
        end = time.monotonic() + WAIT
        while not self.value(expression):
            assert time.monotonic() < end, f"{expression}, {self.value('document.body.innerText')}"
            time.sleep(0.05)

    def open(self, url, width):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=url)


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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    sys.path.insert(0, str(DOCS))
    import playground

    playground.write(folder)
    sys.path.remove(str(DOCS))
    return folder


def test_page_loads_nothing_from_the_network(site):
    text = (site / "extra" / "oz.html").read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert "oz.html" in (site / "playground.md").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1280, 400])
def test_model_writes_in_the_browser(site, width, tmp_path):
    with browser(tmp_path) as page:
        page.open((site / "extra" / "oz.html").as_uri(), width)
        page.wait_for("document.getElementById('top')?.textContent.includes('%')")
        assert page.value("document.documentElement.scrollWidth") <= width
        check_steps(page)
        check_edit(page)
        check_continuous_writing(page)
        assert not page.errors


def check_steps(page):
    """One step adds one character, and the fast weights change."""
    before = page.value("at('text').value"), page.value("at('W').toDataURL()")
    page.value("at('step').click()")
    page.wait_for(f"at('text').value.length > {len(before[0])}")
    text = page.value("at('text').value")
    assert text[:-1] == before[0]
    assert page.value("at('W').toDataURL()") != before[1]
    assert float(page.value("at('change-size').textContent")) > 0


def check_edit(page):
    """The network reads an edited text. It gives the same predictions whenever it reads the same text."""

    def top(text):
        page.value(f"at('top').textContent = ''; at('text').value = '{text}'; at('text').oninput()")
        page.wait_for("at('top').textContent")
        return page.value("at('top').textContent")

    first = top("the Wicked Wi")
    assert first != top("the Scarecr")
    assert first == top("the Wicked Wi")
    top("the \\u2603 Wicked")
    assert "left out" in page.value("at('message').textContent")
    top("the Wicked Witch")
    assert page.value("at('message').textContent") == ""


def check_continuous_writing(page):
    """It writes until it is stopped, also while another memory is shown."""
    page.value("at('play').click()")
    page.value("at('look').selectedIndex = at('look').options.length - 1; at('look').onchange()")
    page.wait_for("at('text').value.length > 40")
    page.value("at('play').click()")
    assert page.value("at('play').textContent") == "Write"
