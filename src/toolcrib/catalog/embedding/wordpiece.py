"""Text to token numbers, the way BERT models were trained to read it: WordPiece, from the model's own `vocab.txt`.

    "createIssue"  ->  [CLS] create ##iss ##ue [SEP]        (uncased models fold case and accents first)

Plain Python, so that the extra needs nothing but numpy; a word is looked up once and remembered for the life of the
tokenizer. Written from the published algorithm (https://arxiv.org/abs/1810.04805, the reference `BasicTokenizer` and
`WordpieceTokenizer`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ...errors import ConfigError

__all__ = ["WordPiece"]

_LONGEST_WORD = 100
_REMEMBERED = 1 << 16
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_IDEOGRAPHS = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_CLASS_IDEOGRAPH = "".join(f"{chr(first)}-{chr(last)}" for first, last in _IDEOGRAPHS)
_IDEOGRAPH = re.compile(f"([{_CLASS_IDEOGRAPH}])")


class WordPiece:
    """The tokenizer of one model. Lifetime: as long as the model; safe to use from several threads."""

    def __init__(self, vocabulary: Mapping[str, int], *, lower: bool = True) -> None:
        """`lower` folds case and takes accents off. Raises `ConfigError` when a special token is missing."""
        self._numbers = vocabulary
        self._lower = lower
        missing = [token for token in ("[CLS]", "[SEP]", "[UNK]") if token not in vocabulary]
        if missing:
            raise ConfigError(f"a WordPiece vocabulary needs {', '.join(missing)}; is this a BERT model's vocab.txt?")
        self._first, self._last, self._unknown = (vocabulary[token] for token in ("[CLS]", "[SEP]", "[UNK]"))
        self._of_word = lru_cache(maxsize=_REMEMBERED)(self._pieces)

    @classmethod
    def read(cls, path: Path, *, lower: bool = True) -> WordPiece:
        """Return the tokenizer of `path`, a file with one token a line; raises `ConfigError` when there is none."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the model's vocabulary cannot be read: {error}", file=str(path)) from None
        return cls({line: number for number, line in enumerate(lines)}, lower=lower)

    def numbers(self, text: str, limit: int) -> list[int]:
        """Return the tokens of `text` between the model's marks of beginning and end, `limit` at most."""
        found = [self._first]
        for word in self._words(text):
            found.extend(self._of_word(word))
            if len(found) >= limit:
                break
        del found[limit - 1 :]
        found.append(self._last)
        return found

    def _words(self, text: str) -> list[str]:
        if not text.isascii():
            text = _IDEOGRAPH.sub(r" \1 ", _cleaned(unicodedata.normalize("NFC", text)))
            if self._lower:
                text = _without_accents(text.lower())
            text = "".join(f" {char} " if _is_punctuation(char) else char for char in text)
        else:
            text = _PUNCTUATION.sub(r" \g<0> ", _cleaned(text.lower() if self._lower else text))
        return text.split()

    def _pieces(self, word: str) -> tuple[int, ...]:
        """Return the fewest tokens that spell `word`, longest first from the left, or the unknown one."""
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                number = self._numbers.get(mark + word[start:end])
                if number is not None:
                    break
            else:
                return (self._unknown,)
            pieces.append(number)
            start = end
        return tuple(pieces)


def _cleaned(text: str) -> str:
    """Return `text` without control characters; all white space counts as such."""
    if text.isprintable():
        return text
    return "".join(
        char if char in "\t\n\r" or unicodedata.category(char)[0] != "C" else "" for char in text if char != "\ufffd"
    )


def _without_accents(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) != "Mn")


def _is_punctuation(char: str) -> bool:
    return _PUNCTUATION.match(char) is not None or unicodedata.category(char).startswith("P")
