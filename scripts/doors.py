"""A contract for import-linter: packages are entered through their facades.

A module may import any module of the packages that it lies in. Of every other package it imports
the facade, which is the package itself, and never a module inside. Modules directly in the root
package have no wall around them.
"""

from __future__ import annotations

import grimp
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.application.contract_utils import AlertLevel


class DoorsContract(Contract):
    """``ignore_imports`` names the imports that pass a facade by. One that is not there is told."""

    type_name = "doors"

    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        """Every import that passes a facade by breaks the contract, unless it is named."""
        ignored = contract_utils.remove_ignored_imports_and_report(
            graph=graph,
            ignore_imports=self.ignore_imports,  # type: ignore[arg-type]  # a field stands in for its value
            unmatched_alerting=AlertLevel.ERROR,
        )
        found = deep_imports(graph)
        return ContractCheck(
            kept=not found,
            warnings=list(ignored.warnings),
            ignored_import_count=ignored.ignored_import_count,
            metadata={"deep": found},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line for each import that passes a facade by."""
        for importer, imported in check.metadata["deep"]:
            output.print_error(f"{importer} imports {imported}: import it from its package.")
        output.new_line()


def deep_imports(graph: grimp.ImportGraph) -> list[tuple[str, str]]:
    """Which module imports a module of a package that it does not lie in."""
    ours = {module for module in graph.modules if not graph.is_module_squashed(module)}
    packages = {module for module in ours if graph.find_children(module)}
    return sorted(
        (importer, imported)
        for importer in ours
        for imported in graph.find_modules_directly_imported_by(importer)
        if imported in ours - packages and is_deep(importer, imported)
    )


def is_deep(importer: str, imported: str) -> bool:
    """Whether the package of what is imported has a wall, and the importer is outside of it."""
    package = imported.rpartition(".")[0]
    return "." in package and not f"{importer}.".startswith(f"{package}.")
