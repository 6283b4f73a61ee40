"""Permissions for tools of servers in a client's own settings (allow, ask, deny): read, carried over and rewritten.

    `claude_code`   `permissions` of its settings files: `mcp__server`, `mcp__server__*`, `mcp__server__tool`
    `setting_keys`  keys beside the servers. OpenCode's `permission` and `tools`: `server_tool`, `server_*`, `*`;
                    Zed's `agent.tool_permissions`: `mcp:server:tool`
    `setting_lists` Cursor's `mcpAllowlist` of its `permissions.json`, `Mcp(server:tool)` of its command line; Gemini's
                    lists of servers `allowed` and `excluded` under `mcp`
    `entries`       keys in an entry of any client: Codex' `default_tools_approval_mode` and `tools.TOOL.approval_mode`,
                    Gemini's `trust`, `autoApprove` and `autoApproveAll` of Cline and Kiro, `alwaysAllow` of Roo
    `settings`      all of them by client, with `GOOSE_MODE` of Goose and `chat.tools.global.autoApprove` of VS Code
    `modes`         the mode of ours that holds what was carried over

An allow and an ask become rules about `call_tool`: about a tool that the client shows by its name it asks itself, and
its own settings get the new name. A deny becomes a rule about the tool.
"""
