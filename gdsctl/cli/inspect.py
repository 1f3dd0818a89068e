from __future__ import annotations

from gdsctl.cli.options import Format, Formatted, NoColor, Output, Snapshot, Verbose


def inspect(
    snapshot: Snapshot = None,
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
    verbose: Verbose = False,
) -> None:
    """Show the node: topology, GPUs, storage, drivers, and the path each GPU x mount takes, with the reasons."""
    from gdsctl import pipeline
    from gdsctl.render import documents
    from gdsctl.source.opening import open_source

    report = pipeline.inspect(open_source(snapshot))
    if format is Format.table:
        from gdsctl.render import terminal

        terminal.deliver(terminal.inspect_report(report, verbose=verbose), output, no_color=no_color)
    elif format is Format.json:
        documents.deliver(documents.json_pieces(report), output)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
