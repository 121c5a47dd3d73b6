"""Headless Chromium, controlled through a pipe (DevTools protocol), with only the Python standard library.

No wait depends on a clock: it ends when its condition holds, after a number of frames, or when the browser
ends. If the browser hangs, ctest ends it.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile


def find_browser():
    """Returns the path of Chromium, or None."""
    named = os.environ.get("CHROMIUM")
    for name in [named] if named else ["chromium", "chromium-browser", "google-chrome"]:
        if path := shutil.which(name):
            return path
    return None


class BrowserEnded(Exception):
    """The browser has ended. The message has the last line of its output."""


def why_it_cannot_run(path):
    """Returns why the browser cannot show a word and the controls of our pages, or None if it can. Without fonts,
    Chromium ends at the first menu."""
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "word.html")
        with open(page, "w") as file:
            file.write("<!doctype html><title>word</title><p>word<pre>word</pre><button>word</button><input type=range>"
                       "<select><option>word</select><svg><text y=20>word</text></svg>")
        try:
            with Browser(path) as browser:
                browser.open(page)
                browser.picture(os.path.join(folder, "word.png"))
        except BrowserEnded as error:
            return str(error)
    return None


def look_with(path, look):
    """Calls look(), which uses the browser at `path`. Returns the exit code of a test: 77 if the browser cannot run
    at all, 1 if it ends during look(), else the result of look()."""
    if not path:
        print("Chromium is not installed (Debian: apt install chromium; or set CHROMIUM): pages were not tested")
        return 77
    if reason := why_it_cannot_run(path):
        print(f"{path} cannot run here: pages were not tested. {reason}")
        return 77
    try:
        return look()
    except BrowserEnded as error:
        print(f"FAILED: {error}")
        return 1


class Browser:
    """One page. Records errors, console warnings and requests. `environment` is added to that of the browser."""

    def __init__(self, path, environment=None):
        self.path = path
        self.words = tempfile.TemporaryFile()
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        from_us, self.to = os.pipe()
        self.answers, to_us = os.pipe()

        def place_pipes():  # the browser reads from 3 and writes to 4
            low = os.dup(from_us), os.dup(to_us)
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--mute-audio",
             "--allow-file-access-from-files=false", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            close_fds=False, preexec_fn=place_pipes, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self.words, env={**os.environ, **(environment or {})})
        os.close(from_us)
        os.close(to_us)
        self.buffer, self.number, self.session = b"", 0, None
        self.events, self.complaints, self.requests = [], [], []
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise

    def _attach(self):
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
        except BrowserEnded:
            self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.answers)
        self.words.close()
        self.folder.cleanup()

    def _ended(self):
        self.words.seek(0)
        lines = [line.strip() for line in self.words.read().decode(errors="replace").splitlines()
                if line.strip() and "crashpad" not in line]  # its messages come last
        return BrowserEnded(f"{self.path} has ended: {lines[-1] if lines else 'it printed nothing'}")

    def _read(self):
        while b"\0" not in self.buffer:
            block = os.read(self.answers, 1 << 20)
            if not block:
                raise self._ended()
            self.buffer += block
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        name, what = event["method"], event["params"]
        self.events.append(name)
        if name == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif name == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([a.get("value", a.get("description")) for a in what["args"]]))
        elif name == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif name in ("Inspector.targetCrashed", "Target.targetCrashed"):
            raise BrowserEnded(f"{self.path}: the page's process has ended")

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        try:
            os.write(self.to, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise self._ended() from None
        while True:
            answer = self._read()
            if "method" in answer:
                self._note(answer)
            elif answer["id"] == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def wait_for_event(self, name):
        while name not in self.events:
            answer = self._read()
            if "method" in answer:
                self._note(answer)

    def look_like(self, width, height=900, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path):
        """Opens a page; returns when it is loaded and drawn."""
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for_event("Page.loadEventFired")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        """Returns the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def point_of(self, selector, share=0.5):
        """Scrolls an element into view. Returns its position, at a fraction of its width, once it does not move."""
        return self.run(f"""new Promise(done => {{
          const e = document.querySelector({json.dumps(selector)});
          e.scrollIntoView({{block: 'center', behavior: 'instant'}});
          let before = '', same = 0;
          const look = () => {{
            const b = e.getBoundingClientRect(), at = [b.x + b.width * {share}, b.y + b.height / 2];
            const hit = document.elementFromPoint(...at);
            same = String(at) === before && hit && e.contains(hit) ? same + 1 : 0;
            before = String(at);
            if (same > 2) done(at); else requestAnimationFrame(look);
          }};
          look();
        }})""")

    def click(self, selector):
        x, y = self.point_of(selector)
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"]:
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def move_to(self, selector, share):
        """Moves the pointer to an element, at a fraction of its width."""
        x, y = self.point_of(selector, share)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def becomes_true(self, expression, frames=1000):
        """Waits for an expression of the page to become true. Returns whether it did."""
        return self.run(f"""new Promise(done => {{
          let left = {frames};
          const look = () => {{
            if ({expression}) done(true);
            else if (--left < 0) done(false);
            else requestAnimationFrame(look);
          }};
          look();
        }})""")

    def fonts(self, selectors):
        """Returns the names of the fonts of the text of these elements."""
        for domain in ["DOM", "CSS"]:
            self.call(f"{domain}.enable")
        root = self.call("DOM.getDocument", depth=1)["root"]["nodeId"]
        return {font["familyName"] for selector in selectors
                for node in self.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"]
                for font in self.call("CSS.getPlatformFontsForNode", nodeId=node)["fonts"]}

    def press(self, key):
        for kind in ["keyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36,
                                             "End": 35}.get(key, 0))

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
