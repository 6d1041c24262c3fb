"""A bell: a descriptor that is readable from when somebody rings until it is silenced.

Who silences it must look afterwards if there is a new reason to ring, and then ring: a
thread that rings while another one silences may find that it rings already.
"""

import os
from contextlib import suppress


class Bell:
    """Its descriptor lives as long as this object: so nobody writes to one that has
    been closed meanwhile, and belongs to another file.

    Threads: any thread may call everything. Nothing takes a lock.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._rings = False

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def ring(self) -> None:
        """Make the descriptor readable."""
        if not self._rings:
            self._rings = True
            os.eventfd_write(self._descriptor, 1)

    def silence(self) -> None:
        """Make the descriptor unreadable. `_rings` is cleared last: if it were cleared
        first, this could read away what another thread has just written."""
        with suppress(BlockingIOError):                 # it did not ring
            os.eventfd_read(self._descriptor)
        self._rings = False

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):                # else there was none to have
            # A collector may take a channel whose bell this is, and call this first.
            # The thread that closes the channel then rings in vain.
            self._rings = True
            os.close(self._descriptor)
