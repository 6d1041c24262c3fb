"""List the runs of messages in datagrams and batches, for traces.

No objects are made of the messages.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy

from ringcast._core.batch cimport Batch
from ringcast._core.marks cimport FRAGMENT, Marks
from ringcast._core.wire cimport HEADER, LENGTH, Run, empty_run, is_whole, load16, read_run


def list_runs(datagram, Py_ssize_t prefix=HEADER, Marks marks=None):
    """List the runs of a sound data datagram; a damaged one has none.

    Each is (first seqno, count, flags, bytes, send time, where its payloads begin).
    Each fragment is listed by itself. `marks` are those of the window that the datagram
    came from: they know the flags that datagrams do not carry.
    """
    cdef Py_buffer view
    cdef const uint8_t *raw
    cdef const uint8_t *end
    cdef Run run = empty_run()
    cdef list runs = []
    PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
    try:
        raw = <const uint8_t *> view.buf + prefix
        end = <const uint8_t *> view.buf + view.len
        if prefix >= HEADER and prefix <= view.len and is_whole(raw, end - raw):
            while raw < end:
                raw += read_run(raw, end - raw, &run)
                list_run(runs, &run, <const uint8_t *> view.buf, marks)
    finally:
        PyBuffer_Release(&view)
    return runs


cdef int list_run(list runs, const Run *run, const uint8_t *datagram, Marks marks) except -1:
    """Append one run, cut where its flags change, and before each fragment."""
    cdef bint marked = marks is not None and len(marks.flags) != 0
    cdef uint64_t first = run.first
    cdef uint64_t size = 0
    cdef Py_ssize_t at = run.payloads - datagram
    cdef uint16_t flags = run.flags
    cdef uint16_t other
    cdef uint64_t k
    if not marked and not flags & FRAGMENT:
        runs.append((first, run.count, flags, run.size, run.sent_at, at))
        return 0
    for k in range(run.count):
        other = run.flags | (marks.get(run.first + k) if marked else 0)
        if k and (other != flags or flags & FRAGMENT):
            runs.append((first, run.first + k - first, flags, size, run.sent_at, at))
            first, at, size = run.first + k, at + <Py_ssize_t> size, 0
        flags = other
        size += load16(run.lengths + k * LENGTH)
    runs.append((first, run.first + run.count - first, flags, size, run.sent_at, at))
    return 0


def runs_of(Batch batch not None):
    """List (count, bytes, send time) of each run of messages with the same send
    time."""
    cdef const char *stamps = PyBytes_AS_STRING(batch.stamps) if batch.stamps is not None else NULL
    cdef int64_t sent_at = 0
    cdef int64_t before = 0
    cdef uint64_t count = 0
    cdef uint64_t size = 0
    cdef Py_ssize_t k
    cdef object payload
    cdef list runs = []
    for k in range(len(batch.payloads)):
        if stamps != NULL:
            memcpy(&sent_at, stamps + 8 * k, 8)
        if count and sent_at != before:
            runs.append((count, size, before))
            count = size = 0
        payload = batch.payloads[k]
        before = sent_at
        count += 1
        size += <uint64_t> PyBytes_GET_SIZE(payload) if PyBytes_CheckExact(payload) else 0
    if count:
        runs.append((count, size, before))
    return runs
