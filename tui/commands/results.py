"""Results on disk, for the commands that simulate."""

import typer


def keep_results(context: typer.Context, no_cache: bool) -> None:
    """Look up results on disk, and keep new ones, while the command of ``context`` runs; not under ``no_cache``."""
    if no_cache or context.resilient_parsing:
        return
    # Imported here: the command line imports this before it knows the command.
    from ...simcore.memo.memo import memoizing
    from ...simcore.memo.store import user_store

    context.with_resource(memoizing(user_store()))
