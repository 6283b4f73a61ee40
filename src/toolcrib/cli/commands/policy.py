"""`toolcrib policy` and `why`: what the rules say of a command, a call or a tool, and where a rule comes from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...config import Settings
from ...config.clients.claude_files import FoundRule, add_rules, claude_files, read_claude_rules
from ...config.directories import config_files
from ...config.loader import here
from ...core.json import fields_of
from ...core.permission import EFFECTS, Decision, Effect, unreachable_approver
from ...core.session import LOCAL
from ...core.similar import did_you_mean
from ...core.tool import Tool
from ...crib import Toolcrib
from ...crib.explainer import Why
from ...crib.options import SessionOptions
from ...errors import CODES, ConfigError, UsageError
from ...policy.rules import parse_rule
from ...policy.shell.grammar import read_script
from ...policy.shell.script import Script, ShellCommand
from ..actions import action_group
from ..clients.choice import chosen_clients
from ..open_crib import only_for, opened
from ..options import AsJson, ConfigFiles, Wait, run, settings_of
from ..output import Column, emit_json, escape, note, out, table
from .call import parse_arguments
from .guard import GatewayEntry, gateway_entries

_STATUS: Final[Mapping[str, int]] = {"allow": 0, "deny": 5, "ask": 10}
"""Effect → exit status: 5 is what a denied call ends with."""
_UNMATCHED: Final = 1
_COLUMNS: Final[tuple[Column, ...]] = (("EFFECT", "<"), ("RULE", "<"), ("FROM", "<"))
_FOUND: Final[tuple[Column, ...]] = (("EFFECT", "<"), ("RULE", "<"), ("FROM", "<"), ("STATE", "<"))
_SHELL: Final = Tool(name="Bash", local_name="Bash", source="shell", category="shell", origin="python")
"""Tool on which a command is tried if none is named."""

policy = action_group("Try a rule or the policy on a command or a call, list the rules, or import Claude Code's.")

_Profile = Annotated[str | None, typer.Option("--profile", help="The profile of the session.")]
_Mode = Annotated[str | None, typer.Option("--mode", help="The mode of the session.")]
_Principal = Annotated[str | None, typer.Option("--principal", help="The principal of the session.")]


@policy.command("test")
def try_policy(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[RULE] [-- COMMAND …]", help="A rule, and a command to try it on.")
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="Try a call of this tool by the whole policy.")] = None,
    args: Annotated[str | None, typer.Option("--args", help="Its arguments as a JSON object; - reads it.")] = None,
    effect: Annotated[str, typer.Option("--effect", help="Try RULE as deny, ask or allow.")] = "deny",
    profile: _Profile = None,
    mode: _Mode = None,
    principal: _Principal = None,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """Try a rule on a command, or the whole policy on a command or a call.

    `test RULE -- COMMAND` ends with 0 if the rule matches the command, 1 if not, 10 if undecidable.
    `test -- COMMAND` and `test --tool` end with 0 for allow, 5 for deny, 10 for ask.
    """
    given, session = words or [], _session(profile, principal)
    if tool is not None and given:
        raise UsageError(f"--tool tries a call by the whole policy: {given[0]!r} has no place beside it")
    if tool is not None:
        settings = only_for(_settings(config, mode, principal), tool)
        _call(settings, session, tool, args, wait=wait, as_json=as_json)
    elif not given:
        raise UsageError("name a rule and a command: toolcrib policy test 'Bash(git push:*)' -- git push origin")
    elif len(given) > 1 and _is_rule(given[0]):
        _try(given[0], _command(given[1:]), effect, as_json=as_json)
    else:
        command = _command(given)
        crib = Toolcrib(_settings(config, mode, principal), memory=True)
        decision = crib.policy.decide(_SHELL, {"command": command}, crib.session(**session).state)
        _tell(decision, {"command": command, **_parse(read_script(command))}, as_json=as_json)


@policy.command("list")
def list_rules(
    profile: _Profile = None,
    mode: _Mode = None,
    principal: _Principal = None,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the rules of a session: deny, ask, allow."""
    settings = _settings(config, mode, principal)
    crib = Toolcrib(settings, memory=True)
    state = crib.session(**_session(profile, principal)).state
    rules = sorted(crib.policy.rules_of(state), key=lambda rule: EFFECTS.index(rule.effect))
    for problem in settings.problems:
        note(f"{problem.source}: {problem.message}")
    if as_json:
        emit_json([{"effect": rule.effect, "rule": rule.text, "layer": rule.layer} for rule in rules])
    elif not rules:
        note(f"no rules: the mode {state.mode} decides")
    else:
        table(_COLUMNS, [(rule.effect, rule.text, rule.layer) for rule in rules])


