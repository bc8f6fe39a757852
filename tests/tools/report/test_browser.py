"""The report of a run in a browser: it renders, its controls work, and nothing leaves the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netspec.tools.report.page import report
from tests.chromium import PROGRAM, Page, chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: `make browser` installs it"),
]
CURVES = "document.querySelectorAll('#curves canvas').length"


@pytest.fixture(scope="module")
def page(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = report(run, output=tmp_path_factory.mktemp("report") / "report.html", device="reference")
    with chromium() as page:
        page.set_window(1000, 800)
        page.open(path.as_uri())
        page.wait_for(f"{CURVES} === 4 && document.readyState === 'complete'")
        yield page
        assert page.errors == []
        assert page.requests == [path.as_uri()]


def image(page: Page, selector: str) -> str:
    """Return what a canvas shows, as an address."""
    return str(page.evaluate(f"document.querySelector({selector!r}).toDataURL()"))


def press(page: Page, action: str) -> None:
    page.evaluate(f"document.querySelector('button[data-action={action}]').click()")


def settled(page: Page) -> None:
    """Wait until charts are drawn, which happens before the next frame."""
    page.evaluate("new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))")


def test_buttons_zoom_all_curves(page: Page) -> None:
    settled(page)
    first, last = "#curves figure:first-child canvas", "#curves figure:last-child canvas"
    before = image(page, first), image(page, last)
    press(page, "in")
    settled(page)
    zoomed = image(page, first), image(page, last)
    assert zoomed[0] != before[0]
    assert zoomed[1] != before[1]
    press(page, "right")
    settled(page)
    assert image(page, first) != zoomed[0]
    press(page, "reset")
    settled(page)
    assert (image(page, first), image(page, last)) == before


def test_dragging_zooms(page: Page) -> None:
    page.evaluate("document.querySelector('#curves').scrollIntoView()")
    settled(page)
    left, top, width, height = page.evaluate(
        "(r => [r.x, r.y, r.width, r.height])(document.querySelector('#curves .u-over').getBoundingClientRect())"
    )
    before = image(page, "#curves figure:last-child canvas")
    page.drag((left + width * 0.3, top + height / 2), (left + width * 0.7, top + height / 2))
    settled(page)
    assert image(page, "#curves figure:last-child canvas") != before, "the other charts follow"
    press(page, "reset")
    settled(page)
    assert image(page, "#curves figure:last-child canvas") == before


def test_axis_and_scale_are_chosen(page: Page) -> None:
    shown = image(page, "#curves canvas")
    page.evaluate("document.querySelector('input[value=epoch]').click()")
    settled(page)
    assert image(page, "#curves canvas") != shown
    assert page.evaluate("document.querySelector('#curves .u-legend .u-label').textContent") == "epoch"
    shown = image(page, "#curves canvas")
    page.evaluate("document.querySelector('input[name=log]').click()")
    settled(page)
    assert image(page, "#curves canvas") != shown


def test_curves_are_hidden_by_the_keyboard(page: Page) -> None:
    name = "document.querySelector('#curves .u-legend .u-series:nth-child(2) th')"
    assert page.evaluate(f"{name}.tabIndex") == 0
    page.evaluate(f"{name}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true}}))")
    assert page.evaluate(f"{name}.closest('.u-series').classList.contains('u-off')") is True


def test_histograms_follow_the_slider_and_the_choice(page: Page) -> None:
    assert page.evaluate("document.querySelector('#moment-label').textContent") == "step 6"
    settled(page)
    first = image(page, "#histogram canvas"), image(page, "#distribution canvas")
    page.evaluate(
        "(s => { s.value = 'logits/kernel'; s.dispatchEvent(new Event('change')); })"
        "(document.querySelector('#parameter'))"
    )
    settled(page)
    second = image(page, "#histogram canvas"), image(page, "#distribution canvas")
    assert second[0] != first[0]
    assert second[1] != first[1]
    page.evaluate("(s => { s.value = 0; s.dispatchEvent(new Event('input')); })(document.querySelector('#moment'))")
    settled(page)
    assert page.evaluate("document.querySelector('#moment-label').textContent") == "step 2"
    assert image(page, "#histogram canvas") != second[0]


def test_text_of_users_runs_no_script(page: Page) -> None:
    assert page.evaluate("document.querySelector('pre[tabindex]').textContent.includes('</script><script>alert(2)')")
    assert page.evaluate("[...document.images].every(image => image.src.startsWith('data:image/png'))") is True


def test_nothing_can_leave_the_page(page: Page) -> None:
    sent = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)")
    assert sent == "TypeError"
    assert any("Content Security Policy" in error for error in page.errors), page.errors
    page.errors.clear()


def test_dark_scheme_and_narrow_windows(page: Page) -> None:
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.set_window(420, 800, dark=True)
    page.wait_for(f"getComputedStyle(document.body).backgroundColor !== '{light}'")
    page.wait_for("document.querySelector('#curves canvas').clientWidth <= 400")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True


def test_integers_are_exact(page: Page) -> None:
    values = page.evaluate("[123456, 1234567, -1e9, 0.123456789, 1234567.5, 0, 1e300].map(netspec.number)")
    assert values == ["123456", "1234567", "-1000000000", "0.12346", "1.23e+6", "0", "1.00e+300"]
