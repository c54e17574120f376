"""The report of a run as one HTML page that needs nothing else: no script, no font, no network.

It says what was done, what it took and what it shows, in this order: the verdict and the headline
numbers, the stages, the herd before and after, the requests, the largest logs and the troubled
ones, and the proof. It is readable in light and in dark, on paper and by a screen reader.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from stratalog._version import __version__
from stratalog.pipeline.run.run_report import RunReport
from stratalog.pipeline.run.svg_charts import Bar, bars, columns, legend

SHOWN_MAX = 100

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --paper: #ffffff; --soft: #5d6975;
  --line: #d7dde3; --one: #3b6ea8; --two: #b48a3c; --good: #2c7a4b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #14181c; --soft: #9aa6b2;
  --line: #343c45; --one: #7fb0e6; --two: #d9b46a; --good: #6cc18d; --bad: #f2a19b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p { margin: .4rem 0; } .soft, .tick, .axis { color: var(--soft); }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1rem 1.5rem;
  margin: 1.5rem 0; } dt { color: var(--soft); font-size: .85rem; }
dd { margin: 0; font-size: 1.35rem; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { font-weight: 600; } .n { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: .85rem/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; display: block; } svg text { fill: currentColor; font-size: 12px; }
svg .tick, svg .axis { fill: var(--soft); } svg line { stroke: var(--line); }
.s0 { fill: var(--one); background: var(--one); } .s1 { fill: var(--two); background: var(--two); }
.legend { font-size: .85rem; } .key { margin-right: 1.25rem; } .key i { display: inline-block;
  width: .8rem; height: .8rem; margin-right: .4rem; vertical-align: -.05rem; }
li { margin: .2rem 0; } footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
"""


def html_of(report: RunReport) -> str:
    """The page of a run."""
    body = "\n".join(
        [
            *_head(report),
            *_headline(report),
            *_stages(report),
            *_herd(report),
            *_requests(report),
            *_largest(report),
            *_troubles(report),
            *_proof(report),
        ]
    )
    title = f"Pipeline run of {report.root}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        f"<footer>stratalog {escape(__version__)}. Bytes are those of stored Parquet objects. "
        "Requests are counted as a provider bills them.</footer>\n</body>\n</html>\n"
    )


# The parts


def _head(report: RunReport) -> Iterator[str]:
    yield f"<h1>Pipeline run</h1><p><code>{escape(report.root)}</code></p>"
    yield (
        f'<p class="soft">{_moment(report.started_us)} to {_moment(report.ended_us)}, '
        f"by {escape(report.server)}</p>"
    )
    if report.failure is not None:
        failure = report.failure
        yield (
            f'<p class="verdict bad">Ended early: {escape(failure.message)}</p>'
            f"<p>Next: {escape(failure.hint)}</p>"
        )
    if report.is_damaged:
        yield '<p class="verdict bad">Something is damaged: see below, and alarm a person.</p>'
    elif report.failure is not None:
        return
    elif report.troubles:
        count = _count(len(report.troubles), "log")
        yield f'<p class="verdict bad">Done, but for {count}: see below.</p>'
    else:
        yield '<p class="verdict good">Done. Nothing is wrong.</p>'


def _headline(report: RunReport) -> Iterator[str]:
    facts: list[tuple[str, str]] = [("time", _seconds(report.seconds))]
    before, after = report.before, report.after
    if before is not None and after is not None:
        facts.append(("logs", f"{after.logs:,}"))
    merged, collected = report.stage("materialize"), report.stage("collect")
    compacted = report.stage("compact")
    if merged is not None:
        facts.append(("records merged", f"{merged.records:,}"))
    if compacted is not None and compacted.figures.get("policies"):
        facts.append(("records compacted", f"{compacted.records:,}"))
    if collected is not None:
        facts.append(("records collected", f"{collected.records:,}"))
    if report.proof is not None:
        facts.append(("records hashed", f"{report.proof.records:,}"))
    if before is not None and after is not None:
        facts.append(("bytes in logs", f"{_size(before.num_bytes)} → {_size(after.num_bytes)}"))
        facts.append(("bytes in outputs", _size(after.output_bytes)))
    usage = report.requests
    facts.append(("requests", f"{usage.class_a_requests + usage.class_b_requests:,}"))
    items = (f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts)
    yield f"<dl>{''.join(items)}</dl>"


def _stages(report: RunReport) -> Iterator[str]:
    if not report.stages:
        return
    yield "<h2>Time per stage</h2>"
    rows = [Bar(stage.stage, stage.seconds) for stage in report.stages]
    yield bars("Time per stage", "seconds", rows, lambda value: f"{value:,.3g} s")
    yield _table(
        ("stage", "logs", "records", "bytes before", "bytes after", "what else"),
        [
            (
                stage.stage,
                f"{stage.logs:,}",
                f"{stage.records:,}",
                _size(stage.bytes_before),
                _size(stage.bytes_after),
                ", ".join(_figure(name, value) for name, value in stage.figures.items()),
            )
            for stage in report.stages
        ],
        numbers=(1, 2, 3, 4),
    )


