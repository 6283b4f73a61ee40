"""Telemetry of tools and calls: figures, and the name of their counter.

    Pipeline   Telemetry.watch        a span around the call; None while nothing listens
    Record     Telemetry.ended        its outcome, and the counters
    a job      with_trace_context     the context goes along in the call; `watch_job` continues it, in any process
    McpSource  current_kit, hop       a span for the request, whose context the server gets in `_meta`
    HTTP       trace_headers, trace_variables

`spans` and the packages of OpenTelemetry are loaded with the first listener, `sdk` with a configured collector.
"""
