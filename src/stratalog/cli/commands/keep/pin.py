"""`pin`: named holds on a stretch of a log, which keep its objects while the log is cut above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.cli.groups import Commands, option
from stratalog.cli.parameters import DURATION, Name, Url
from stratalog.cli.reply import Reply
from stratalog.errors import Conflict
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import open_store

if TYPE_CHECKING:
    from stratalog.objectlog.holds import Pin, PinStore

FORK_PIN = "fork_"
"""How the names of the pins begin that forks make."""

pins = Commands(
    "pin",
    help="Named holds on a stretch of a log; collection deletes nothing that a pin reaches.",
)


@pins.command("list")
def list_pins(url: Url, *, reply: Reply) -> None:
    """Show all pins of a log, what they hold and until when.

    One that is past its expiry holds until a collection finds it.

    Example:
      stratalog pin list orders-log
    """
    reply.listing(
        reply.run(_pins_of(url).list()),
        _facts,
        _row,
        columns=("name", "offsets", "bytes", "expires", "by", "note"),
        right=("offsets", "bytes"),
        empty="there are no pins",
    )


@dataclass(frozen=True, slots=True)
class NewPin:
    from_offset: int | None = option(
        "The first offset. Without it, the log's first.", "--from", metavar="N", min=1
    )
    to_offset: int | None = option(
        "Hold what lies before this offset. Without it, all.", "--to", metavar="N", min=1
    )
    expires: float | None = option(
        "A collection may release it after so long, e.g. 90m, 6h, 7d. Without it, never.",
        **DURATION,
    )
    note: str = option("What it is for.", default="", metavar="TEXT")


@pins.command("create")
def create_pin(url: Url, name: Name, *, pin: NewPin, reply: Reply) -> None:
    """Hold a stretch of a log, in whole fragments, as it is now.

    A pin does not hold back collection as a cursor does: the log may begin
    later, but what is pinned stays readable with `read --pin`.

    Examples:
      stratalog pin create orders-log training_7 --expires 6h
      stratalog pin create orders-log audit --from 1000 --to 2000 --note "case 12"
    """

    async def work() -> Pin:
        from stratalog.objectlog.stored import load_manifest

        first = pin.from_offset
        if first is None:
            manifest, _ = await load_manifest(open_store(url))
            first = manifest.first_offset
        expires_us = _from_now_us(pin.expires)
        return await _pins_of(url).create(
            name, first, pin.to_offset, note=pin.note, expires_us=expires_us
        )

    _reply("created", reply.run(work()), reply)


@pins.command("renew")
def renew_pin(
    url: Url,
    name: Name,
    expires: float | None = option(
        "That long from now, e.g. 90m, 6h, 7d. Without it, never.", **DURATION
    ),
    *,
    reply: Reply,
) -> None:
    """Give a pin another expiry, counted from now; without --expires, none at all.

    Refused if it was released meanwhile.

    Example:
      stratalog pin renew orders-log training_7 --expires 6h
    """

    async def work() -> Pin:
        return await (await _pins_of(url).load(name)).renew(_from_now_us(expires))

    _reply("renewed", reply.run(work()), reply)


@pins.command("release")
def release_pin(
    url: Url,
    name: Name,
    force: bool = option("Also the pin of a fork, which is damaged by it.", default=False),
    *,
    reply: Reply,
) -> None:
    """Release a pin. What only it held goes with the next collection.

    The pin of a fork goes when the fork is destroyed; it is not released by hand.

    Example:
      stratalog pin release orders-log training_7
    """

    async def work() -> Pin:
        pin = await _pins_of(url).load(name)
        if pin.name.startswith(FORK_PIN) and not force:
            raise Conflict(
                f"the pin {pin.name} is {pin.note}",
                hint="Destroy the fork, and the pin goes with it. With --force the pin goes, and "
                "the fork loses its records with the next collection.",
            )
        await pin.release()
        return pin

    _reply("released", reply.run(work()), reply)


def _pins_of(url: str) -> PinStore:
    from stratalog.objectlog.holds import PinStore

    return PinStore(url)


def _from_now_us(duration_s: float | None) -> int | None:
    if duration_s is None:
        return None
    return DEFAULT_RUNTIME.now_us() + int(duration_s * 1_000_000)


def _expiry(pin: Pin) -> str:
    return "never" if pin.expires_us is None else output.moment(pin.expires_us)


def _facts(pin: Pin) -> dict[str, object]:
    return {
        **output.fields_of(pin, "name", "from_offset", "to_offset"),
        "bytes": pin.fragment_bytes,
        **output.fields_of(pin, "owner", "note", "created_us", "expires_us"),
    }


def _reply(done: str, pin: Pin, reply: Reply) -> None:
    held = f"offsets {pin.from_offset} to {pin.to_offset - 1} ({output.size(pin.fragment_bytes)})"
    until = "" if done == "released" else f", expires {_expiry(pin)}"
    reply.done({"done": done, **_facts(pin)}, f"{done} the pin {pin.name} of {held}{until}")


def _row(pin: Pin) -> tuple[str, ...]:
    return (
        pin.name,
        f"{pin.from_offset:,} to {pin.to_offset - 1:,}",
        output.size(pin.fragment_bytes),
        _expiry(pin),
        pin.owner,
        pin.note,
    )
