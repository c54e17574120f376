"""`init`: bringing a log into being."""

from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.errors import Exists
from stratalog.store import open_store, redact


def init(
    url: Url,
    exist_ok: bool = option("It is fine if the log exists already.", default=False),
    first_offset: int = option("The offset of its first record.", default=1, metavar="N", min=1),
    *,
    reply: Reply,
) -> None:
    """Create an empty log.

    The store is probed first: one that ignores conditional puts is refused.

    Examples:
      stratalog init orders-log
      stratalog init s3://bucket/logs/orders --exist-ok
      stratalog init orders-log-2 --first-offset 1000
    """
    from stratalog.objectlog import create_log

    store = open_store(url)

    async def work() -> bool:
        try:
            await create_log(store, first_offset=first_offset)
        except Exists as error:
            if not exist_ok:
                error.hint = "Use it as it is (--exist-ok says so), or choose another place."
                raise
            return False
        return True

    created, place = reply.run(work()), redact(store.url)
    what = "created a log" if created else "there is already a log"
    reply.done({"url": place, "created": created}, f"{what} at {place}")