def _herd(report: RunReport) -> Iterator[str]:
    before, after = report.before, report.after
    if before is None or after is None:
        return
    yield "<h2>Logs by size</h2>"
    if report.sizes:
        yield columns(
            "Logs by size, before and after",
            ("bytes in a log: at least this, less than the next", "logs"),
            ["0" if each.low == 0 else _size(each.low) for each in report.sizes],
            [
                ("before", [float(each.before) for each in report.sizes]),
                ("after", [float(each.after) for each in report.sizes]),
            ],
            lambda value: f"{value:,.3g}",
        )
        yield legend(("before", "after"))
    yield "<h2>Records and bytes, before and after</h2>"
    records = [
        Bar("in logs, before", before.records, 0),
        Bar("in logs, after", after.records, 1),
        Bar("rows of outputs, before", before.output_rows, 0),
        Bar("rows of outputs, after", after.output_rows, 1),
    ]
    stored = [
        Bar("in logs, before", before.num_bytes, 0),
        Bar("in logs, after", after.num_bytes, 1),
        Bar("in outputs, before", before.output_bytes, 0),
        Bar("in outputs, after", after.output_bytes, 1),
    ]
    yield bars("Records before and after", "records", records, _plain)
    yield bars("Bytes before and after", "bytes", stored, _size, binary=True)
    yield legend(("before", "after"))


def _requests(report: RunReport) -> Iterator[str]:
    stages = [each for each in report.stages if any(astuple(each.requests))]
    if not stages:
        return
    yield "<h2>Requests to the store</h2>"
    rows = []
    for stage in stages:
        rows.append(Bar(f"{stage.stage}: puts, listings", stage.requests.class_a_requests, 0))
        rows.append(Bar(f"{stage.stage}: reads", stage.requests.class_b_requests, 1))
    yield bars("Requests per stage", "requests", rows, _plain)
    yield legend(("class A: puts and listings", "class B: reads"))
    yield _table(
        ("stage", "class A", "class B", "free", "bytes written", "bytes read"),
        [
            (
                each.stage,
                *map(_plain, astuple(each.requests)[:3]),
                *map(_size, astuple(each.requests)[3:]),
            )
            for each in stages
        ],
        numbers=(1, 2, 3, 4, 5),
    )


def _largest(report: RunReport) -> Iterator[str]:
    if not report.largest:
        return
    yield "<h2>Largest logs</h2>"
    shown: Sequence[Callable[[Any], str]] = (str, _plain, _plain, _size, _size, _plain, _size)
    yield _table(
        ("log", "records before", "after", "bytes before", "after", "output rows", "output bytes"),
        [
            [show(value) for show, value in zip(shown, astuple(each), strict=True)]
            for each in report.largest
        ],
        numbers=(1, 2, 3, 4, 5, 6),
    )


def _troubles(report: RunReport) -> Iterator[str]:
    rows = [(stage.stage, each) for stage in report.stages for each in stage.troubles]
    rows += [("scrub", each) for each in (report.proof.damages if report.proof else ())]
    rows += [("verify", each) for each in report.findings or ()]
    if not rows:
        return
    yield "<h2>Troubled logs</h2>"
    yield _table(("stage", "what"), rows[:SHOWN_MAX])
    if len(rows) > SHOWN_MAX:
        yield f'<p class="soft">and {len(rows) - SHOWN_MAX:,} more</p>'


def _proof(report: RunReport) -> Iterator[str]:
    proof, findings = report.proof, report.findings
    if proof is None and findings is None:
        return
    yield "<h2>Proof</h2>"
    if proof is not None:
        verdict = "They are equal." if proof.holds else "They differ, or something is damaged."
        yield (
            f"<p>{proof.records:,} records of {_count(proof.logs, 'log')} were read and hashed. "
            f"The hashes of all records of {proof.compared:,} of these "
            "logs were added up by Spark and compared with what the manifests say. "
            f'<span class="verdict {"good" if proof.holds else "bad"}">{verdict}</span></p>'
        )
        yield _table(
            ("setsum", "of"),
            [
                (proof.expected_sum, "the records that the logs hold, as the manifests say"),
                (proof.actual_sum, "the same records, as they were hashed"),
                (proof.collected_sum, "the records that were collected, as the manifests say"),
            ],
            code=0,
        )
        yield f"<p>Each fragment has its row in the audit <code>{escape(proof.audit)}</code>.</p>"
    if findings is not None:
        summary = (
            '<span class="verdict good">Manifests, cursors, outputs and marks fit together.</span>'
            if not findings
            else f'<span class="verdict bad">{_count(len(findings), "finding")}, see above.</span>'
        )
        yield f"<p>{summary}</p>"


# Words and numbers


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    code: int | None = None,
) -> str:
    def cell(tag: str, place: int, text: str) -> str:
        kind = ' class="n"' if place in numbers else ""
        inner = f"<code>{escape(text)}</code>" if place == code and tag == "td" else escape(text)
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{kind}{scope}>{inner}</{tag}>"

    top = "".join(cell("th", place, text) for place, text in enumerate(head))
    lines = (
        "<tr>" + "".join(cell("td", place, text) for place, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _figure(name: str, value: float | str) -> str:
    if name.endswith("_s"):
        return f"{name.removesuffix('_s').replace('_', ' ')} {value:g} s"
    return f"{name.replace('_', ' ')} {value if isinstance(value, str) else format(value, ',')}"


def _plain(value: float) -> str:
    """Whole numbers, and those between the marks of a short axis."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.3g} {unit}"


def _seconds(value: float) -> str:
    minutes, seconds = divmod(value, 60)
    return f"{minutes:.0f} min {seconds:.0f} s" if minutes else f"{seconds:.1f} s"


def _moment(timestamp_us: int) -> str:
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=timestamp_us)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
