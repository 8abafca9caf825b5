"""Words of other libraries for our settings."""

from difflib import get_close_matches

SYNONYMS = {"learning-rate": "lr", "gamma": "discount", "tau": "polyak", "net-arch": "hidden"}


def synonym(word: str) -> str | None:
    """Our word for one of theirs, also with a slip of the pen."""
    close = get_close_matches(word, SYNONYMS, n=1, cutoff=0.75)
    return SYNONYMS[close[0]] if close else None
