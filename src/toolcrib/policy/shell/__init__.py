"""Shell commands as rules see them: every command that a text can run, and its undecidable parts.

    text ── grammar.read_script ──► Script(commands, doubts, effects, …)          bash, by tree-sitter
              each command ── wrapper_commands.inner_commands_of ──► what it runs in turn: sudo, find -exec, sh -c
                           └─ launchers.started_by               ──► programs that options and code start: tar -I, sed e

    Three readers of a `Script`, each careful in its own direction:

    destructive_commands   may any command be irreversible?      in doubt it asks
    readonly_commands      do all commands only read?            in doubt they do not
    pattern.ShellPattern   does a rule `Bash(…)` hold?           deny and ask: in doubt undecidable; allow: in doubt no
      └─ workspace_scripts.started_files    for deny and ask: files of the workspace that the commands run, and what
           started_file.read_started        these run in turn: Makefiles, package.json, hooks, Dockerfiles, settings

Nothing here executes anything. The grammar and its readers are pure functions of the text; `workspace_scripts`,
`started_file` and the modules that they use read files, and are called in a thread (`Policy.read`).
"""
