"""Outputs of logs that were dropped: nobody reads them any more, and no job comes to them.

A drop frees the name and destroys the log; what jobs have made of it lies elsewhere. Its output
goes when both can be seen: the catalogue has no such log under the name in OUTPUT, and
nothing is left of the log itself. An output whose log has merely lost its objects is the last copy
of its records, and stays.
"""

from collections import defaultdict
from collections.abc import Collection

from stratalog.errors import Corrupt, NotFound
from stratalog.herd import Catalogue, log_store
from stratalog.objectlog.tree import delete_surely
from stratalog.pipeline.outputs.output import OUTPUT, decode_output, folder_of
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, Store

TIMEOUT_S = 60.0


async def remove_dropped_outputs(
    root: Store,
    job: str,
    there: Collection[str | None],
    runtime: Runtime = DEFAULT_RUNTIME,
) -> tuple[str, ...]:
    """Delete the outputs of a job whose logs were dropped. The paths that went.

    Logs whose ids are ``there`` are not looked at.
    """
    prefix = folder_of(job, "")
    by_log: defaultdict[str, list[str]] = defaultdict(list)
    async for row in root.list(prefix):
        by_log[row.path.removeprefix(prefix).partition("/")[0]].append(row.path)
    to_delete: list[str] = []
    for log_id, paths in by_log.items():
        if log_id not in there and await _is_dropped(root, job, log_id, runtime):
            to_delete += sorted(paths, key=lambda path: path.endswith(f"/{OUTPUT}"))
    await delete_surely(root, to_delete, Patience(runtime, TIMEOUT_S))
    return tuple(to_delete)


async def _is_dropped(root: Store, job: str, log_id: str, runtime: Runtime) -> bool:
    async for _ in log_store(root, log_id).list():
        return False
    path = f"{folder_of(job, log_id)}/{OUTPUT}"
    try:
        output = decode_output((await root.get(path)).data, path)
    except (NotFound, Corrupt):
        return False
    try:
        entry = await Catalogue(root, runtime).find(output.log)
    except NotFound:
        return True
    return entry.id != log_id
