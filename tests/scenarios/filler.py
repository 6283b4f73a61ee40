"""Two hundred tools of other departments, among which the right one has to be found. They work: calls are noted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from scenarios.office import Office
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Tool
from toolcrib.testing import ScriptedSource

_WHAT: Final[Mapping[str, tuple[str, str]]] = {
    "invoice": ("finance", "the invoice of a customer"),
    "payroll_run": ("finance", "a monthly run of the payroll"),
    "budget": ("finance", "the budget of a department"),
    "expense_claim": ("finance", "the expenses that an employee claims back"),
    "bank_transfer": ("finance", "a transfer from our bank account"),
    "vacation": ("staff", "the vacation of an employee"),
    "sick_note": ("staff", "the sick note of an employee"),
    "job_application": ("staff", "an application for a job with us"),
    "training": ("staff", "a training course for employees"),
    "badge": ("staff", "the badge that opens doors"),
    "server": ("machines", "a server in the data centre"),
    "backup": ("machines", "a backup of a database"),
    "certificate": ("machines", "a TLS certificate of a web site"),
    "dns_record": ("machines", "a DNS record of a domain"),
    "deployment": ("machines", "a deployment of the web shop"),
    "alert": ("machines", "an alert of the monitoring"),
    "campaign": ("marketing", "an advertising campaign"),
    "newsletter": ("marketing", "a newsletter to subscribers"),
    "landing_page": ("marketing", "a landing page of the web site"),
    "survey": ("marketing", "a survey among customers"),
    "trade_fair": ("marketing", "a stand at a trade fair"),
    "truck": ("logistics", "a truck of our fleet"),
    "delivery_route": ("logistics", "the route of a delivery"),
    "warehouse_slot": ("logistics", "a slot in the warehouse"),
    "customs_form": ("logistics", "a customs form"),
    "container": ("logistics", "a shipping container"),
    "room": ("building", "a meeting room"),
    "heating_plan": ("building", "the plan of the heating"),
    "parking_space": ("building", "a parking space"),
    "lift_inspection": ("building", "an inspection of the lift"),
    "contract": ("legal", "a contract with a supplier"),
    "trademark": ("legal", "a trademark of ours"),
    "complaint": ("legal", "a complaint of a customer"),
    "flight": ("travel", "a flight of a business trip"),
    "hotel": ("travel", "a hotel room of a business trip"),
    "rental_car": ("travel", "a rental car of a business trip"),
    "visa": ("travel", "a visa for a business trip"),
    "sensor": ("boats", "a sensor on a boat"),
    "engine_service": ("boats", "the service of a boat's engine"),
    "mooring": ("boats", "a mooring in the harbour"),
}
_DO: Final[Mapping[str, tuple[str, Annotations]]] = {
    "show": ("Show", Annotations(read_only=True, destructive=False, open_world=False)),
    "book": ("Book or order", Annotations(destructive=False, open_world=False)),
    "change": ("Change the details of", Annotations(destructive=False, open_world=False)),
    "approve": ("Approve", Annotations(destructive=False, open_world=False)),
    "cancel": ("Cancel", Annotations(destructive=True, open_world=False)),
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "reference": {"type": "string", "description": "Its number or name."},
        "details": {"type": "string", "default": "", "description": "What else is to be said."},
    },
    "required": ["reference"],
    "additionalProperties": False,
}


def _tool(do: str, what: str) -> Tool:
    name, (category, phrase), (verb, hints) = f"{do}_{what}", _WHAT[what], _DO[do]
    return Tool(
        name=name,
        local_name=name,
        source="departments",
        description=f"{verb} {phrase}.",
        input_schema=_SCHEMA,
        annotations=hints,
        category=category,
        tags=(category,),
    )


TOOLS: Final = tuple(_tool(do, what) for what in _WHAT for do in _DO)
"""Every verb with every thing."""


def source(office: Office) -> ScriptedSource:
    """Return the source of the tools; what is done is a record of the kind `done`."""

    def body(name: str) -> Any:
        async def run(arguments: Mapping[str, Any], context: Context) -> ToolResult:
            if not name.startswith("show_"):
                office.add("done", "", {"tool": name, **arguments})
            return ToolResult.of_text(json.dumps({"tool": name, "done": True, **arguments}))

        return run

    return ScriptedSource("departments", {tool.name: body(tool.name) for tool in TOOLS}, listed=TOOLS)
