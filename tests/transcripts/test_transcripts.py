"""The transcripts hold, and each number in them matters."""

import re
from pathlib import Path

import pytest
import textring  # the verbs of this folder

from ringcast.sim.transcripts.language import Mismatch, Transcript
from ringcast.sim.transcripts.verbs.group import VERBS

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))
TABLE = VERBS | textring.VERBS

HEADINGS = {
    "RingBuffer.txt": ["Design of RingBuffer", "Design of RingBuffer: the assertions",
                       "Correctness check #1",
                       "Correctness check #1: the solution"],
    "MCAST.txt": ["introduction", "Fields", "On sending of message M", "On reception of message M",
                  "On reception of ACK from member P", "Every xmit_interval",
                  "On reception of XMIT-REQ from P",
                  "On reception of view V", "On reception of digest D", "Misc"],
    "UNICAST3.txt": ["Motivation", "Design", "Connection establishment",
                     "SENDER: Closing a sender connection entry",
                     "SENDER: Sending a message", "RECEIVER: Reception of a CLOSE message",
                     "RECEIVER: Reception of a message",
                     "Sending of SEND_FIRST_SEQNO message",
                     "SENDER and RECEIVER: Retransmission task (reaping)"],
    "UNICAST3-SYNC.txt": ["Issue", "Solution", "Design", "Implementation", "Receiver (B)",
                          "Sender (A)", "Misc"],
    "NAKACK2-no-retransmission.txt": ["Goal", "Result", "Implementation", "become_server_queue",
                                      "Thread pool rejection policy",
                                      "Summary", "TCP_NIO2"],
}
PREFIXES = {                            # of the names of files; else the name of the text
    "NAKACK2-no-retransmission.txt": ("nakack2", "stable"),
    "RingBuffer.txt": ("ringbuffer", "nakack2", "stable")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_transcript_holds(path):
    Transcript.read(path, TABLE).play()


def flipped(step):
    """The line with one thing that it expects changed, for each such thing."""
    said, arrow, rest = step.text.partition("->")
    kept, expected = (said + arrow, rest) if arrow else ("", said)
    some = {"sender": "ha=0", "remembers": "hd=0", "stability": "A=0", "votes": "A=0",
            "slowest": "A"}.get(step.text.split()[0], "low=0")
    opposite = {"true": "false", "false": "true", "silence": "traffic", "traffic": "silence",
                "none": some, "nothing": "7",
                "OPEN": "CLOSING", "CLOSING": "OPEN"}
    for match in re.finditer(r"\b(?:\d+|true|false|silence|traffic|none|nothing|OPEN|CLOSING)\b",
                             expected):
        other = opposite.get(match[0]) or str((int(match[0]) + 1) % 2**64)
        yield kept + expected[:match.start()] + other + expected[match.end():]
    if step.text.startswith("slowest") and not step.text.endswith("none"):
        yield step.text.rpartition(" ")[0] + " none"
    if step.text.startswith("view"):
        words = step.text.split()
        yield " ".join(words[:-1] if len(words) > 4 else [*words, "A"])


@pytest.mark.prove
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_expectation_of_the_transcript_can_be_another(path):
    """Each is changed in turn; each time the play must stop at that very line."""
    lines = path.read_text().splitlines()
    steps = [step for step in Transcript.read(path, TABLE).steps if step.expects]
    assert len(steps) >= 2
    for step in steps:
        lies = list(flipped(step))
        assert lies, step
        for lie in lies:
            text = "\n".join([*lines[:step.line - 1], lie, *lines[step.line:]])
            with pytest.raises(Mismatch) as raised:
                Transcript("it.txt", text, TABLE).play()
            assert str(raised.value).startswith(f"it.txt:{step.line}: `{lie}`: ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_transcript_opens_with_its_text_its_heading_and_its_rule(path):
    text, rest = re.match(r"# ([\w-]+\.txt), (.*)\n# .*\n", path.read_text()).groups()
    assert path.name.startswith(PREFIXES.get(text, text.partition(".")[0].lower()))
    assert any(rest.startswith(heading) for heading in HEADINGS[text]), rest


def test_each_heading_of_the_texts_has_its_transcripts():
    said = [path.read_text().partition("\n")[0] for path in FILES]
    assert [heading for text, headings in HEADINGS.items() for heading in headings
            if not any(line.startswith(f"# {text}, ") and heading in line for line in said)] == []


def test_each_verb_is_used():
    used = {step.text.split()[0] for path in FILES for step in Transcript.read(path, TABLE).steps}
    assert TABLE.keys() - used == set()
