"""The language of transcripts: it does what it says, and says what is wrong with a
line, and where."""

import re

import pytest

from ringcast.sim.producer import Producer
from ringcast.sim.transcripts.language import Entry, Mismatch, Mistake, Transcript, Unlike
from ringcast.sim.transcripts.scripted import ScriptedConsumer, ScriptedProducer
from ringcast.sim.transcripts.verbs.group import VERBS


def played(text, table=VERBS):
    return Transcript("it.txt", text, table).play()


def error(kind, text, table=VERBS):
    with pytest.raises(kind) as raised:
        played(text, table)
    return str(raised.value)


# ----------------------------------------------------------------------------------------- mistakes

@pytest.mark.parametrize("entry", VERBS.values(), ids=VERBS.keys())
def test_a_verb_can_be_written_as_its_docstring_says(entry):
    usage = re.sub(r"\[.*?\] ?", "", entry.usage).strip("`")
    names = "" if usage.startswith("members") else "members A B C\n"
    assert Transcript("it.txt", names + usage, VERBS).steps[-1].expects == entry.expects


MISTAKES = [
    ("sned A 1", "there is no verb 'sned'; did you mean 'send'?"),
    ("zzz", "the verbs are acks, add,"),
    ("send", "a member's name is missing at the end; write `send A 1..3`"),
    ("send D 1", "there is no member 'D'; the members are A, B, C"),
    ("send A", "seqnos such as 1..3 is missing at the end"),
    ("send A 1-3", "expected seqnos such as 1..3 or 2,5..7, not '1-3'"),
    ("send A 3..1", "3..1 is too long or ends before it begins"),
    ("send A 18446744073709551616", "18446744073709551616 is no seqno: they have 64 bits"),
    ("send A 1 2", "'2' is too much"),
    ("run 500", "expected a duration such as 500ms, not '500'"),
    ("run", "a duration such as 500ms is missing at the end"),
    ("drop AB 2", "expected a link such as A>B, not 'AB'"),
    ("drop A>X 2", "there is no member 'X'"),
    ("drop A>B", "seqnos such as 1..3 is missing at the end"),
    ("drop A>B 2 xx", "expected a number, not 'x'"),
    ("drop A>B 2 twice", "'twice' is too much"),
    ("delay A>B 2", "expected a duration such as 500ms, not '2'"),
    ("windows B", "key=value is missing at the end"),
    ("windows B of A lo=1", "there is no 'lo' here; there are low, hd, hr, missing, max_bytes"),
    ("windows B of A low=1 low=2", "low is there twice"),
    ("windows B of A low", "expected key=value, not 'low'"),
    ("acks A B=x", "expected a number, not 'x'"),
    ("view A B", "expected '=', not 'B'"),
    ("add 5", "'->' is missing at the end; write `add 5..7 -> true`"),
    ("add 5 -> yes", "expected true or false, not 'yes'"),
    ("sent A>B install 1", "a transcript cannot expect what members say about views"),
    ("tell A>* 1", "there is no member '*'"),
    ("tell A>B 1 OOB", "'OOB' is too much"),
    ("done B A", "seqnos such as 1..3 is missing at the end"),
    ("hide A", "'by' is missing at the end; write `hide A by B`"),
    ("sender A>B", "key=value is missing at the end"),
    ("sender A>B low=1", "there is no 'low' here; there are state, conn_id, ha, hs, timestamp"),
    ("receiver A>B hs=1", "there is no 'hs' here; there are state, conn_id, low, hd, hr, missing"),
    ("expect noise 1s", "expected silence or traffic, not 'noise'"),
    ("exclude C", "'by' is missing at the end; write `exclude C by A`"),
    ("members A B", "there is a group already"),
    ("ring offset=4", "capacity is missing"),
    ("restart B digest A=1", "'digest A=1' is too much; write `restart C`"),
    ("counters A nums=1", "there is no 'nums' here; there are num_msgs_delivered"),
]


