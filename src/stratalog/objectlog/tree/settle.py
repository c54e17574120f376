"""When the root alone cannot tell whether an attempt happened: who owns its first offset now?"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stratalog.errors import StratalogError
from stratalog.objectlog.stored import Fragment, Manifest
from stratalog.objectlog.tree.link_fragments import Verdict, judge_owner
from stratalog.objectlog.tree.walk import Tree, Window

log = logging.getLogger(__name__)


async def judge_by_owner(
    tree: Tree, stored: Manifest, fragments: Sequence[Fragment], incarnation: str
) -> Verdict:
    """The verdict from the fragment that holds the first offset of these, if it can be read."""
    start = fragments[0].start.offset
    if stored.first_offset > start:
        return Verdict.OPEN
    try:
        async for owner in tree.walk(stored, Window(start, start + 1)):
            return judge_owner(owner, incarnation)
    except StratalogError as error:
        log.warning("cannot look up who owns offset %d: %s", start, error)
    return Verdict.OPEN
