"""The language server tools with the server of TypeScript, which comes from npm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rig import NPM_HOME, node, npm_package_main
from rig.sandbox import needs_sandbox
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec

PRICE = "export function gross(price: number): number {\n  return price * 1.19;\n}\n"
CART = """\
import { gross } from "./price";

export class Cart {
  total(items: number[]): number {
    const label = "😀"; return items.reduce((sum, one) => sum + gross(one), 0);
  }
}
new Cart().total(["a"]);
"""
OPTIONS = '{"compilerOptions": {"strict": true, "module": "esnext", "moduleResolution": "bundler", "noEmit": true}}'


@needs_sandbox
async def test_typescript_is_understood_and_renamed(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in (("tsconfig.json", OPTIONS), ("price.ts", PRICE), ("cart.ts", CART)):
        (folder / name).write_text(text)
    server = {
        "command": [str(node()), str(npm_package_main("typescript").with_name("tsc")), "--lsp", "--stdio"],
        "files": ["*.ts", "*.tsx"],
        "readable": [str(NPM_HOME)],
    }
    tools = {"lsp": {"servers": {"typescript": server}}}
    settings = bare().with_values(builtins=True, workspace=WorkspaceSpec(roots=(folder,)), tools=tools)

    async with (
        Toolcrib(settings, memory=True) as crib,
        crib.session(profile="flat", mode="autonomous") as session,
    ):

        async def told(name: str, /, **arguments: Any) -> str:
            result = await session.call(name, arguments)
            assert result.error is None, result.text
            return result.text

        symbols = await told("lsp_workspace_symbols", query="gross")
        place = await told("lsp_goto_definition", symbol="gross", file_path="cart.ts", line=5)
        uses = await told("lsp_find_references", symbol="gross")
        what = await told("lsp_hover", symbol="Cart.total")
        wrong = await told("lsp_get_diagnostics", file_path="cart.ts")
        await told("lsp_rename_symbol", symbol="gross", new_name="brutto", apply=True)
        right = await told("lsp_get_diagnostics", file_path="price.ts")

    assert symbols == "price.ts:1: [function] gross"
    assert place == "price.ts:1:17: export function gross(price: number): number {"
    assert [line.partition(": ")[0] for line in uses.splitlines()[:-1]] == [
        "cart.ts:1:10",
        "cart.ts:5:64",
        "price.ts:1:17",
    ]
    assert "Cart.total(items: number[]): number" in what
    assert wrong.splitlines()[0] == "cart.ts:8:19: error [ts 2322] Type 'string' is not assignable to type 'number'."
    assert right.startswith("[0 errors, ")
    assert (folder / "price.ts").read_text() == PRICE.replace("gross", "brutto")
    assert (folder / "cart.ts").read_text() == CART.replace("gross", "brutto")
