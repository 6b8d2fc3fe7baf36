"""A run as it is drawn in a terminal: never higher or wider than the terminal, whatever its size.

From the top: the counts of the stages, a bar with the share of the work that is done and the time
that is left, what runs, the causes of failures, and what finished last. Each has the lines that the
others leave, and says what it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.text import Text

from fope_lab.config.problems import counted
from fope_lab.orchestration.failures import States, is_blocked_by_another, listed
from fope_lab.orchestration.run_progress import Snapshot, StageProgress
from fope_lab.planning.time_left import TimeLeft
from fope_lab.store import Status
from fope_lab.store.state import IMPORTANCE
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.stage_filter import SHOWN_DIGITS
from fope_lab.tracking.names import WIDTH

STYLES = {
    Status.FAILED: "bold red",
    Status.RUNNING: "bold cyan",
    Status.DAMAGED: "yellow",
    Status.INTERRUPTED: "yellow",
    Status.WAITING: "dim",
    Status.NOT_STARTED: "dim",
    Status.BLOCKED: "red",
    Status.IF_NEEDED: "dim",
    Status.NOT_NEEDED: "dim",
    Status.DONE: "green",
}
"""How each status is drawn."""
NAMED_STAGES = 3
"""How many stages of a cause are named in the line below it."""
NARROW = 80
"""The width below which keys and losses are left out."""
BAR_WIDTH = 30
UNITS = ("", "k", "M", "G", "T", "P")
STEPS = 17
"""The width of the column of steps."""
FEW, MOST_LINES = 3, 3
"""Up to so many causes have so many lines for the error; more causes have a line each."""
BETWEEN = "  "
"""What is between two columns."""
LEAST = 4
"""The lines that a part needs to say anything: an empty one, its heading, a row, what is more."""


def seconds_text(seconds: float | None) -> str:
    """A duration as minutes and seconds, such as 1:15 for 75, with hours where there are any."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def summary(states: States) -> str:
    """The number of stages in each status, such as "12 of 20 done, 2 running, 6 waiting"."""
    counts = Counter(state.status for state in states.values())
    rest = [
        f"{counts[status]:,} {status}"
        for status in IMPORTANCE
        if counts[status] and status is not Status.DONE
    ]
    return ", ".join([f"{counts[Status.DONE]:,} of {len(states):,} done", *rest])


def time_left_text(left: TimeLeft) -> str:
    """Such as "about 27:10 left, not counting 3 stages of unknown length"."""
    if left.seconds is None:
        return "time left unknown"
    text = f"about {seconds_text(left.seconds)} left"
    if left.unknown:
        text += f", not counting {counted(left.unknown)} of unknown length"
    return text


def cut(text: str, width: int) -> str:
    """The text in one line of at most `width` characters; it ends after a whole word and "…"."""
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    end = line.rfind(" ", 0, width - 1)
    return f"{line[:end]} …" if end > width // 2 else f"{line[: width - 1]}…"