@pytest.mark.parametrize("line, sentence", MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_line_that_cannot_be_understood_is_reported_before_anything_runs(line, sentence):
    text = f"# a comment\nmembers A B C   # another\n\ndelivered A B 1\n{line}   # and one more"
    message = error(Mistake, text)
    assert message.startswith(f"it.txt:5: `{line}`: ") and sentence in message


@pytest.mark.parametrize("line, sentence", [
    ("sent A>B uak nothing", "no member's stack has a kind 'uak'; there are ack, ask_end, close, "
                             "data, end, fetch, first, held, highest, message, need, part, "),
    ("sent A>B vote nothing", "no member's stack has a kind 'vote'; "),
    ("drop A>B uak", "nothing like it was sent; write only what happens"),
])
def test_a_kind_that_the_stacks_do_not_have_is_reported(line, sentence):
    message = error(Mistake, f"members A B\nrun 10ms\n{line}")
    assert message.startswith(f"it.txt:3: `{line}`: {sentence}")


@pytest.mark.parametrize("line, sentence", [
    ("members A B capcity=5", "there is no option 'capcity'; did you mean 'capacity'?"),
    ("members A B capacity=0", "capacity"),
    ("members A B D.capacity=5", "there is no member 'D'; the members are A, B"),
    ("members A B B.receiving=no", "expected true or false, not 'no'"),
    ("members A A", "every member needs a name of its own"),
    ("members capacity=5", "every member needs a name of its own"),
    ("send A 1", "there is no member 'A'; write a line `members A B` before"),
    ("add 1 -> true", "there is no window yet; write a line `ring capacity=10` before"),
    ("settle", "there is no group yet; write a line `members A B` before"),
])
def test_a_beginning_that_cannot_be_understood_is_reported(line, sentence):
    message = error(Mistake, line)
    assert message.startswith(f"it.txt:1: `{line}`: ") and sentence in message


@pytest.mark.parametrize("lines, sentence", [
    ("send A 2", "the next message of A is 1"),
    ("send A 1\nsend A 3", "the next message of A is 2"),
    ("restart B", "B is alive; let it crash or leave before"),
    ("finish B A 1", "B's application has nothing of A outstanding"),
    ("hold B\nsend A 1..2\nrun 10ms\nfinish B A 2", "B's application has 1..2 of A outstanding"),
    ("hold B\nsend A 1..2\nrun 10ms\nfinish B A 1..3", "B's application has 1..2 of A outstanding"),
    ("pass A>B", "nothing disturbs A>B"),
    ("windows A low=0", "A has 2 windows; name the sender: `windows A of ...`"),
    ("tell A>B 2", "the next message of A to B is 1"),
    ("tell A>B 1..2\ntell A>C 2", "the next message of A to C is 1"),
    ("tell A>B 1\nrun 10ms\ndone B A 1", "B's application has nothing outstanding"),
    ("hold B\ntell A>B 1..2\nrun 10ms\ndone B A 2", "B's application has 1..2 outstanding"),
    ("hold B\ntell A>B 1..2\nrun 10ms\ndone B A 1..3", "B's application has 1..2 outstanding"),
])
def test_what_cannot_be_is_reported_when_it_comes_to_that(lines, sentence):
    message = error(Mistake, "members A B C\n" + lines)
    last = lines.count("\n") + 2
    assert message.startswith(f"it.txt:{last}: `{lines.splitlines()[-1]}`: ")
    assert sentence in message


@pytest.mark.parametrize("line, sentence", [
    ("drop A>B 7", "nothing like it was sent"),
    ("drop A>B 1 x2", "it happened 1 times"),
    ("drop A>B highest always", "nothing like it was sent"),
    ("delay B>A xmit_req 5ms", "nothing like it was sent"),
])
def test_a_script_that_disturbs_what_is_never_sent_is_wrong(line, sentence):
    message = error(Mistake,
                    f"members A B ack_threshold=9 capacity=90 xmit_interval=1s\n{line}\nsend A "
                    f"1..3\nrun 50ms")
    assert message.startswith(f"it.txt:2: `{line}`: {sentence}")


# --------------------------------------------------------------------------------------- mismatches

def test_a_mismatch_shows_what_is_so_instead_and_what_went_before():
    message = error(Mismatch,
                    "members A B\ndrop A>B 2\nsend A 1..3\nrun 250ms\n\nwindows B low=3 hd=3 "
                    "hr=3\ndelivered B A 1..2")
    assert message.splitlines() == [
        "it.txt:7: `delivered B A 1..2`: instead: 1..3",
        "  at 250 ms, after these datagrams:",
        "       0.000 ms  A>*  data 1",
        "       0.000 ms  A>*  data 2   (lost to B)",
        "       0.000 ms  A>*  data 3",
        "       1.000 ms  B>A  ack 1",
        "       9.333 ms  B>A  xmit_req 2",
        "      10.333 ms  A>B  repeat 2",
        "      11.333 ms  B>A  ack 3",
    ]


def test_the_history_tells_of_connections():
    message = error(Mismatch,
                    "members A B A.counters=6 xmit_interval=100ms\ndrop A>B first 1\ntell A>B "
                    "1..2\nrun 102ms\ntold B A 1")
    assert message.splitlines() == [
        "it.txt:5: `told B A 1`: instead: nothing",
        "  at 102 ms, after these datagrams:",
        "       0.000 ms  A>B  first 1 (connection 7)   (lost to B)",
        "       0.000 ms  A>B  message 2 (connection 7)",
        "     101.000 ms  B>A  send_first_seqno 7 (connection 7, timestamp 1)",
        "     102.000 ms  A>B  first 1 (connection 7)",
    ]


def test_the_history_of_a_mismatch_is_short():
    message = error(Mismatch, "members A B C\n"
                    + "".join(f"send A {k}\nrun 10ms\n" for k in range(1, 100)) + "delivered B A 1")
    assert len(message.splitlines()) < 30 and "data 99" in message and "data 1\n" not in message


@pytest.mark.parametrize("line, instead", [
    ("windows B of A low=3 hd=3 hr=3", "low=0 hd=3 hr=3 missing=nothing max_bytes=16777216"),
    ("windows B of A none", "there is one"),
    ("delivered C A 1..3", "nothing"),
    ("acks A B=3 min=0", "B=3 C=0 min=0"),
    ("acks A B=3 C=0 min=3", "B=3 C=0 min=0"),
    ("acks A A=2 B=3 C=0 min=0", "A=3 B=3 C=0 min=0"),
    ("blocked A 4", "nothing"),
    ("kept A 2..3", "1..3"),
    ("sent A>* data 1..3", "1 2 3"),
    ("sent B>A ack 1", "3"),
    ("counters B num_duplicates=1", "num_duplicates=0"),
    ("view A = A B", "A B C"),
    ("settle", "quiescence: the group does not come to rest"),
])
def test_what_is_so_instead_is_written_as_a_transcript_would(line, instead):
    message = error(Mismatch, f"members A B C\ncrash C\nsend A 1..3\nrun 10ms\n{line}")
    assert message.startswith(f"it.txt:5: `{line}`: ") and instead in message.splitlines()[0]


@pytest.mark.parametrize("line, instead", [
    ("told B A 1..2", "1..3"),
    ("told A B 1", "nothing"),
    ("waiting A>B 4", "nothing"),
    ("refused A>C nothing", "1"),
    ("failed A>B 1", "nothing"),
    ("sender A>B state=OPEN ha=2", "state=OPEN conn_id=7 ha=3 hs=3 timestamp=1"),
    ("sender A>B none", "there is one: state=OPEN conn_id=7 ha=3 hs=3 timestamp=1"),
    ("sender B>A ha=1", "none"),
    ("receiver A>B state=CLOSING", "state=OPEN conn_id=7 low=3 hd=3 hr=3 missing=nothing"),
    ("remembers A>B hd=3", "none"),
    ("sent A>B first 2", "1"),
    ("sent A>B message 2..3", "2 3"),
    ("sent B>A uack 1", "3"),
    ("counters B unicast_acks_sent=2", "unicast_acks_sent=1"),
])
def test_what_is_so_instead_of_messages_to_one_member(line, instead):
    message = error(Mismatch,
                    f"members A B C A.counters=6\nhide C by A\ntell A>C 1\ntell A>B 1..3\nrun "
                    f"10ms\n{line}")
    assert message.startswith(f"it.txt:6: `{line}`: instead: {instead}\n")


@pytest.mark.parametrize("line, instead", [
    ("add 6 -> true", "false for 6"), ("add 7..8 -> false", "true for 7"), ("remove -> 6", "5"),
    ("remove x3 -> 5..7", "5..6, then nothing"), ("remove x3 -> 5..6", "5..6, then nothing"),
    ("stable 9 -> 5", "nothing"), ("get 5 -> false", "true"), ("missing 8", "7"),
    ("holds 5..7", "5..6,8"),
    ("pointers low=4 hd=4 hr=6", "low=4 hd=4 hr=8"),
])
def test_what_is_so_instead_in_a_window(line, instead):
    message = error(Mismatch, f"ring capacity=10 offset=4\nadd 5..6 -> true\nadd 8 -> true\n{line}")
    assert message == f"it.txt:4: `{line}`: instead: {instead}"


def test_what_the_checkers_find_is_reported_with_the_line(monkeypatch):
    """A broken promise of the stack, whatever the transcript says."""
    text = "members A B\nsend A 1..3\nrun 10ms"
    played(text)
    monkeypatch.setattr(ScriptedConsumer, "report", lambda consumer, batch, now:
                        consumer.member.multicast.delivered(batch, now))
    message = error(Mismatch, text)
    assert message.startswith("it.txt:3: `run 10ms`: purge: A gave up A's messages up to")


def test_the_checkers_know_what_was_sent_to_one_member(monkeypatch):
    def push_unicasts(producer, dest, now):
        producer.unicast_logs[dest].backlog.reverse()
        Producer.push_unicasts(producer, dest, now)

    text = "members A B\ntell A>B 1..3\nrun 10ms"
    played(text)
    monkeypatch.setattr(ScriptedProducer, "push_unicasts", push_unicasts)
    message = error(Mismatch, text + "\ntold B A 1..3")
    assert message.startswith("it.txt:3: `run 10ms`: content: B got")


def test_idle_connections_are_at_rest_and_what_is_unacknowledged_is_not():
    played("members A B xmit_interval=2s\ntell A>B 1\nsettle\nsender A>B state=OPEN")
    unacknowledged = "members A B xmit_interval=2s\ndrop A>B 1 always\ntell A>B 1\nsettle"
    assert "quiescence" in error(Mismatch, unacknowledged)
    played("members A B conn_expiry_timeout=500ms conn_close_timeout=500ms\n"
           "tell A>B 1\nsettle\nsender A>B none")


# ------------------------------------------------------------------------------- what a script does

def test_a_play_is_the_same_each_time():
    transcript = Transcript("it.txt", "members A B C\ndrop A>B 2\nsend A 1..3\nsend B 1..2\nrun 1s",
                            VERBS)
    assert transcript.play().cluster.fingerprint == transcript.play().cluster.fingerprint


def test_options_are_for_all_or_for_one():
    play = played("members A B C capacity=7 B.ack_threshold=3 xmit_interval=0.5s C.offset=100 "
                  "delay=2ms\nsend C 101\nrun 2ms")
    assert [play.member(name).config.capacity for name in "ABC"] == [7, 7, 7]
    assert [play.member(name).config.ack_threshold for name in "ABC"] == [1, 3, 1]
    assert play.member("B").config.xmit_interval == 500
    assert play.cluster.now == play.since + 2_000_000
    assert play.member("B").consumer.got[play.member("C").address] == [b"101"]


def test_disturbances_do_what_they_say():
    """Of each kind one, and what is not named passes."""
    text = """
        members A B C xmit_interval=1s
        drop A>B 1
        delay A>C 1 20ms
        duplicate *>C 2 30ms
        send A 1..2
        run 10ms
        delivered B A nothing
        windows B of A hr=2
        delivered C A nothing
        windows C of A hr=2
        run 15ms
        delivered C A 1..2
        counters C num_duplicates=0
        run 15ms
        counters C num_duplicates=1
        counters B num_duplicates=0
    """
    played(text)


def test_what_members_say_about_views_is_in_no_history_and_is_disturbed_by_name_alone():
    play = played("""
        members A B C heartbeat_interval=10s
        drop A>C install
        drop A>C 1
        crash B
        exclude B by A
        send A 1
        expect traffic 500ms
        view C = A C
        delivered C A 1
        expect silence 20s
    """)
    fates = [(sent.kind.name, sent.fates["C"]) for sent in play.cluster.script.history
             if sent.source == "A" and sent.fates.get("C")]
    assert fates == [("data", "lost"), ("install", "lost")]
    assert "install" not in play.history() and "alive" not in play.history()


def test_a_cut_is_of_one_direction_and_heal_ends_everything():
    played("""
        members A B C xmit_interval=1s
        cut A>*
        drop C>B 1 always
        send A 1
        send B 1
        send C 1
        run 10ms
        delivered A B 1
        delivered A C 1
        delivered B A nothing
        delivered C A nothing
        delivered B C nothing
        heal
        settle
        delivered B A 1
        delivered C A 1
        delivered B C 1
    """)


def test_a_new_verb_is_one_function_in_the_table():
    def louder(words):
        """`louder A 3`: an example."""
        name, count = words.member(), words.number()

        def act(play):
            if count != len(play.member(name).log):
                raise Unlike(f"{len(play.member(name).log)}")
        return act

    table = VERBS | {"louder": Entry(louder, expects=True)}
    played("members A B\nsend A 1..3\nlouder A 3", table)
    assert error(Mismatch, "members A B\nsend A 1..3\nlouder A 4", table).startswith(
        "it.txt:3: `louder A 4`: instead: 3\n")
    assert "write `louder A 3`" in error(Mistake, "members A B\nlouder A", table)
