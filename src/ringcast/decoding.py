"""Names what msgspec may raise for bytes that somebody else has made."""

import msgspec

# Also for texts that are not UTF-8, and for lists in lists in lists.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
