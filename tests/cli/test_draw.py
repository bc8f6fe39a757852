"""`netspec draw`: what it prints and writes."""

from __future__ import annotations


def test_mermaid_is_printed_for_a_readme(netspec, work):
    result = netspec("draw", "net.yaml", "--shapes", "--parameters")
    assert result.out.splitlines() == [
        "```mermaid", "flowchart TD", '  n0(["features<br/>input<br/>3"])',
        '  n1["hidden<br/>Dense<br/>4<br/>16 parameters"]',
        '  n2["logits<br/>Dense (output)<br/>2<br/>10 parameters"]', "  n0 --> n1", "  n1 --> n2", "```",
    ]  # fmt: skip


def test_a_run_is_drawn(netspec, trained):
    result = netspec("draw", "run", "--output", "net.svg")
    assert (result.status, result.out) == (0, "net.svg: 3 boxes\n")
    assert "hidden" in (trained / "net.svg").read_text()
    assert [box["name"] for box in netspec("draw", "run", "--json").json["boxes"]] == ["features", "hidden", "logits"]


def test_overrides_change_the_drawn_net(netspec, work):
    assert "7<br/>28 parameters" in netspec("draw", "net.yaml", "vars.width=7", "--shapes", "--parameters").out


def test_a_wrong_suffix_is_reported(netspec, work):
    result = netspec("draw", "net.yaml", "--output", "net.pdf")
    assert result.status == 2
    assert "a file name that ends in .svg, .png or .mmd" in result.err
