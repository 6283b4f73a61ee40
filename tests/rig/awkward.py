"""Texts that programs trip over: each is good Unicode and good JSON, and nothing else about it is as expected.

Of our own making, by what they are about. None is a secret, and what would run touches a file `CANARY` where it is run.
"""

from __future__ import annotations

from typing import Final

CANARY: Final = "CANARY"
"""The file in the working directory that is there once something ran."""

_NOTHINGS: Final = (
    "",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\0",
    "a\0b",
    "\x1f",
    "\x7f",
    "\x85",
    "\u00a0",
    "\u3000",
    "\u200b",
)
_WORDS: Final = (
    *("null", "NULL", "None", "nil", "undefined", "NaN", "Infinity", "-Infinity", "true", "False", "yes", "no", "off"),
    *("on", "~", "constructor", "__proto__", "toString", "__class__", "__init__", "self", "con", "aux", "nul.txt"),
)
_NUMBERS: Final = (
    *("0", "-0", "007", "1e309", "0x1F", "0b1", "1_000", "1,5", "९९", "½", "९.५", "9007199254740993", "1e-400", "--1"),
    *("12:34:56", "2026-02-30", "0o17", ".5", "+1", "1.0.0"),
)
_QUOTES: Final = (
    *("'", '"', "''", '"""', "`", "\\", "\\\\", "\\n", "\\u0000", "\\x41", "'\"`\\", "»«", "„“", "a'b\"c`d"),
    *("{", "}", "{}", "{{", "}}", "[]", "[", "{text}", "{{text}}", "{0}", "%s", "%(text)s", "%n%n%x", "$1", "${HOME}"),
    *("$HOME", "%PATH%", "!!", "&amp;", "&lt;b&gt;", "&#0;", "%00", "%2e%2e%2f", "%zz", "?a=b&c=d#e", "+", "a+b c"),
)
_COMMANDS: Final = (
    *("$(touch CANARY)", "`touch CANARY`", "; touch CANARY", "| touch CANARY", "&& touch CANARY", "\ntouch CANARY\n"),
    *(
        "' ; touch CANARY ; '",
        '" ; touch CANARY ; "',
        "> CANARY",
        "--output=CANARY",
        "-o",
        "--",
        "-rf",
        "*",
        "?",
        "~/x",
    ),
    *("{{ cycler.__init__.__globals__ }}", "<%= 7*7 %>", "#{7*7}", "${7*7}", "${jndi:ldap://localhost/a}", "=1+1"),
    *("=cmd|' /C touch CANARY'!A0", "@SUM(1)", "__import__('os').system('touch CANARY')", "';DROP TABLE calls;--"),
    *(
        "' OR '1'='1",
        "!!python/object/apply:os.system ['touch CANARY']",
        "&a [*a, *a]",
        "<<: *a",
        "!include x",
        "--- x",
    ),
)
_PATHS: Final = (
    *("..", ".", "../..", "../../etc/passwd", "/etc/passwd", "//localhost/x", "\\\\localhost\\x", "C:\\x", "a/../../b"),
    *(
        "a//b",
        "a/",
        "./-",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/html,x",
        "a:b",
        "a;b=c",
        "/dev/zero",
    ),
)
_MARKUP: Final = (
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "<!--", "-->", "]]>"),
    *("</tool_result>", "<|im_end|>", "[INST]", "<IMPORTANT>", "](javascript:alert(1))", "![x](http://localhost/x)"),
    *("# x", "---\nname: x\n---", "```", "|a|b|", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "a\bb", "a\rb"),
)
_LETTERS: Final = (
    *(
        "ä",
        "a\u0308",
        "ß",
        "ẞ",
        "İ",
        "ı",
        "ﬁ",
        "Å",
        "A\u030a",
        "\u212b",
        "σς",
        "ǆ",
        "日本語",
        "한국어",
        "한",
        "العربية",
        "עברית",
        "हिन्दी",
    ),
    *(
        "ไทย",
        "Ελληνικά",
        "аdmin",
        "раураl",
        "𝐛𝐨𝐥𝐝",
        "ｆｕｌｌ",
        "①②",
        "Z̴̡̛a̵l̶g̷o",
        "👍",
        "👩‍👩‍👧‍👦",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "🇺🇳",
        "❤️",
        "𝒳",
        "𐍈",
        "\U0010fffd",
    ),
)
_UNSEEN: Final = (
    *(
        "a\u200bb",
        "a\u200db",
        "a\u2060b",
        "\ufeffbom",
        "soft\u00adhyphen",
        "\u202etxt.exe",
        "\u2066iso\u2069",
        "\u061c",
    ),
    *(
        "tag\U000e0041\U000e0042",
        "\u2028line",
        "\u2029part",
        "\ufffe",
        "\uffff",
        "\ufffd",
        "\ue000",
        "v\ufe0f",
        "\u180e",
    ),
)
_LONG: Final = ("a" * 300, "ä" * 300, "a b " * 100, "(" * 300, "\u0308" * 300, "x" * 5000)

AWKWARD: Final = tuple(
    dict.fromkeys(
        (
            *_NOTHINGS,
            *_WORDS,
            *_NUMBERS,
            *_QUOTES,
            *_COMMANDS,
            *_PATHS,
            *_MARKUP,
            *_LETTERS,
            *_UNSEEN,
            *_LONG,
        )
    )
)
"""All of them, each once."""