@dataclass(frozen=True)
class LiveScreen:
    """Draws a snapshot into the terminal's present size.

    `names` has the short name of each stage by its key.
    """

    stages: Sequence[Stage]
    names: Mapping[str, str]
    now: Snapshot

    def lines(self, width: int, height: int) -> list[Text]:
        """At most `height` lines of at most `width` characters."""
        head = [Text(cut(summary(self.now.states), width), style="bold"), self._overall(width)]
        room = max(height - len(head), 0)
        failures = self._failures(width)
        running = self._running(width)
        # Failures may take a third of the room, and what the running stages leave of it.
        for_failures = min(len(failures), max(room // 3, room - len(running)))
        shown = _first(running, room - for_failures, "running")
        shown += _first(failures, for_failures, "lines of causes, which come last")
        shown += _first(self._latest(width), room - len(shown), "finished")
        lines = [*head, *shown][:height]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
            line.no_wrap, line.overflow = True, "crop"
        return lines

    def _overall(self, width: int) -> Text:
        """The bar, the share of the work that is done, the time so far and the time left."""
        left = self.now.time_left
        share = f" {left.share:.0%} of the work"
        times = f"{seconds_text(self.now.elapsed)} so far, {time_left_text(left)}"
        bar = min(BAR_WIDTH, max(width - len(share) - len(times) - 3, 0))
        full = round(left.share * bar)
        drawn = (("━" * full, "green"), ("─" * (bar - full), "dim"))
        return Text.assemble(*drawn, share, "   ", times)

    def _running(self, width: int) -> list[Text]:
        """A heading and a row for each running stage, those that tell of their work first."""
        running = sorted(self.now.running, key=lambda key: self.now.running[key].step is None)
        if not running:
            return []
        heads = ("running", "key", "step", "loss", "speed", "left")
        rows = [self._row(key, _running_cells(self.now, key), width) for key in running]
        return [Text(), Text(_columns(*heads, width), style="bold"), *rows]

    def _latest(self, width: int) -> list[Text]:
        """A heading and a row for each stage that this run has finished."""
        if not self.now.latest:
            return []
        heads = ("finished", "key", "", "", "", "took")
        rows = [
            self._row(stage.key, _finished_cells(done), width, style="dim")
            for stage, done in self.now.latest
        ]
        return [Text(), Text(_columns(*heads, width), style="dim"), *rows]

    def _row(self, key: str, cells: Sequence[str], width: int, style: str = "") -> Text:
        steps, loss, speed, time, note = cells
        name, digits = self.names[key], key[:SHOWN_DIGITS]
        line = _columns(name, digits, steps, loss, speed, time, width)
        if note and (rest := width - len(line) - len(BETWEEN)) > len(note) // 2:
            line += BETWEEN + cut(note, rest)
        return Text(line, style=style)

    def _failures(self, width: int) -> list[Text]:
        """The error and the stages of each cause, then the number of blocked stages."""
        if not self.now.causes:
            return []
        each = MOST_LINES if len(self.now.causes) <= FEW else 1
        lines = [Text()]
        for cause in self.now.causes:
            text = f"{cause.status} {counted(len(cause.stages))}: {cause.reason}"
            names = [self.names[stage.key] for stage in cause.stages]
            if len(names) == 1:
                text = f"{cause.status} {names[0]}: {cause.reason}"
            style = STYLES[cause.status]
            lines += (Text(line, style=style) for line in _wrapped(text, width, each))
            if len(names) > 1:
                lines.append(Text(f"  {cut(listed(names, NAMED_STAGES), width - 2)}", style="red"))
        if blocked := sum(is_blocked_by_another(stage, self.now.states) for stage in self.stages):
            lines.append(Text(f"blocked by them: {counted(blocked)}", style=STYLES[Status.BLOCKED]))
        return lines


def _running_cells(now: Snapshot, key: str) -> tuple[str, str, str, str, str]:
    """The step, loss, speed and time left of a running stage, and a note."""
    state, told = now.states[key], now.running[key]
    note = "by another run" if state.elsewhere else state.reason or utilisation_text(told)
    if told.step is None:
        return "starting" if not state.elsewhere else "", "", "", "", note
    return steps_text(told), loss_text(told), speed_text(told), seconds_text(told.left), note


def _finished_cells(done: StageProgress) -> tuple[str, str, str, str, str]:
    """The time that a finished stage took, and as a note the attempts if there were several."""
    several = done.attempts is not None and done.attempts > 1
    return "", "", "", seconds_text(done.seconds), f"{done.attempts} attempts" if several else ""


def steps_text(told: StageProgress) -> str:
    """The step and their number, in the short form where they would be too long for a column."""
    if told.step is None or told.total is None:
        return ""
    text = f"{told.step:,}/{told.total:,}"
    return text if len(text) <= STEPS else f"{_short(told.step)}/{_short(told.total)}"


def loss_text(told: StageProgress) -> str:
    """The loss with three decimals, if there is any."""
    return f"{told.loss:.3f}" if told.loss is not None else ""


def speed_text(told: StageProgress) -> str:
    """Tokens per second, or else what the stage counts per second."""
    if told.tokens_per_second is not None:
        return f"{told.tokens_per_second:,.0f} tok/s"
    if told.steps_per_second is None:
        return ""
    return f"{told.steps_per_second:,.{0 if told.steps_per_second >= 10 else 2}f}/s"


def utilisation_text(told: StageProgress) -> str:
    """The model FLOPs utilisation of a training on a GPU whose peak is known."""
    return "" if told.flops_utilisation is None else f"{told.flops_utilisation:.0%} MFU"


def _short(number: float) -> str:
    exponent = max(len(f"{number:.0f}") - 1, 0) // 3
    return f"{number / 1000**exponent:.3g}{UNITS[exponent]}"


def _columns(name: str, key: str, steps: str, loss: str, speed: str, left: str, width: int) -> str:
    """A row of the tables; a narrow terminal gets neither keys nor losses."""
    cells = [f"{name:<{WIDTH}}", f"{steps:>{STEPS}}", f"{speed:>14}", f"{left:>8}"]
    if width >= NARROW:
        cells[1:2] = [f"{key:<{SHOWN_DIGITS}}", cells[1], f"{loss:>7}"]
    return BETWEEN.join(cells).rstrip()[:width]


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """The text in at most `most` lines, none of which ends in the middle of a word."""
    words = " ".join(text.split())
    lines = wrap(words, width, break_long_words=False, break_on_hyphens=False)
    shown = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [cut(line, width) for line in shown if line]


def _first(lines: list[Text], room: int, noun: str) -> list[Text]:
    """The first lines, the last of which says how many more there are."""
    if len(lines) <= room:
        return lines
    if room < LEAST:
        return []
    return [*lines[: room - 1], Text(f"… and {len(lines) - room + 1:,} more {noun}", style="dim")]
