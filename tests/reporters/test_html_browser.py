"""The HTML report in a real browser: its scripts work, it requests nothing, and hostile names are harmless."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.reports import analysed, finding, starved

from perftool.model.report import BREAKDOWN, Location, Share, Source, Step
from perftool.reporters.html import render_html

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with its chromedriver is installed")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1400,1000", "--disable-dev-shm-usage",
)  # fmt: skip
EVIL = "ProfilerStep#1</script><img src=x onerror=\"document.title='owned'\"><b>"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.binary_location = CHROMIUM
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
        # The browser's start page sends requests itself.
        driver.get("about:blank")
        driver.get_log("performance")
        yield driver
        driver.quit()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens a page with a given width and theme. Any error on the console fails the test."""

    def show(page: bytes, width: int = 1400, theme: str = "light", anchor: str = "") -> Any:
        (tmp_path / "report.html").write_bytes(page)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get((tmp_path / "report.html").as_uri() + anchor)
        return browser

    yield show
    assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert requests_beyond_the_file(browser) == []


def requests_beyond_the_file(browser: Any) -> list[str]:
    """Return the page's requests, except those for its own file and for data that it created itself."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith(("file:", "blob:", "data:", "chrome:"))]


def background(browser: Any) -> str:
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))


def wait_for(browser: Any, script: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(f"return {script}"))


def unfold(browser: Any, section: str) -> None:
    """Open ``section`` the way a reader can without scripts."""
    browser.find_element("css selector", f"#{section} summary").click()


def the_page(**changes: Any) -> bytes:
    findings = [finding(code=f"GAP90{number}", fingerprint=str(number)) for number in range(1, 7)]
    report, pictures = analysed(starved(), findings=findings)
    return render_html(replace(report, **changes), pictures)


def test_the_theme_follows_the_system_until_the_button_is_pressed(open_page: Open) -> None:
    browser = open_page(the_page(), theme="dark")
    dark = background(browser)
    button = browser.find_element("id", "theme")
    assert (button.is_displayed(), button.text) == (True, "Light")
    button.click()
    light = background(browser)
    assert (button.text, light != dark) == ("Dark", True)
    button.click()
    assert background(browser) == dark
    browser.execute_script("localStorage.clear()")


def test_a_finding_opens_by_click_and_by_link(open_page: Open) -> None:
    browser = open_page(the_page())
    fourth = browser.find_element("id", "GAP904")
    message = fourth.find_element("class name", "message")
    assert not message.is_displayed()
    fourth.find_element("tag name", "summary").click()
    assert message.is_displayed()
    assert "waiting" in message.text
    browser.find_element("css selector", '.contents a[href="#GAP906"]').click()
    assert wait_for(browser, "document.getElementById('GAP906').open")


def test_an_address_with_a_finding_opens_it(open_page: Open) -> None:
    browser = open_page(the_page(), anchor="#GAP905")
    assert browser.execute_script("return document.getElementById('GAP905').open")


def test_charts_become_interactive_and_follow_the_theme(open_page: Open) -> None:
    browser = open_page(the_page())
    unfold(browser, "steps")
    browser.execute_script("document.getElementById('chart-steps-0').scrollIntoView()")
    assert wait_for(browser, "!!document.querySelector('#chart-steps-0 .main-svg .bars path')")
    assert not browser.find_element("css selector", "#chart-steps-0 .drawn").is_displayed()
    colour = "getComputedStyle(document.querySelector('#chart-steps-0 .bars path')).fill"
    before = browser.execute_script(f"return {colour}")
    browser.find_element("id", "theme").click()
    assert wait_for(browser, f"{colour} !== '{before}'")
    browser.execute_script("localStorage.clear()")


def test_names_of_a_trace_execute_nothing(open_page: Open) -> None:
    steps = tuple(Step(0, f"{EVIL}{n}", n * 100, 100, dict.fromkeys(BREAKDOWN, 10), False) for n in range(3))
    browser = open_page(the_page(steps=steps))
    unfold(browser, "steps")
    browser.execute_script("document.getElementById('chart-steps-0').scrollIntoView()")
    assert wait_for(browser, "!!document.querySelector('#chart-steps-0 .main-svg .xtick text')")
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert "owned" not in browser.title
    assert "onerror" in browser.find_element("css selector", "#chart-steps-0 .xtick text").text


@pytest.mark.parametrize("width", [1400, 768, 390])
def test_the_page_never_scrolls_sideways(open_page: Open, width: int) -> None:
    browser = open_page(the_page(), width=width)
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_without_scripts_the_page_says_the_same(open_page: Open, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(the_page())
        assert "waits for data" in browser.find_element("tag name", "h1").text
        assert not browser.find_element("id", "theme").is_displayed()
        unfold(browser, "steps")
        assert browser.find_element("css selector", "#chart-steps-0 .drawn path").is_displayed()
        assert browser.find_element("css selector", "#GAP901 .timeline .lane.device rect").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_printing_shows_every_finding_and_the_drawn_charts(open_page: Open) -> None:
    browser = open_page(the_page())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    assert browser.find_element("css selector", "#GAP906 .message").is_displayed()
    assert browser.find_element("css selector", "#chart-steps-0 .drawn").is_displayed()
    assert not browser.find_element("class name", "contents").is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_tables_sort_and_filter_and_findings_are_searched(open_page: Open) -> None:
    shares = tuple(Share(name, ns, 1, 0.1) for name, ns in [("b", 2_000_000), ("a", 900), ("c", 30_000_000_000)])
    more = tuple(Share(f"op{number}", 50 + number, 1, 0.1) for number in range(6))
    browser = open_page(the_page(top_ops=(*shares, *more)), anchor="#host-ops")
    names = "return [...document.querySelectorAll('#host-ops tbody tr:not([hidden]) code')].map((e) => e.textContent)"
    time = browser.find_element("css selector", "#host-ops th.n")
    time.click()
    assert browser.execute_script(names)[:3] == ["c", "b", "a"]
    time.click()
    assert browser.execute_script(names)[-3:] == ["a", "b", "c"]
    browser.find_element("css selector", "#host-ops input").send_keys("op3")
    assert browser.execute_script(names) == ["op3"]
    browser.find_element("css selector", "#findings .search input").send_keys("gap904")
    shown = "return [...document.querySelectorAll('.finding:not([hidden])')].map((e) => e.id)"
    assert browser.execute_script(shown) == ["GAP904"]


def test_a_line_of_code_opens_in_the_editor(open_page: Open, tmp_path: Path) -> None:
    place = Location(sources=(Source("src/a.py", 7, "f", 1.0, here=True),))
    report, pictures = analysed(starved(), findings=[finding(location=place)])
    browser = open_page(render_html(report, pictures))

    link = browser.find_element("css selector", "a.source").get_attribute("href")

    assert link == f"vscode://file{tmp_path.as_posix()}/src/a.py:7"