@policy.command("import")
def import_rules(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE …", help="Claude Code's settings; its own places without any.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rules, write nothing.")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Import what a project's file allows, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import the permission rules of Claude Code into your configuration."""
    _import(files or (), write=not dry_run, trust=trust, as_json=as_json)


def _settings(config: list[Path] | None, mode: str | None, principal: str | None) -> Settings:
    """Return the settings; name a principal whom they do not know, whose session has none of its own."""
    settings = settings_of(config, mode=mode)
    known = {LOCAL, *settings.policy.identities, *(spec.principal for spec in settings.http.tokens)}
    if principal and principal not in known:
        note(f"no identity and no token has the principal {principal!r}{did_you_mean(principal, known)}")
    return settings


def _session(profile: str | None, principal: str | None) -> dict[str, Any]:
    """Return the options of a session in the folder of the command."""
    named = {key: value for key, value in {"profile": profile, "principal": principal}.items() if value}
    return {**named, "cwd": here().project}


def _is_rule(word: str) -> bool:
    """Whether the first word is a rule: no command has a bracket in its name, and none is called Bash."""
    return word == "Bash" or "(" in word


def _command(words: Sequence[str]) -> str:
    """Return the words as a shell text; a single one is a text already."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _try(text: str, command: str, effect: str, *, as_json: bool) -> None:
    if effect not in _STATUS:
        raise UsageError(f"--effect is deny, ask or allow, not {effect!r}")
    kind: Effect = "allow" if effect == "allow" else "ask" if effect == "ask" else "deny"
    home = str(here().home)
    rule = parse_rule(kind, text, layer="command line", home=home)
    if not rule.concerns(_SHELL):
        raise UsageError(
            f"{text} is not a rule for commands; put it into a configuration, and try a call of its tool: "
            "toolcrib policy test --tool NAME --args JSON --config FILE"
        )
    matcher = rule.arguments
    answer = True if matcher is None else matcher.matches({"command": command}, every=kind == "allow")
    script = read_script(command)
    if as_json:
        emit_json({"rule": text, "effect": kind, "command": command, "matches": answer, **_parse(script)})
    else:
        verdict = {True: "yes", False: "no", None: "undecidable: a deny asks, an allow does not allow"}[answer]
        out(f"matches:    {verdict}")
        _show(script)
    raise typer.Exit({True: 0, False: _UNMATCHED, None: _STATUS["ask"]}[answer])


def _call(
    settings: Settings, session: Mapping[str, Any], name: str, args: str | None, *, wait: float, as_json: bool
) -> None:
    arguments = parse_arguments((), args, None)

    async def main() -> Decision:
        async with opened(settings, wait=wait) as crib:
            return crib.explainer.decide(name, crib.session(**session), arguments)

    _tell(run(main), {"tool": name}, as_json=as_json)


def _tell(decision: Decision, about: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        emit_json({**about, "decision": decision.effect, "rule": decision.rule})
    else:
        out(f"decision:   {decision.effect}")
        out(f"rule:       {escape(decision.rule)}")
        if "command" in about:
            _show(read_script(about["command"]))
    raise typer.Exit(_STATUS[decision.effect])


def _import(paths: Sequence[str], *, write: bool, trust: bool, as_json: bool) -> None:
    """Take rules over. What a file allows that came with a project counts only when its user says so."""
    places = here()
    found: list[FoundRule] = []
    for path in [places.project / name for name in paths] or [path for path in claude_files(places) if path.is_file()]:
        unconfirmed = not paths and not trust and path.is_relative_to(places.project)
        try:
            found += read_claude_rules(path, str(places.home), unconfirmed=unconfirmed)
        except ConfigError as error:
            note(str(error))
    target = config_files(places.directories, places.project)[0]
    if any(rule.taken for rule in found):
        add_rules(target, found, write=write)
    if as_json:
        emit_json([fields_of(rule) for rule in found])
        return
    table(_FOUND, [(rule.effect, rule.text, rule.file, _state(rule)) for rule in found])
    count = sum(rule.taken for rule in found)
    note(f"{count} of {len(found)} rules {'are now' if write else 'would be'} in {target}")


def _state(rule: FoundRule) -> str:
    return rule.note or "taken" if rule.taken else f"not taken: {rule.note}"


def _parse(script: Script) -> dict[str, Any]:
    return {
        "commands": [_shown(command) for command in script.commands],
        "doubts": list(dict.fromkeys(script.every_doubt())),
        "effects": list(script.effects),
    }


def _shown(command: ShellCommand) -> dict[str, Any]:
    runs = [_shown(inner) for inner in command.runs]
    return {"command": command.shown(), **({"runs": runs} if runs else {})}


def _show(script: Script) -> None:
    for command in script.commands:
        _show_command(command, "command:    ")
    for doubt in dict.fromkeys(script.every_doubt()):
        out(f"unclear:    {escape(doubt)}")
    for effect in script.effects:
        out(f"effect:     {escape(effect)}")


def _show_command(command: ShellCommand, label: str) -> None:
    out(f"{label}{escape(command.shown())}")
    for inner in command.runs:
        _show_command(inner, "  runs:     ")


def why(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Its name, or SERVER/NAME as the server calls it.")],
    args: Annotated[str | None, typer.Option("--args", help="Arguments as a JSON object; - reads it.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Of the session; see `toolcrib profile`.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="cautious, autonomous, plan … or your own.")] = None,
    principal: Annotated[str | None, typer.Option("--principal", help="Whose session; local by default.")] = None,
    client: Annotated[
        str | None, typer.Option("--client", help="A connected client: with the mode, guard and profile of its entry.")
    ] = None,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """Say whether a tool can be called here and now and, if not, what stops it. Runs nothing.

    For a connected client (`--client cursor`) it counts what `connect` carried over from the client's own settings, and
    whether the client lists the tool or its model has to go through `call_tool`.
    Ends with the status that the call would end with; `asks` counts as one that runs.
    """
    entry = _entry_of(client) if client is not None else None
    if entry is None:
        settings = only_for(_settings(config, mode, principal), name)
    else:  # all servers: they decide together what the client lists
        settings = entry.settings(config or (), mode=mode, profile=profile)
    options: SessionOptions = {"approver": unreachable_approver, "for_client": entry is not None}

    arguments = parse_arguments((), args, None)

    async def main() -> Why:
        async with opened(settings, wait=wait, fresh=True) as crib:
            session = crib.session(**options, **_session(profile, principal))
            return crib.explainer.why(name, session, arguments)

    answer = run(main)
    if as_json:
        emit_json(fields_of(answer))
    else:
        _print(answer)
    if answer.code:
        raise typer.Exit(CODES[answer.code].exit)


def _entry_of(name: str) -> GatewayEntry:
    """Return the entry of a connected client, that of the project if there are two. Raises `UsageError`."""
    (client,) = chosen_clients([name])
    found = [entry for entry in gateway_entries() if entry.client is client]
    if not found:
        raise UsageError(f"{client.title} is not connected; `toolcrib connect {client.name}` does that")
    return found[-1]


def _print(answer: Why) -> None:
    rows = {
        "verdict": answer.verdict,
        "tool": answer.tool if answer.tool != answer.asked else "",
        "source": answer.source,
        "stopped by": answer.stopped_by,
        "reason": answer.reason,
        "hint": answer.hint,
        "results": answer.results,
        "version": answer.version,
        "deprecated": answer.deprecated,
    }
    for key, value in rows.items():
        if value:
            out(f"{key + ':':<12}{escape(value)}")
