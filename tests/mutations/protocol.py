"""Deliberate mistakes in the protocol code, each of which the simulator must catch, or
a test of the layer, where that is much quicker.

A mutation names a function by its qualified name ("Mcast.purge"), whichever file of
the package or of the compiled core it is in; a class may stand for a function. It
replaces `old`, which occurs there once, by `new`; any white space stands for any
other. `more` are further such pairs in the same function or class: where one defence
stands behind another, only a mistake in all of them shows that a test is about them.
These are mistakes that somebody could make: the texts' own slips, what an earlier
version did, a line forgotten, a comparison turned round.

    python tests/mutations/protocol.py          # all: simulate seeds until one fails, list them
    python tests/mutations/protocol.py purge    # those whose name, or whose function, has this word
"""

import ast
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "ringcast"
CORE = ROOT / "ext" / "ringcast" / "_core"
# The first line of a function or a class in a source of the core.
COMPILED = re.compile(r"(|    )(?:cdef|cpdef|def) (?:class (\w+)|[^(=]*?(\w+)\()")
SEEDS = 200                             # of each kind that a mutation may survive at most
# Processes in which a mutation is looked for begin with what tests take long to load.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["hypothesis", "msgspec", "pytest", "pytest_timeout"])


TO_ALL = """(Settings(members=3, unicast=0, duration=0.5, messages=300),
             Settings(members=3, unicast=0, duration=0.5, messages=300, loss=0.2, crashes=1),
             Settings(members=4, unicast=0, duration=1.0, messages=300, reorder=0.3, crashes=2,
                      exclusions=2))"""
# In half of all seeds the members have a state, and give it to those that come.
REPLICAS = """(Settings(members=3, messages=300, crashes=2),)"""
TO_ONE = """(Settings(members=3, duration=0.5, unicast=300, messages=20),
             Settings(members=3, duration=0.5, unicast=300, messages=20, splits=4, reorder=0.3,
                      duplicate=0.2),
             Settings(members=3, duration=1.0, unicast=200, messages=20, splits=3, loss=0.2,
                      crashes=1, partitions=1))"""
LOSSY = """(Settings(stack="nakack2-udp", members=3, unicast=0, duration=0.5, messages=300),
            Settings(stack="nakack2-udp", members=3, unicast=0, duration=0.5, messages=300,
                     loss=0.2, crashes=1, partitions=1),
            Settings(stack="nakack2-udp", members=4, unicast=0, duration=1.0, messages=300,
                     reorder=0.3, duplicate=0.2, crashes=2, exclusions=2))"""
LOSSLESS = """(Settings(stack="nakack2-tcp", members=3, unicast=0, duration=1.5, breaks=40,
                        messages=1000, options={"form_margin": 20}),
               Settings(stack="nakack2-tcp", members=3, unicast=0, duration=1.5, breaks=40,
                        delay=20, messages=1000, partitions=0, pauses=0, exclusions=0,
                        options={"xmit_interval": 0, "form_margin": 20}),
               Settings(stack="nakack2-tcp", members=3, unicast=0, duration=1.5, breaks=20,
                        crashes=1, slow=3, messages=1000, switches=6,
                        options={"xmit_interval": 0, "form_margin": 20}),
               Settings(stack="nakack2-tcp", members=5, unicast=0, duration=1.5, breaks=0,
                        crashes=2, leaves=1, messages=1000,
                        options={"xmit_interval": 0, "form_margin": 20}))"""
TIGHT = """(Settings(stack="nakack2-tcp", members=3, unicast=0, duration=0.5, breaks=50, slow=3,
                     messages=500, size=8000, options={"xmit_interval": 0, "max_bytes": 2000}),
            Settings(stack="nakack2-tcp", members=3, unicast=0, duration=0.5, breaks=50, slow=3,
                     messages=500, options={"xmit_interval": 0, "capacity": 3}))"""
# Hundreds of messages are missing, each between two that came.
TORN = """(Settings(members=2, unicast=0, duration=0.5, messages=5000, size=400, loss=0.4,
                    crashes=0, pauses=0, partitions=0, slow=0, exclusions=0, leaves=0, mtu=0,
                    threads=0,
                    options={"capacity": 32_768, "max_bundle_size": 512, "max_bytes": 1 << 23,
                             "form_margin": 20, "xmit_interval": 10}),)"""
# Connections close when they are idle, and open again.
CLOSING = """(Settings(members=3, duration=1.0, unicast=500, messages=20, splits=4, reorder=0.4,
                       duplicate=0.4, delay=20, loss=0, pauses=0, crashes=0, leaves=0, threads=0,
                       options={"conn_expiry_timeout": 30, "conn_close_timeout": 60}),)"""
CROWDED = """(Settings(stack="nakack2-udp", members=26, mtu=1500, loss=0.02, messages=100,
                       size=100, unicast=0, options={"max_datagram": 512}),)"""
WAITING = """(Settings(threads=2, members=2, unicast=0, duration=0.5, loss=0, crashes=0,
                       leaves=2),
              Settings(stack="mcast-tcp", threads=2, members=3, unicast=0, duration=0.5,
                       crashes=0, partitions=0, leaves=2),
              Settings(threads=2, members=3, duration=0.5, unicast=300, messages=20))"""
ABSENT = """(Settings(durable=2, crashes=4),
             Settings(durable=2, crashes=4, slow=3, stack="nakack2-tcp"),
             Settings(durable=1, crashes=2, partitions=3, stack="nakack2-udp"))"""
FORMING = """(Settings(members=3, unicast=0, threads=0, duration=1.0, crashes=2),
             Settings(members=4, unicast=0, threads=0, duration=1.0, crashes=3, loss=0.2,
                      stack="nakack2-udp"),
             Settings(members=5, unicast=0, threads=0, duration=1.0, partitions=3, crashes=0))"""
# Nothing happens to a group that forms, so it may not split.
STARTS = """[Settings(members=members, observers=observers, late=late, duration=0.5, messages=20,
                      unicast=0, threads=0, loss=0, burst=0, duplicate=0, reorder=0, corrupt=0,
                      truncate=0, mtu=0, crashes=0, partitions=0, pauses=0, slow=0, exclusions=0,
                      leaves=0, jumps=0)
             for members, observers, late in ((2, 1, 1), (4, 0, 2))]"""
# Some who are to form a group go with another coordinator.
FEW = """(Settings(members=5, late=3, loss=0.3, duration=0.5, messages=20, unicast=0, threads=0,
                   crashes=0, pauses=0, partitions=0, exclusions=0, leaves=0,
                   options={"min_members": 3, "form_margin": 20}),)"""
LOSS = "tests/sim/test_loss.py::"
CHANGE = "tests/protocols/membership/test_change.py::"
MEMBERSHIP = "tests/protocols/membership/test_membership.py::"
ALIVE_TOGETHER = "test_the_members_of_a_large_view_say_alive_when_the_coordinator_does"
ALIVE_FORGED = "test_who_forges_a_member_makes_nobody_say_alive_much_more_often"
DURABLE = "tests/sim/test_durable.py::"
BEFORE_A_GAP = "test_what_came_before_a_gap_and_behind_it_is_fetched_from_who_has_it"
STATES = "tests/sim/test_state_transfer.py::"
INSIDE = STATES + "test_a_state_and_the_rest_of_a_message_larger_than_a_window_fit"
FIT = STATES + "test_a_begin_and_the_rest_are_a_message_if_they_fit"
FRAG = "tests/protocols/test_frag.py::"
EXCUSES = DURABLE + "test_a_stream_that_was_given_up_excuses_no_other_one[mcast-udp]"
PRIMARY = "tests/protocols/membership/test_primary.py::"
MODEL = "tests/protocols/membership/test_primary_model.py::"
THREATS = "tests/security/test_threats.py::"
SEAL = "tests/security/test_seal.py::"
WIRE = "tests/core/test_wire.py::"
SECRET = "tests/security/test_secret.py::"
KEYS = "tests/security/test_view_keys.py::"
TRUST = "tests/security/test_trust.py::"
CHANNEL = "tests/security/test_trusting_channel.py::"
FOLDER = "tests/security/test_trust_folder.py::"
FUZZ = "tests/fuzz/test_corpus.py::"
FLOOD = "tests/fuzz/test_flooding.py::test_a_flood_finds_no_memory_without_a_bound"
FORMER = "tests/security/test_former.py::"
HANDSHAKE = "tests/transport/test_tcp_handshake.py::"
TCP = "tests/transport/test_tcp.py::"
LOGS = "tests/test_logs.py::"
FORGED = "tests/protocols/test_forged.py::"
FLUSH = "tests/protocols/multicast/test_flush.py::"
GAPS = "tests/protocols/test_retransmission.py::"
MCAST = "tests/protocols/multicast/test_mcast.py::"
NAKACK2 = "tests/protocols/multicast/test_nakack2.py::"
HOSTILE = "tests/protocols/membership/test_hostile.py::"
REFUSES = HOSTILE + "test_who_refuses_each_view_keeps_nobody_else_from_one"
QUEUE = "tests/protocols/multicast/test_become_server_queue.py::"
STABLE = "tests/protocols/multicast/test_stable.py::"
CREDITS = "tests/protocols/multicast/test_credits.py::"
UNICAST = "tests/protocols/test_unicast3.py::"
WAIT = "tests/protocols/test_waiting.py::"
BUNDLER = "tests/protocols/test_bundler.py::"
OBSERVERS = "tests/sim/test_observers.py::"
KEPT_SEED = ("tests/sim/test_seeds.py::test_what_failed_once_with_these_"
             "settings_stays_mended[settings")
FUZZED = FUZZ + "test_a_bug_that_was_found_once_stays_repaired"
SKIPPED_IN_VOID = KEPT_SEED + "43-1402811]"
RESTED = FLUSH + "test_a_joiner_gets_a_large_message_whose_sender_rested_in_its_middle"
AGAIN = FLUSH + "test_a_sender_that_departs_three_times_is_heard_to_the_end_each_time[mcast-udp]"
OOB_AGAIN = "tests/sim/test_durable.py::test_an_oob_message_"
QUARTER = FLUSH + "test_the_begin_of_a_large_message_fills_no_more_than_a_quarter_of_the_window"
PLAYS = "tests/transcripts/test_transcripts.py::test_the_transcript_holds"

PARTED = """(Settings(members=4, messages=40, unicast=0, large=0, crashes=2,
                      partitions=8, leaves=0, exclusions=0, pauses=0, jumps=0, slow=0, duration=3,
                      loss=0, options={"partition": "primary", "min_members": 3}),
             Settings(members=5, messages=20, unicast=0, large=0, crashes=8,
                      partitions=3, leaves=0, exclusions=0, pauses=0, jumps=0, slow=0, duration=3,
                      loss=0.1, reorder=0, duplicate=0, delay=1,
                      options={"partition": "primary", "min_members": 3}))"""


@dataclass(frozen=True)
class Mutation:
    name: str
    function: str                       # its qualified name; no other one of ringcast has it
    old: str
    new: str
    draws: str = TO_ALL
    test: str = ""                      # catches it in place of the simulator, if that is quick
    more: tuple[tuple[str, str], ...] = ()      # pairs of what is replaced, and by what
    first: int = 0                      # the first seed, if those before have not caught it


FORMS = "test_who_seeks_under_ever_more_numbers_keeps_nobody_from_forming_a_group"
UNREAD = "test_who_is_behind_with_reading_gives_nobody_up_but_not_for_ever"
MUTATIONS = [
    # ------------------------------------------------------------------------------------ observers
    Mutation("wait for the acks of an observer", "Mcast.track",
             "member in self.observers", "False",
             test=OBSERVERS + "test_a_group_goes_on_while_the_application_of_an_observer_stands_"
                              "still"),
    Mutation("wait for the votes of an observer", "Stable._receiving",
             "if member not in self.observers and (", "if (",
             test=OBSERVERS + "test_a_group_goes_on_while_the_application_of_an_observer_stands_"
                              "still"),
    Mutation("wait for an observer after an ack of it", "Mcast._on_ack",
             "member in self.observers", "False",
             test=OBSERVERS + "test_an_ack_of_an_observer_makes_nobody_wait_for_it"),
    Mutation("believe the first LOW", "Observing.follow",
             "earlier(low, window.said_low)", "low",
             test=OBSERVERS + "test_one_low_that_is_false_makes_nothing_skipped"),
    Mutation("skip although messages come", "Observing.scan",
             "window.standing.scans >= PATIENCE", "True",
             test=OBSERVERS + "test_nothing_is_skipped_that_low_has_only_overtaken"),
    Mutation("drop what came behind LOW", "Observing._go_on", "if rest:", "if False:",
             test=OBSERVERS + "test_what_came_behind_low_is_kept_and_not_asked_for_again"),
    Mutation("tell of each skip at once", "Observing.tell",
             "not due or self.num_unfinished", "not due",
             test=OBSERVERS + "test_an_application_is_told_once_of_skips_that_follow_each_other"),
    Mutation("tell nothing of the rest of a large message", "Observing.tell_rests",
             "while stream.rests:", "while False:",
             test=OBSERVERS + "test_of_a_large_message_whose_begin_it_missed_it_is_told_to_"
                              "the_end"),
    Mutation("show a view before what was skipped", "Flush.show_next",
             "if self.layer.observing is not None and not (", "if False and not (",
             test=OBSERVERS + "test_a_view_comes_behind_what_was_skipped_before_it"),
    Mutation("forget the cuts of a stream that goes on in a new window", "Flush.replace",
             "if table is not None and old in table:", "if False:",
             test=OBSERVERS + "test_a_view_comes_behind_what_was_skipped_before_it"),
    Mutation("keep the places of streams that were forgotten", "Flush.install",
             "if stream in there}", "}", test=FUZZED + "[nakack2-udp-747dad0000000000]"),
    Mutation("tell what was skipped in a view that is void", "Flush._cuts_without",
             "if self.layer.observing is not None:", "if False:", test=SKIPPED_IN_VOID),
    Mutation("a stream goes on where it stood once something was skipped", "Observing.skip",
             "stream.is_resumed, stream.rests = old.is_resumed, []",
             "stream.is_resumed, stream.rests = True, []", test=SKIPPED_IN_VOID),
    Mutation("tell what is skipped later of a view that is void", "Observing.skip",
             "if (begin := layer.flushing.skips.get(stream)) is not None:", "if False:",
             test=OBSERVERS + "test_what_was_skipped_in_a_view_that_is_not_shown_is_not_told"),
    Mutation("wait for what is gone with a dead sender", "Flush.settle",
             "self.layer.observing.skip(gone, gone.cut)", "pass",
             test=OBSERVERS + "test_what_is_gone_with_a_dead_sender_is_told_before_the_view_"
                              "without_it"),
    Mutation("where an observer stands its streams end", "Flush._agree_on_departed",
             "if self.layer.observing is None:", "if True:",
             test=OBSERVERS + "test_what_the_others_have_settled_is_told_though_only_the_observer_"
                              "reports_it[mcast-udp]"),
    Mutation("what only observers report is what the others have", "Change.decide",
             "over = sender not in lacking and all(", "over = False and all(",
             test=OBSERVERS + "test_what_the_others_have_settled_is_told_though_only_the_observer_"
                              "reports_it[mcast-udp]"),
    Mutation("what only observers report is over though somebody lacks it", "Change.decide",
             "over = sender not in lacking and", "over =",
             test=CHANGE + "test_what_only_an_observer_reports_is_over_unless_somebody_lacks_it"),
    Mutation("say nothing of what is lacking", "Flush.lacking",
             "if self.layer.observing is not None:", "if True:",
             test=FLUSH + "test_a_stream_ends_alike_for_all_who_came_if_who_was_there_before_them_"
                          "dies"),
    Mutation("lack what was given", "Flush.lacking", "and not gone.is_complete", "",
             test=FLUSH + "test_a_stream_ends_alike_for_all_who_came_if_who_was_there_before_them_"
                          "dies"),
    Mutation("what an observer lacks ends a stream for all", "Flush.lacking",
             "if self.layer.observing is not None:", "if False:",
             test=FLUSH + "test_what_an_observer_that_came_lacks_ends_no_stream"),
    Mutation("do not look at what is lacking", "Change.decide",
             "for sender in sorted(lacking - streams - members):", "for sender in ():",
             test=CHANGE + "test_a_stream_that_nobody_reports_and_somebody_lacks_ends_where_it_"
                           "begins"),
    Mutation("a stream ends where it begins for who came last", "Change._begin",
             "precedes(seqno, begin)", "precedes(begin, seqno)",
             test=CHANGE + "test_a_stream_that_nobody_reports_and_somebody_lacks_ends_where_it_"
                           "begins"),
    Mutation("a stream ends before it begins", "Flush._agree_on_departed",
             "agreed.end(gone)", "agreed.cuts[origin]",
             test=FLUSH + "test_who_came_later_ends_where_it_begins_though_the_others_end_before"),
    Mutation("what an observer lacks is lost for a slow application", "Flush._agree_on_departed",
             "if origin in agreed.over and", "if False and",
             test=FLUSH + "test_what_an_observer_lacks_is_not_lost_for_a_slow_application"),
    Mutation("what an observer alone has is lost", "Flush._agree_on_departed",
             "origin in agreed.over and origin not in self.layer.members", "origin in agreed.over",
             test=FLUSH + "test_what_an_observer_alone_has_of_a_sender_that_died_comes_to_the_"
                          "others"),
    Mutation("repeat the end of a stream for no observer", "Announcing.owes_observers",
             "bool(layer.observers) and", "False and",
             test=OBSERVERS + "test_a_lost_end_that_is_gone_is_told_though_nothing_follows"),
    Mutation("say nothing to who asks for what is gone", "Multicast._on_xmit_req",
             "member in self.observers and", "False and",
             test=OBSERVERS + "test_a_request_for_what_is_gone_is_answered_with_one_word_on_low"),
    Mutation("ask no sender that rests for more", "Observing.ask_resting",
             "if is_resting and", "if False and",
             test=OBSERVERS + "test_a_lost_end_is_told_though_the_link_was_down_until_its_sender_"
                              "said_no_more"),
    Mutation("ask for what a slow observer does not take", "GapLooks.ask",
             "layer.observing is not None and", "False and",
             test=OBSERVERS + "test_an_observer_with_a_slow_application_asks_for_nothing"),
    Mutation("have repeated what a slow observer had no room for", "Nakack2.take",
             "not is_taken and self.observing is None", "not is_taken",
             test=OBSERVERS + "test_an_observer_over_a_connection_has_nothing_repeated_that_found_"
                              "no_room"),
    Mutation("let an observer stand at a gap that is stable", "Stable._is_unsettled",
             "known.get(sender) != window.come_up_to", "known.get(sender) != window.ring.hr",
             test=OBSERVERS + "test_behind_what_found_no_room_an_observer_goes_on_though_nothing_"
                              "follows"),
    Mutation("an observer that coordinates hears itself once", "Stable._conclude",
             "self.nakack.observing is not None", "False",
             test=OBSERVERS + "test_so_does_one_that_coordinates_others"),
    Mutation("keep what was stable before the observer had it", "Nakack2.report_finished",
             "follow_low(stream, window.gone)", "pass",
             test=OBSERVERS + "test_an_observer_that_is_fast_is_given_everything"),
    Mutation("let an observer tell the end of a stream", "Ends._end",
             "if self.multicast.observing is not None:", "if False:",
             test=OBSERVERS + "test_an_observer_does_not_tell_where_a_stream_ended_for_it"),
    Mutation("an observer keeps its place in the view", "Change._by_age",
             "sorted(seats, key=lambda seat: seat.observes)", "seats",
             test=OBSERVERS + "test_a_view_lists_its_observers_last_and_one_never_leads"),
    Mutation("an observer holds what others have, too", "Change.come_from",
             "sorted(members, key=self.observers.__contains__)", "members",
             test=CHANGE + "test_an_observer_holds_only_what_nobody_else_has"),
    Mutation("an observer counts for a majority", "voters_of", "if not seat.observes", "",
             test=OBSERVERS + "test_a_majority_is_one_of_those_who_do_not_observe"),
    Mutation("an observer counts where all wait for the state", "StateTransfer.install",
             "self.membership.num_counted()", "len(install.seats)",
             test="tests/sim/test_state_transfer.py::"
                  "test_an_observer_is_none_of_the_members_that_min_members_asks_for"),
    Mutation("an observer forms a group", "Discovery.may_form",
             "if not self.observes:", "if True:", STARTS, first=35),
    Mutation("a first view has less than min_members", "Discovery.is_enough",
             ">= self.min_members", ">= 1", FEW),
    Mutation("form a group at once", "Discovery.is_calm_at",
             "heard_at(unread_at, self.began)) + self.margin", "heard_at(unread_at, self.began))",
             STARTS),
    Mutation("observers let somebody in who then leads", "Coordinator._wanted",
             "layer.observes and not seat.observes", "False",
             test=OBSERVERS + "test_observers_that_are_left_alone_are_taken_into_the_group_of_who_"
                              "comes"),
    Mutation("wait as long for an observer as for others", "Coordinator._is_stuck",
             "timeout = JOINING", "pass",
             test=OBSERVERS + "test_a_view_does_not_wait_long_for_an_observer_whose_process_stands_"
                              "still"),
    Mutation("wait for an observer until a view is settled", "Settling.take",
             "change.members - change.observers", "change.members",
             test=OBSERVERS + "test_a_view_is_settled_without_the_word_of_an_observer"),
    # ------------------------------------------------------------------------------- retransmission
    Mutation("believe no transport that tells its send budget", "Budget.__init__",
             "= total, sending", "= total, NO_LIMIT",
             test=LOSS + "test_who_knows_its_send_budget_drops_nothing_at_home[1000-mcast-udp]"),
    Mutation("large messages that are kept leave room for no other one", "Multicast.__init__",
             "max(room * config.max_bytes, config.max_datagram)", "room * config.max_bytes",
             test=LOSS + "test_messages_larger_than_the_window_wait_for_no_timer[mcast-udp]"),
    Mutation("tell LOW however many bytes are kept", "Mcast._owes_much",
             "KEPT_LOWS * self.announcing.freed > ring.max_bytes", "False",
             test=LOSS + "test_messages_larger_than_the_window_wait_for_no_timer[mcast-udp]"),
    Mutation("never ask for what is missing", "GapLooks.ask",
             "in requests(missing, layer.config.max_datagram):", "in ():"),
    Mutation("never ask again", "Gaps.scan",
             "if is_old_enough or is_passed_over:", "if is_old_enough and not ask.times:"),
    Mutation("what was announced is missing although it comes", "Tail.is_over",
             "self.stood + 1 if self.seen == ring.hr else 0", "self.stood + 1",
             test=GAPS + "test_announced_messages_are_not_missing_as_long_as_they_come"),
    Mutation("what was announced is missing although it may wait in the socket", "Tail.is_over",
             "(1 if was_emptied else MAX_PATIENCE * gaps.looks)", "1",
             test=GAPS + "test_announced_messages_may_wait_in_a_socket_that_was_not_empty_since"),
    Mutation("ask before the allowance", "Gaps.scan",
             "age >= (patience if ask.times else self.allowance)",
             "age >= (patience if ask.times else 0)",
             test=GAPS + "test_where_messages_come_late_a_gap_is_asked_for_later"),
    Mutation("ask again only when the time is over", "Gaps.scan",
             "ask.at + self.allowance <= self.answered or (", "False or (",
             test=GAPS + "test_what_was_asked_for_before_what_has_come_was_lost"),
    Mutation("double the wait each time", "Patience.fail",
             "self.scans >= self.looks or self.num_failed % 2 == 0", "True",
             test=GAPS + "test_within_an_interval_the_wait_doubles_only_every_second_time"),
    Mutation("wait as long when nothing else comes", "Gaps._patience",
             "patience = min(patience, self.patience.short)", "pass",
             test=GAPS + "test_when_nothing_else_comes_a_repeat_is_waited_for_less_long"),
    Mutation("look for gaps on xmit_interval", "GapLooks.look",
             "layer.pause * steps // layer.looks", "layer.pause",
             test=MCAST + "test_a_gap_is_mended_long_before_the_next_scan"),
    Mutation("never fill the bucket of repeats", "Pace._fill",
             "self.budget = max(self.budget, 0) + min(passed, SHARES) * share", "pass",
             test=GAPS + "test_while_nothing_is_acknowledged_an_interval_repeats_a_part_of_the_"
                         "window"),
    Mutation("fill the bucket once however much time has passed", "Pace._fill",
             "min(passed, SHARES) * share", "share",
             test=GAPS + "test_while_nobody_asks_the_bucket_fills"),
    Mutation("repeat nothing twice", "Pace.pack",
             "self.noted, self.repeated = now, None", "self.noted = now",
             test=GAPS
             + "test_nothing_is_repeated_twice_to_the_same_in_a_sixth_of_an_interval"),
    Mutation("what several miss goes once only if they ask at once", "Requests.take",
             "self._note(member, wanted)", "pass",
             test=GAPS + "test_what_is_asked_for_twice_goes_to_everybody_and_the_rest_to_who_asks"),
    Mutation("what went to everybody goes again", "Requests.take",
             "self._note(EVERYONE, together)", "pass",
             test=GAPS
             + "test_what_went_to_everybody_is_on_its_way_to_who_asks_for_the_first_time"),
    Mutation("what went to everybody was lost for nobody", "Requests.take",
             "without(told, mine, low)", "told",
             test=GAPS + "test_who_asks_again_is_always_answered_and_nothing_else_is_sent"),
    Mutation("once shared, always shared", "Requests.take",
             "self.num_new += count(without(united(new, low), before, low))", "pass",
             test=GAPS + "test_where_most_is_missed_by_several_everything_goes_to_everybody"),
    Mutation("what was asked for is not forgotten", "Requests._forget_old",
             "self.lately if passed < 2 * interval else {}", "self.lately",
             test=GAPS + "test_what_was_asked_for_long_ago_is_forgotten"),
    Mutation("one that asks for much is remembered without bound", "Requests._note",
             "ranges[:max(0, room)]", "ranges",
             test=GAPS + "test_a_member_that_asks_for_much_is_not_remembered_without_bound"),
    Mutation("repeat what a member has acknowledged", "Mcast.has_up_to",
             "self.send_window.ring.low if acked is None else acked", "self.send_window.ring.low",
             test=FORGED + "test_what_a_member_has_acknowledged_is_not_repeated_to_it"),
    Mutation("a new member may have what was never sent", "Keeping.start",
             "earlier(agreed.cuts[self.layer.local.incarnation], self.layer.send_window.sent)",
             "agreed.cuts[self.layer.local.incarnation]",
             test=FORGED + "test_a_new_member_has_no_more_than_was_sent_whatever_another_reports"),
    Mutation("the end of a request may be before its begin", "between",
             "most = ahead(low, last)", "most = (last - low) % MODULUS",
             test=GAPS + "test_what_is_clipped_is_never_more_than_there_is"),
    Mutation("repeat all that is asked for", "Pace.pack",
             "self.budget -= sum(map(len, datagrams))", "self.repeated = repeated = {}",
             test=MCAST + "test_decision_24_repeats_are_limited_to_one_window_per_interval"),
    Mutation("ask at each look for what was announced", "Gaps.scan",
             "age >= (patience if ask.times else self.allowance)", "True",
             test=MCAST + "test_decision_24_a_forged_highest_is_clipped_to_the_window"),
    # --------------------------------------------------------------------------------------- frames
    Mutation("control datagrams are not cut", "Parts.send",
             "if len(packet.data) > self.datagram:", "if False:", CROWDED),
    Mutation("never answer a request", "Multicast.received",
             "self._repeat(dest, wanted, now)", "pass"),
    Mutation("answer only the first range", "clipped",
             "(each for each in ranges if not precedes(each[1], each[0]))",
             "((each[0], each[0]) for each in ranges[:1])", TORN),
    Mutation("ask only for gaps, not for a lost tail (no HIGHEST)",
             "Announcing.announce",
             "layer.has_unacked() or layer.owes_low() or self.owes_observers()):", "False):"),
    Mutation("announce the highest seqno once", "Announcing.announce",
             "layer.view_id)) and (", "layer.view_id)) and not self.backoff.scans and (",
             test=LOSS + "test_a_lost_tail_is_announced_until_the_announcement_arrives"),
    Mutation("do not wake up while something was announced", "Multicast.is_busy",
             "or bool(self.gap_looks.tails) or", "or",
             test=FLUSH + "test_a_view_brings_a_lost_tail_to_light[mcast-udp]"),
    Mutation("with NAKACK2, do not wake up while something was announced", "Nakack2.is_busy",
             "self.gap_looks.tails or", "",
             test=OBSERVERS + "test_what_the_others_have_settled_is_told_though_only_the_observer_"
                              "reports_it[nakack2-udp]"),
    # ----------------------------------------------------------------------------------------- acks
    Mutation("ack before the application has finished", "Mcast._report",
             "incarnation, window.stream.finished", "incarnation, window.stream.ring.hd"),
    Mutation("ack what was received", "Mcast._report",
             "incarnation, window.stream.finished", "incarnation, window.stream.ring.hr"),
    Mutation("an ack tells one sender only", "Mcast._acknowledge",
             "self._report(window, now) for window in due)",
             "self._report(window, now) for window in due[:1])",
             test=MCAST + "test_one_ack_tells_all_senders_if_that_is_less_work_than_one_for_each"
                          "[ABCDEFGHIJKL-*]"),
    Mutation("an answer that had to wait is forgotten", "Mcast._acknowledge",
             "if window.report_due or (", "if (",
             test=MCAST + "test_an_answer_in_a_large_group_waits_for_its_turn_and_is_given"),
    Mutation("a question that crosses an ack is answered", "Mcast.may_lack_report",
             "now - window.reported > self.pause // 2", "True",
             test=MCAST + "test_a_message_now_and_then_costs_each_receiver_one_ack_in_an_interval"
                          "[50-6]"),
    Mutation("what was asked for is told by the scan again", "Mcast._acknowledge",
             "and now - window.reported >= self.pause", "",
             test=MCAST + "test_a_message_now_and_then_costs_each_receiver_one_ack_in_an_interval"
                          "[1-100]"),
    Mutation("an ack waits for a question", "Mcast._acknowledge",
             "and now - window.reported >= self.pause", "and False",
             test=MCAST + "test_an_ack_does_not_wait_for_a_question_that_is_lost"),
    Mutation("purge on the first ack", "Mcast.purge",
             "minimum = self.acks.minimum if self.acks else self.send_window.sent",
             "minimum = max(dict(self.acks.items()).values(), default=self.send_window.sent)"),
    Mutation("purge what was sent", "Mcast.purge",
             "minimum = self.acks.minimum if self.acks else self.send_window.sent",
             "minimum = self.send_window.sent"),
    Mutation("do not ack again for the announcement", "Multicast._on_highest",
             "window.report_due |= not precedes(window.stream.finished, highest.seqno)", "pass"),
    Mutation("own messages need no ack", "Mcast.track",
             "self.acks.add(member, self.send_window.ring.low)", "pass"),
    Mutation("believe an ack beyond what was sent", "Multicast.sent_of",
             "or precedes(self.send_window.sent, seqno)", "",
             test=MCAST + "test_decision_24_what_cannot_be_is_counted_and_changes_nothing"),
    Mutation("believe an ack of a stranger", "Multicast.on_control",
             "packet.sender in self.members", "True",
             test=MCAST + "test_decision_12_an_ack_of_a_stranger_is_ignored"),
    Mutation("a publish-only member's ack must say what it has finished", "Mcast._on_ack",
             "if ack.budget == 0:",
             "if ack.budget == 0 and self.local.incarnation in ack.finished:",
             test=LOSS + "test_nobody_waits_for_a_member_that_takes_no_messages"),
    # ------------------------------------------------------------------------------------- blocking
    Mutation("a purge unblocks nobody", "Multicast.free_sent",
             "self.stack.effects.writable = True", "pass"),
    Mutation("an ack never purges", "Mcast._on_ack",
             "if self.acks.ack(member, seqno):", "if False:"),
    # ---------------------------------------------------------------------------------------- views
    Mutation("who left still counts for the minimum", "Mcast.forget",
             "        self.acks.remove(member)\n", ""),
    Mutation("a view does not purge", "Mcast.installed", "        self.purge()\n", ""),
    Mutation("windows of leavers stay", "Flush._depart",
             "window = self.layer.windows.pop(sender, None)",
             "window = self.layer.windows.get(sender)"),
    Mutation("a window begins one too late", "Multicast.open_window",
             "self.open_stream(sender, offset)",
             "self.open_stream(sender, (offset + 1) % (1 << 64))"),
    Mutation("a joiner is not waited for", "Mcast.track",
             "self.acks.add(member, start)", "pass"),
    # ----------------------------------------------------------------------------------- delivering
    Mutation("own messages are not delivered", "Multicast._deliver_in_order",
             "*self.windows.values(), None]", "*self.windows.values()]"),
    Mutation("deliver as long as anything is there, in any order", "Stream.take",
             "        payloads = self.ring.remove_many(limit, nullify=False)",
             "        payloads = self.ring.remove_many(limit, nullify=False)\n"
             "        if not payloads and self.ring.hr != self.ring.hd and self.ring.get((first +"
             " 1) % MODULUS):\n"
             "            payloads = [self.ring.get((first + 1) % MODULUS)]"),
    Mutation("the seqno of a batch is counted from its end", "Stream.take",
             "first = (self.ring.hd + 1) % MODULUS", "first = self.ring.hd"),
    # ----------------------------------------------------------------------- messages to one member
    Mutation("never send the highest message again", "SenderEntry.scan",
             "is_stalled = self.backoff.stalls((self.highest_acked, self.highest_sent))",
             "is_stalled = False", TO_ONE),
    Mutation("never ask a sender for what is missing", "Receivers._request_missing",
             "in requests(entry.gaps.scan(entry.ring), context.config.max_datagram):",
             "in ():", TO_ONE),
    Mutation("acknowledge what was received", "Acks._acknowledge",
             "entry.ring.low", "entry.ring.hr", TO_ONE),
    Mutation("acknowledge what was delivered and not finished", "Acks._acknowledge",
             "entry.ring.low", "entry.ring.hd", TO_ONE),
    Mutation("closed connections are forgotten", "Receivers._find_low",
             "if entry is None and closed is not None and closed.is_open_for(conn_id):",
             "if False:", CLOSING),
    Mutation("what was ready of a connection is delivered when it is used again",
             "Receivers._open_entry", "if entry.has_next:", "if False:",
             test=UNICAST + "test_incarnations_that_come_and_go_do_not_fill_the_memory_of_a_slow_"
             "application"),
    Mutation("the streams of closed connections take too many bytes",
             "ClosedConnections.remember", "> self.max_bytes", "> 1 << 62",
             test=UNICAST + "test_only_so_many_closed_connections_are_remembered"),
    Mutation("an older connection replaces a newer one", "Receivers._is_new",
             "return all(known is None or precedes(known.conn_id, conn_id)",
             "return all(True",
             test=UNICAST + "test_a_late_datagram_of_an_older_connection_opens_nothing"),
    Mutation("SEND_FIRST_SEQNO is not answered", "SenderEntry.answer_sync",
             "self._repeat_as(control.FIRST, [(lowest, lowest)], now)", "pass", TO_ONE, first=10),
    Mutation("a timestamp far ahead is the latest for ever", "SenderEntry.accept_timestamp",
             "0 < len(self.late) < MOST_LATE", "self.late",
             test=FORGED + "test_one_timestamp_far_ahead_stops_no_acks"),
    Mutation("believe an ack of what was never sent", "Senders.take_ack",
             "ack.seqno is not None and precedes(entry.highest_sent, ack.seqno)", "False",
             test=UNICAST + "test_what_makes_no_sense_is_counted_and_changes_nothing"),
    Mutation("close with any conn-id", "Receivers.take_close",
             "entry is None or entry.conn_id != close.conn_id", "entry is None",
             test=UNICAST + "test_a_close_of_another_connection_closes_none"),
    Mutation("any first message begins a window", "Receivers._find_low",
             "packet.kind == control.FIRST and self._is_new(packet.sender, conn_id)",
             "packet.kind == control.FIRST",
             test=UNICAST + "test_a_late_datagram_of_an_older_connection_opens_nothing"),
    Mutation("keep all that comes too early", "EarlyPackets.keep",
             "self.size >= MOST_EARLY_OF_ALL or", "",
             test=UNICAST + "test_what_comes_too_early_is_kept_but_not_without_bound"),
    Mutation("SEND_FIRST_SEQNO is answered whenever it comes", "SenderEntry.answer_sync",
             "self.answered is not None and now < self.answered + self.context.sync_interval",
             "False",
             test=UNICAST + "test_a_sync_is_answered_only_so_often_however_many_come"),
    Mutation("messages of a closed connection are not reported", "Senders.perform_act",
             "        context.effects.failures += failed\n", "",
             test=UNICAST
             + "test_messages_to_one_who_left_fail_within_conn_close_timeout_with_their_payloads"),
    Mutation("a connection with a gap expires", "ReceiverEntry.is_idle",
             "(self.ring.low == self.ring.hr and not stream.outstanding"
             " and not stream.is_incomplete",
             "(True", test=UNICAST + "test_a_connection_with_a_gap_does_not_expire"),
    Mutation("of a stream with gaps only the highest delivered is remembered",
             "Receivers.time_out",
             "stream = entry.stream if entry.is_busy or entry.stream.outstanding else None",
             "stream = None",
             test=UNICAST
             + "test_oob_messages_above_a_gap_are_remembered_when_the_window_goes"),
    Mutation("what a slow application has not finished is acknowledged for one among many",
             "Receivers.time_out", "entry.is_busy or entry.stream.outstanding", "entry.is_busy",
             test=UNICAST
             + "test_what_an_application_has_not_finished_of_one_among_many_is_not_acknowledged"),
    Mutation("what is given up is not acknowledged", "Stream.scan", "self._settle()", "pass",
             test=FRAG + "test_what_is_given_up_is_acknowledged"),
    # --------------------------------------------------------------- NAKACK2 without retransmission
    Mutation("a new connection needs no RESYNC", "Resyncs.linked",
             "        if window is not None:\n"
             "            self.send(member, window, now)\n",
             "", LOSSLESS),
    Mutation("a RESYNC tells the highest received", "Resyncs.send",
             "Resync(window.come_up_to, asks)", "Resync(window.ring.hr, asks)",
             test=PLAYS + "[nakack2-decision-21-in-the-middle-of-a-stream]"),
    Mutation("a RESYNC is not answered", "Nakack2._on_resync",
             "        self.resyncs.want(member, seqno)\n", "", LOSSLESS),
    Mutation("a RESYNC is answered with one message", "Resyncs.answer",
             "ranges = [(first, window.sent)]", "ranges = [(first, first)]", LOSSLESS),
    Mutation("a RESYNC is answered one message too late", "Resyncs.answer",
             "first = ((have if precedes(low, have) else low) + 1) % MODULUS",
             "first = ((have if precedes(low, have) else low) + 2) % MODULUS", LOSSLESS),
    Mutation("where a stream begins, what is on its way is sent again", "Resyncs.begin",
             "asks=True", "asks=False",
             test=PLAYS + "[nakack2-joiner-what-is-on-its-way-is-not-repeated]"),
    Mutation("what a stream lacks that begins is not asked for", "Resyncs.hear",
             "if not self.layer.retransmits and precedes(window.come_up_to, highest):", "if False:",
             test=FLUSH + "test_over_a_lossless_transport_a_joiner_asks_at_once"
             "_for_what_broke_with_a_connection"),
    Mutation("HIGHEST overtakes what came before it", "Nakack2._on_highest",
             "self._take_run(now)", "pass",
             test=NAKACK2 + "test_what_comes_in_one_turn_with_the_announcement_is_not_missing"),
    Mutation("who asks what was sent is not told", "Resyncs.tell",
             "            self.layer.send_control(HIGHEST, highest, member, now)\n", "",
             test=FLUSH + "test_over_a_lossless_transport_a_joiner_asks_at_once"
             "_for_what_broke_with_a_connection"),
    Mutation("who has asked believes each HIGHEST anew", "Resyncs.hear",
             "        self.begun.discard(sender)\n", "",
             test=NAKACK2
             + "test_what_a_stream_lacks_that_has_begun_is_asked_for_at_once_and_once"),
    Mutation("a new member is only sent what is new", "Resyncs.begin",
             "self.tell(member, self.layer.send_window.ring.low, now)", "pass",
             test=FLUSH
             + "test_over_a_lossless_transport_a_sender_repeats_for_a_joiner_which_keeps_that"),
    Mutation("what finds no room is not asked for again", "Nakack2.take",
             "if not is_taken and self.observing is None:", "if False:",
             test=PLAYS + "[nakack2-decision-20-what-has-no-room-comes-again]"),
    Mutation("what finds no room in the ring is not asked for again", "Multicast.take",
             "return not arrivals.beyond", "return True",
             test=PLAYS + "[nakack2-decision-20-what-has-no-room-comes-again]"),
    Mutation("a window takes whatever bytes come", "has_room",
             "if not ring.nbytes or nbytes <= ROOM * limit:", "if True:",
             test=PLAYS + "[nakack2-decision-21-what-comes-next-always-has-room]"),
    Mutation("what comes next in order has no more room than others", "has_room",
             "return (ring.nbytes if is_next else nbytes)", "return nbytes", TIGHT, first=74),
    Mutation("what comes next in order has room whatever is held", "has_room",
             "return (ring.nbytes if is_next else nbytes)", "return is_next or nbytes",
             test=FORGED + "test_a_sender_that_never_says_what_all_have_fills_nobodys_memory"
             "[nakack2-tcp-0]"),
    Mutation("a departed sender's window has room for what one member holds", "Flush._make_room",
             "room = MOST_ROOM * self.layer.config.max_bytes + 2 * MAX_DATAGRAM", "room = 0",
             test=FLUSH
             + "test_what_is_missing_of_a_departed_sender_has_room_beside_what_is_kept[mcast-udp]"),
    Mutation("gaps are looked for without retransmission", "GapLooks.watch",
             "self.next is None and self.layer.retransmits:", "self.next is None:", LOSSLESS),
    Mutation("the last seqno is announced without retransmission", "Nakack2.scan",
             "if self.retransmits:\n self.announcing.announce(",
             "if True:\n            self.announcing.announce(", LOSSLESS),
    # -------------------------------------------------------------------------- become_server_queue
    Mutation("the queue is bounded without retransmission", "Nakack2._queue_bound",
             "return self.config.become_server_queue_size if self.retransmits else UNBOUNDED",
             "return self.config.become_server_queue_size",
             test=NAKACK2 + "test_the_bound_of_the_queue_follows_the_interval"),
    Mutation("the queue is never bounded", "Nakack2._queue_bound",
             "return self.config.become_server_queue_size if self.retransmits else UNBOUNDED",
             "return UNBOUNDED", LOSSY),
    Mutation("the queue keeps its bound when retransmission is switched", "Nakack2.change_interval",
             "        self.queue.rebound(self._queue_bound())\n", "", LOSSLESS),
    Mutation("a joiner does not queue", "Nakack2.keep_early",
             "if not self.receiving:", "if self.lossless:",
             test=PLAYS + "[nakack2-joiner-a-gap-is-noticed-and-mended]"),
    Mutation("the queue is not drained", "Nakack2.begin",
             "for packet in self.queue.take(sender):", "for packet in ():",
             test=PLAYS + "[nakack2-joiner-an-unbounded-queue-keeps-all]"),
    Mutation("the queue is forgotten with a view", "Nakack2.installed",
             "self.queue.retain(set(self.members))", "self.queue.retain(set())",
             test=PLAYS + "[nakack2-joiner-an-unbounded-queue-keeps-all]"),
    Mutation("the queue has no bound in bytes", "BecomeServerQueue._shrink",
             "while self.num_bytes > self.max_bytes:", "while False:",
             test=QUEUE + "test_whatever_comes_the_bytes_are_bounded_and_counted"),
    Mutation("draining the queue drains all of it", "BecomeServerQueue.take",
             "return self._remove({sender})",
             "return [packet for packet in self._remove({packet.sender for packet, _ in"
             " self._entries}) if packet.sender == sender]",
             test=QUEUE + "test_taking_one_leaves_the_others_in_their_order"),
    # --------------------------------------------------------------------------------------- STABLE
    Mutation("vote what was received", "Nakack2.report",
             "{sender: (window.stream.finished, window.ring.hr)",
             "{sender: (window.ring.hr, window.ring.hr)", LOSSY),
    Mutation("vote what was delivered and not finished", "Nakack2.report",
             "{sender: (window.stream.finished, window.ring.hr)",
             "{sender: (window.ring.hd, window.ring.hr)", LOSSLESS),
    Mutation("of its own messages a member votes what it sent", "Nakack2.report",
             "digest = {self.local.incarnation: (self.own.finished, sent)}",
             "digest = {self.local.incarnation: (sent, sent)}", LOSSLESS),
    Mutation("STABILITY goes back when an old vote comes late", "Stable._compare",
             "self._never_less(sender, stable)", "stable",
             test=STABLE
             + "test_what_was_told_to_be_stable_stays_when_an_old_vote_comes_late"),
    Mutation("STABILITY is the maximum", "Stable._compare",
             "slowest = max(lags, key=lags.__getitem__)",
             "slowest = min(lags, key=lags.__getitem__)", LOSSY),
    Mutation("a vote that became impossible still counts", "Stable._count",
             "self._withdraw()", "pass",
             test=STABLE + "test_what_others_said_is_withdrawn_if_a_member_has_sent_less_than_it_"
                           "said"),
    Mutation("a member that has not voted has everything", "Stable._lag",
             "return QUARTER", "return 0", LOSSY),
    Mutation("a member that has not voted is not waited for", "Stable._receiving",
             "member not in self.votes or self.votes[member].receiving)]",
             "member in self.votes and self.votes[member].receiving)]", LOSSLESS),
    Mutation("a report of another view is obeyed", "Stable._on_stability",
             "if report.view_id == self.view_id and sender ==",
             "if sender ==",
             test=STABLE + "test_votes_and_reports_of_another_view_do_nothing"),
    Mutation("a vote is sent once", "Stable._scan",
             "if self.is_asked or (is_due and self._is_unsettled()):", "if self.is_asked:", LOSSY,
             first=7),
    Mutation("only the sender of a message votes again", "Stable._is_unsettled",
             "return nakack.receiving and any(", "return False and any(",
             test=PLAYS + "[stable-rounds-by-time]"),
    Mutation("a publish-only member is waited for", "Stable._vote",
             "Vote(self.view_id, self.nakack.receiving, grant",
             "Vote(self.view_id, True, grant",
             test=PLAYS + "[stable-a-publish-only-coordinator]"),
    Mutation("a publish-only member keeps its own messages", "Nakack2._purge_to",
             "window.ring.remove_many(nullify=False)", "pass",
             test=PLAYS + "[stable-a-publish-only-member-is-not-waited-for]"),
    Mutation("a publish-only member never finishes its own messages", "Nakack2.flush",
             "            self.own.finished = later(self.own.finished, self.send_window.sent)\n"
             "            self.report_finished(None, now)",
             "            pass",
             test=PLAYS + "[stable-a-publish-only-member-is-not-waited-for]"),
    Mutation("a receiver frees what is not stable", "Nakack2.report_finished",
             "window is None or self.keeps_delivered(stream.sender.incarnation)", "window is None",
             LOSSY),
    Mutation("a receiver keeps what is stable", "Nakack2.stable",
             "window.stream.release(seqno)", "pass",
             test=PLAYS + "[stable-keep-delivered-msgs]"),
    Mutation("STABILITY does not purge", "Nakack2.stable", "self._purge_to(seqno)", "pass", LOSSY),
    Mutation("a purge wakes up nobody", "Multicast.free_sent",
             "self.stack.effects.writable = True", "pass", LOSSLESS),
    Mutation("one that begins uses all that it was granted", "Credits.fit_window",
             "self.smallest if self.is_acked else self.first_part(self.smallest)", "self.smallest",
             test="tests/sim/test_member.py::test_all_may_begin_to_send_at_one_moment"),
    Mutation("only a whole message counts as acknowledged", "Credits.use",
             "self.is_acked |= parts > 0", "pass",
             test="tests/protocols/multicast/test_credits.py::"
             + "test_a_part_that_all_have_lets_more_follow_than_a_first_window"),
    Mutation("a receiver of a first window waits for a quarter of a whole one",
             "Nakack2.report_finished", "self.credits.used(window, self.credits.smallest)",
             "self.credits.smallest",
             test="tests/protocols/multicast/test_credits.py::"
             + "test_a_first_window_is_acknowledged_when_a_quarter_of_it_is_here"),
    Mutation("a receiver takes every window for a first one", "ReceiveWindow.note_report",
             "stream.finished == stream.offset and stream.parts == 0", "True",
             test="tests/protocols/multicast/test_credits.py::"
             + "test_who_was_acknowledged_hears_of_a_quarter_of_its_window"),
    Mutation("how much is here of a large message is said once", "Multicast._on_highest",
             "window.stream.parts > 0", "False",
             test="tests/protocols/multicast/test_credits.py::"
             + "test_what_says_how_much_is_here_may_be_lost"),
    Mutation("what is kept counts as on its way", "set_window_limit", " + window.kept", "",
             test="tests/sim/test_durable.py::"
             + "test_senders_use_a_whole_window_while_somebody_is_absent"),
    Mutation("what got through lets nothing more be repeated before it is acknowledged",
             "Pace.note_first", "self.came += ahead(", "self.came += 0 * ahead(",
             test="tests/sim/test_durable.py::"
             + "test_senders_use_a_whole_window_while_somebody_is_absent[mcast-udp]"),
    Mutation("a window is larger than its own socket buffer", "Credits.fit_window",
             "layer.budget.sending", "self.smallest",
             test="tests/protocols/multicast/test_mcast.py::"
             + "test_a_member_has_no_more_on_its_way_than_its_own_socket_buffer_holds"),
    Mutation("so is one to a single member", "SenderEntry.accept_credit",
             "context.most_unacked", "context.config.max_bytes",
             test="tests/protocols/multicast/test_mcast.py::"
             + "test_a_member_has_no_more_on_its_way_than_its_own_socket_buffer_holds"),
    Mutation("the first ack is due when all of the credit is used", "Credits.used",
             "self.first_part(credit) if window.is_new else credit", "credit",
             test="tests/sim/test_member.py::test_in_a_large_group_the_first_ack_waits_only_if_"
             + "the_first_window_is_not_full"),
    Mutation("who was acknowledged goes on with a small window", "Multicast.free_sent",
             "self.credits.fit_window()", "pass",
             test="tests/sim/test_member.py::"
             + "test_one_that_was_acknowledged_may_use_all_that_it_was_granted"),
    # --------------------------------------------------------------- messages that wait for company
    Mutation("what was not framed counts as acknowledged", "Multicast.free_sent",
             "earlier(self.flushing.bound_purge(seqno), window.sent)",
             "self.flushing.bound_purge(seqno)",
             test=WAIT
             + "test_what_its_sender_had_finished_before_is_given_up_once_all_have_it"),
    Mutation("an ack from before a member was back counts", "Mcast._on_ack",
             "0 < ack.view_id < self.met.get(member, 0)", "False",
             test="tests/sim/test_durable.py::"
             + "test_an_ack_that_is_from_before_a_durable_member_was_back_says_nothing"),
    Mutation("acks of all views are from before", "Mcast.track",
             "self.met[member] = self.view_id", "self.met[member] = self.view_id + 1",
             test="tests/sim/test_durable.py::"
             + "test_a_durable_member_that_is_cut_off_loses_nothing[mcast-udp]"),
    # ------------------------------------------------------------------ large messages in part
    Mutation("nobody says how much is here of a large message", "Stream.parts",
             "0 if begun is None else begun.nbytes + HEAD.size * len(begun.parts)", "0",
             test=CREDITS + "test_a_message_of_many_credits_does_not_stall"),
    Mutation("nobody says how much has come behind a gap", "Stream.parts",
             "whole + self._behind_gap()", "whole",
             test=CREDITS + "test_what_has_come_behind_a_gap_is_told"),
    Mutation("what waits for a slow application counts as behind a gap", "Stream._behind_gap",
             "ring.get((ring.hd + 1) % MODULUS) is not None", "False",
             test=CREDITS + "test_what_waits_for_a_slow_application_leaves_no_room_for_more"),
    Mutation("what is freed soon counts as behind a gap", "Stream._behind_gap",
             "estimate_bytes(ring, (ring.hr - ring.hd) % MODULUS - missing, missing)",
             "ring.nbytes",
             test=CREDITS + "test_what_is_not_freed_is_not_behind_a_gap"),
    Mutation("who misses nothing has no more than others have acknowledged", "Mcast._fit_budgets",
             "parts + self._acked_bytes(member)", "parts",
             test=CREDITS + "test_what_has_come_behind_a_gap_leaves_room_for_more"),
    Mutation("an ack alone makes no room while others have a gap", "Mcast._on_ack",
             "is_new or self.are_parts", "is_new",
             test=CREDITS + "test_who_misses_nothing_makes_room_with_an_ack_alone"),
    Mutation("who waits for room does not hear of a larger credit", "Credits.fit_window",
             "layer.stack.effects.writable |=", "_ =",
             test=CREDITS + "test_who_waits_for_room_hears_of_a_larger_credit"),
    Mutation("a late report says what is here of a large message", "latest_parts",
             "if seqno == known else None", "",
             test=CREDITS + "test_a_late_ack_says_nothing_of_a_large_message"),
    Mutation("a report that was overtaken takes parts back", "latest_parts",
             "max(parts, known_parts)", "parts",
             test=CREDITS + "test_a_late_ack_says_nothing_of_a_large_message"),
    Mutation("an ACK says what is here without regard to others", "Mcast._note_budget",
             "latest_parts(seqno, parts, self.acks.get(member), budget[1] if budget else 0)",
             "parts", test=CREDITS + "test_a_late_ack_says_nothing_of_a_large_message"),
    Mutation("a STABILITY says what is here without regard to others", "Stable._apply",
             "latest_parts(seqno, parts, known, self.nakack.credits.parts)", "parts",
             test=CREDITS + "test_a_late_stability_says_nothing_of_a_large_message"),
    Mutation("what has come behind a gap takes room of the window", "set_window_limit",
             "min(credit + window.kept, config.max_bytes) + window.arrived",
             "min(credit + window.kept + window.arrived, config.max_bytes)",
             test=CREDITS + "test_what_has_come_behind_a_gap_leaves_room_beyond_a_whole_window"),
    Mutation("what somebody says that it has makes a window large", "set_window_limit",
             "min(parts, config.max_bytes // 2)", "parts",
             test=CREDITS + "test_nobody_makes_the_window_grow_by_saying_how_much_it_has"),
    Mutation("free the begin of a large message", "Multicast.free_sent",
             "seqno = self.own.acknowledgeable(seqno)", "pass", test=RESTED),
    Mutation("the begin of a large message may fill the window", "Stream.acknowledgeable",
             "not goes_whole(HEAD.unpack_from(fragment)[2], len(fragment),\n"
             "                                              self.config)", "False", test=QUARTER),
    Mutation("what is kept for absent members counts as on its way", "Multicast.free_sent",
             "window.acked = earlier(seqno, window.sent)", "pass",
             test="tests/sim/test_durable.py::"
             + "test_who_is_there_gets_a_large_message_that_is_kept_for_one_that_is_absent"),
    Mutation("a large message may fill the window with bytes", "goes_whole",
             "SHARES * count * size <= config.max_bytes", "True", test=QUARTER),
    Mutation("a large message may fill the window with fragments", "goes_whole",
             "SHARES * count <= config.capacity", "True", test=QUARTER),
    Mutation("what others had no room for is not sent when they have", "Endpoint.take",
             "            self.multicast.flush(now)\n", "            pass\n",
             test=CREDITS + "test_a_message_of_many_credits_does_not_stall"),
    Mutation("what others had no room for is behind the cut", "Flush.prepare",
             "own.arrived = NO_LIMIT", "pass",
             test=FLUSH + "test_the_cut_is_behind_what_we_were_given_though_others_had_no_room"),
    Mutation("what others had no room for is not sent to a single member", "Senders.take_ack",
             "            self.flush(entry.dest, now, full_only=False)\n", "            pass\n",
             test=CREDITS + "test_a_message_of_many_credits_does_not_stall"),
    Mutation("who has waited for credits is counted at the next interval", "Nakack2.flush",
             "was_held and not waits", "False",
             test=CREDITS + "test_a_message_of_many_credits_does_not_stall"),
    Mutation("what nobody need acknowledge goes on only when something else happens",
             "Endpoint.take", "window.can_go_on and window.sent != sent", "False",
             test=CREDITS + "test_where_nobody_else_takes_messages_a_turn_follows_each_part"),
    Mutation("what was sent after it was finished is counted at the next interval",
             "Nakack2.flush", "was_held and not waits",
             "was_held and not self.send_window.is_held",
             test=CREDITS + "test_where_nobody_else_takes_messages_no_part_waits_for_a_timer"),
    Mutation("fragments go in as they find room", "Fragments.push",
             "frag.goes_whole(len(self.pieces), len(self.pieces[0]), self.config)", "False",
             test=FRAG + "test_a_message_goes_in_whole_if_it_is_a_quarter_of_the_window"),
    Mutation("a message of which nothing was sent goes by frag_timeout", "Sending._send_large",
             "timeout if not fragments.sent else (", "(",
             test="tests/test_channel.py::"
             + "test_a_large_message_of_which_nothing_was_sent_waits_for_room_as_long_as_it_may"),
    Mutation("what had no memory goes in again as a whole", "Fragments.push",
             "not self.sent and ", "",
             test=FRAG + "test_what_finds_no_memory_goes_in_behind_what_did"),
    Mutation("the begin of a large message counts as unacknowledged", "Multicast.has_unacked",
             "self.acked", "self.send_window.ring.low", test=RESTED + "[A-mcast-udp]"),
    Mutation("a new member has what all had acknowledged", "Multicast.view",
             "self.acked = self.send_window.acked = self.send_window.ring.low", "pass",
             test=RESTED + "[A-mcast-udp]"),
    Mutation("what its sender had finished before it was framed is not freed then",
             "Multicast.flush",
             "self.purge()", "pass", WAITING),
    Mutation("what its sender had finished before it was framed is not voted then", "Nakack2.flush",
             "precedes(sent, self.own.finished)", "False",
             test=WAIT + "test_what_its_sender_had_finished_before_is_given_up_once_all_have_it"),
    Mutation("what was pushed while a thread framed is forgotten", "Bundler.flush",
             "            self.due.pop(dest, None)\n"
             "        self.frame(dest, now, full_only)",
             "            pass\n"
             "        self.frame(dest, now, full_only)\n"
             "        if not full_only:\n"
             "            self.due.pop(dest, None)",
             test=BUNDLER + "test_what_is_pushed_as_soon_as_the_window_is_framed_is_not_forgotten"),
    # -------------------------------------------------------------------------------- view changes
    Mutation("the cut is the lowest of all reports", "Change._cut",
             "if precedes(cut, seqno):", "if precedes(seqno, cut):", FORMING),
    Mutation("nothing is fetched from holders", "Fetching.ask",
             "if not self.is_needed():", "if True:",
             test=FLUSH + "test_what_is_missing_of_a_crashed_sender_comes_from_its_holder"),
    Mutation("over a connection what is late is fetched again", "Fetching._gaps_of",
             "if is_known and not stalls", "if False",
             test=FLUSH + "test_what_comes_late_over_a_connection_is_fetched_once"),
    Mutation("over a connection a fetch that is lost is not repeated", "Fetching._gaps_of",
             "if is_known and not stalls", "if is_known",
             test=FLUSH + "test_a_fetch_that_is_lost_is_sent_again"),
    Mutation("over a connection the next holder must wait", "Fetching._gaps_of",
             "if is_known and not stalls", "if not stalls",
             test=FLUSH + "test_over_a_connection_the_next_holder_is_asked_at_once"),
    Mutation("a successor does not finish what the one before began", "Change.unfinished",
             "return install", "break",
             test=CHANGE + "test_what_a_coordinator_that_died_has_begun_is_finished_first"),
    Mutation("a member answers a lower PREPARE after a higher one", "Membership.take_prepare",
             "if is_taken or prepare.id < promised:", "if is_taken:",
             test=CHANGE + "test_a_prepare_that_comes_late_takes_no_promise_back"),
    Mutation("who has no view forgets the views that others may have", "Membership.take_prepare",
             "promised = self.voting.last_id if is_void else self.promised",
             "promised = 0 if is_void else self.promised",
             test=PRIMARY
             + "test_a_first_view_that_somebody_may_have_is_before_the_one_that_follows_it"),
    Mutation("a second PREPARE gets a newer report", "Flush.prepare",
             "if self.reported is None:", "if True:", FORMING),
    Mutation("own messages beyond the report are purged", "Flush.bound_purge",
             "return earlier(seqno, self.reported[self.layer.local.incarnation])", "return seqno",
             test=FLUSH + "test_nothing_is_purged_beyond_the_report_until_the_view"),
    Mutation("a view is shown before the messages up to its cuts", "Flush._is_due",
             "return not self.layer.receiving or not any(",
             "return True or not any(", FORMING),
    Mutation("messages beyond the report are delivered", "Flush.limit",
             "for ends in (self.pending[0].cuts if self.pending else None, self.frozen):",
             "for ends in (self.pending[0].cuts if self.pending else None,):", FORMING),
    Mutation("a new member delivers before all are complete", "Flush.limit",
             "if stream in self.unsettled:", "if False:", FORMING),
    Mutation("a new member reports what it may have alone", "Flush.prepare",
             "if window.stream not in self.unsettled:", "if True:",
             test=FLUSH + "test_a_joiner_delivers_and_reports_no_stream_that_others_may_miss"),
    Mutation("the group is settled before all are complete", "Settling.take",
             "if installed.complete:", "if True:",
             test=CHANGE + "test_a_group_is_settled_only_when_all_have_what_comes_before"),
    Mutation("all members hold nothing of a departed sender", "Flush._depart",
             "Gaps(stream.ring.hr), cut=cut, key=sender)",
             "Gaps(stream.ring.hr), cut=cut, key=sender, is_held=False)",
             test=FLUSH + "test_a_holder_keeps_what_its_application_has_finished"),
    Mutation("a holder that is gone too is asked for ever", "Flush._agree_on_departed",
             "if gone.holder not in others:", "if False:",
             test=FLUSH + "test_a_stream_that_no_member_holds_ends_with_what_has_come"),
    Mutation("a sender that is back gives nothing that a dead member had of it",
             "Flush._agree_on_departed",
             "if gone.is_kept and origin in others:", "if False:",
             test=DURABLE
             + "test_a_sender_that_is_back_gives_what_only_a_dead_member_had_of_it"),
    Mutation("who is to fetch forgets who has it when the sender is back",
             "Flush._agree_on_departed", "known = gone.parts", "known = ()",
             test=DURABLE
             + "test_what_a_member_is_to_fetch_it_gets_though_the_sender_is_back"),
    Mutation("what only others hold a part of ends with what has come",
             "Flush._reach", "reach(gone.parts, gone.come_up_to)",
             "reach(gone.parts if gone.holder else (), gone.come_up_to)",
             test=DURABLE
             + "test_what_a_member_is_to_fetch_it_gets_though_the_sender_is_back"),
    Mutation("a stream of a departed sender ends in the middle of a large message",
             "Flush._reach", "gone.stream.acknowledgeable(reach(gone.parts, gone.come_up_to))",
             "reach(gone.parts, gone.come_up_to)",
             test=DURABLE + "test_a_large_message_begins_again_when_its_sender_is_back"),
    Mutation("a sender that has freed what it sent is asked for it", "Keeping.is_kept",
             "not precedes(place, low)", "True",
             test="tests/protocols/multicast/test_keeping.py::"
             + "test_a_sender_is_asked_only_for_what_it_has_kept_for_us"),
    Mutation("ids follow those of our own view only", "Coordinator.begin",
             "highest = max([layer.promised, self.made, *(seat.before for seat in seats)])",
             "highest = layer.view_id",
             test=CHANGE + "test_the_id_of_a_view_is_above_all_that_its_members_have_promised"),
    Mutation("one that does not answer is let in at once again", "Coordinator._is_stuck",
             "layer.meeting.discovery.shun_mute(stranger, now)", "pass",
             test="tests/protocols/membership/test_membership.py::"
                  "test_one_that_does_not_hear_a_group_does_not_keep_it_from_going_on"),
    Mutation("a coordinator makes an id again when its promise is void", "Coordinator.begin",
             "highest = max([layer.promised, self.made, *(seat.before for seat in seats)])",
             "highest = max([layer.promised, *(seat.before for seat in seats)])",
             test=CHANGE + "test_a_coordinator_makes_no_id_twice"),
    Mutation("two coordinators may make the same id", "Coordinator.begin",
             "((highest >> COUNTER) + 1 << COUNTER) | (\n"
             "            layer.local.incarnation & MAKER)",
             "(highest >> COUNTER) + 1 << COUNTER",
             test=CHANGE + "test_the_id_of_a_view_says_who_made_it"),
    Mutation("a joiner is the oldest member", "Coordinator._wanted",
             "seats.append(seat)", "seats.insert(0, seat)", FORMING),
    Mutation("who cannot finish a view is asked for ever", "Coordinator.take_report",
             "change.tries < TRIES", "True",
             test=CHANGE + "test_who_cannot_finish_a_view_that_another_one_has_goes_another_way"),
    Mutation("who cannot finish a view still says that it comes from there",
             "Coordinator.take_report", "seat.moved(change.reports[seat.incarnation].view_id)",
             "seat", test=HOSTILE + "test_a_member_that_reports_a_view_that_nobody_else_can_"
                                    "install_is_left_behind[ABC]"),
    Mutation("who has gone on finishes an earlier view, too", "finishing",
             "and seat.before < install.id", "",
             test=CHANGE + "test_who_has_gone_on_from_a_view_is_not_thought_to_come_from_it"),
    Mutation("PREPARE and INSTALL are sent once", "Change.is_repeat_due",
             "self.due = now + self.pause", "self.due = 1 << 62",
             test=CHANGE + "test_what_is_not_answered_is_repeated_ever_more_rarely"),
    Mutation("PREPARE and INSTALL are repeated while answers come", "Change.note_answer",
             "self.due = max(self.due, now + LEAST_PAUSE)", "pass",
             test=CHANGE + "test_nothing_is_repeated_while_others_answer"),
    Mutation("a first view waits so long for all together", "Coordinator.form",
             "change.answered)", "change.began)",
             test=CHANGE + "test_the_first_view_waits_for_all_while_they_answer_one_by_one"),
    Mutation("a view waits so long for all who come together", "Coordinator._is_stuck",
             "now - change.answered", "now - change.began",
             test=CHANGE + "test_a_view_waits_for_all_who_come_while_they_answer_one_by_one"),
    Mutation("what is not read yet is no answer", "Coordinator.form",
             "layer.stack.unread_at, change.answered", "0, change.answered",
             test=CHANGE + UNREAD + "[False]"),
    Mutation("what is not read yet is an answer to a group, too", "Coordinator._is_stuck",
             "now - change.answered",
             "now - max(layer.stack.unread_at, change.answered)",
             test=CHANGE + UNREAD + "[True]"),
    Mutation("a change waits for a joiner that has left", "Leaving.hear",
             "layer.coordinator.let_go(sender, now)", "layer.tell_view(now)",
             test=MEMBERSHIP + "test_who_leaves_while_it_joins_holds_nobody_up[25-False]"),
    Mutation("a durable member that left before its first view is absent", "Leaving.hear",
             "last = leave.view_id if came else layer.view_id", "last = leave.view_id",
             test=MEMBERSHIP + "test_who_leaves_while_it_joins_holds_nobody_up[70-True]"),
    Mutation("a member that left before its first view is waited for", "Leaving.hear",
             " or not came", "",
             test=MEMBERSHIP + "test_who_leaves_while_it_joins_holds_nobody_up[70-False]"),
    Mutation("in a crowd everybody is told each time", "Discovery.seek",
             "return lowest", "return EVERYONE",
             test=MEMBERSHIP + "test_in_a_crowd_a_seek_to_everybody_is_rare"),
    Mutation("in a crowd nobody is told between", "Discovery.seek",
             "return lowest", "return self.incarnation",
             test=MEMBERSHIP + "test_in_a_crowd_too_a_lost_seek_is_soon_said_again_to_who_forms_"
                               "the_group"),
    Mutation("a member has a negative number", "Seat",
             "incarnation: Number", "incarnation: int",
             test=HOSTILE + "test_nothing_that_is_said_of_the_group_has_a_negative_number"),
    Mutation("a member that has promised a view waits for it for ever", "Membership._remind",
             "self._is_kept_waiting(now) or", "",
             test=CHANGE
             + "test_members_that_have_promised_a_view_that_never_comes_get_another_one"),
    Mutation("LEAVE is said once", "Membership._remind",
             "self.leaving.say(now)", "pass",
             test=CHANGE + "test_a_leave_that_is_lost_is_said_again"),
    Mutation("a view tells of a stream that was given up as if all had come", "Flush._give_up",
             "self._tell_end(gone, gone.ring.hd)", "pass",
             test=FLUSH + "test_departed_streams_that_nobody_takes_are_bounded"),
    Mutation("one stream of a sender that departs again is held", "Flush._depart",
             "self._set_aside(sender)", "self._give_up(sender)", test=AGAIN),
    Mutation("the last stream of such a sender says what is finished", "Keeping.whole",
             "reversed(self.layer.flushing.departed.values())",
             "self.layer.flushing.departed.values()", test=AGAIN),
    Mutation("OOB messages come again to who was cut off", "Flush._depart",
             "self.keeping.note_early(stream)", "pass",
             test=OOB_AGAIN + "does_not_come_again_after_a_durable_member_was_cut_off"),
    Mutation("OOB messages come again while their sender's first stream goes on",
             "Flush._depart",
             "self.keeping.note_early(stream)", "sender in self.departed or "
             "self.keeping.note_early(stream)",
             test=OOB_AGAIN + "does_not_come_again_of_a_member_that_is_back_for_the_second_time"
             + "[mcast-udp]"),
    Mutation("a large message goes on whose sender is gone, when more of it is found",
             "Flush.end", "gone.whole = gone.stream.whole if gone.whole is None else gone.whole",
             "gone.whole, gone.stream.reassembly = gone.stream.whole, None",
             test=DURABLE + "test_a_stream_goes_on_in_the_middle_of_a_large_message"),
    Mutation("a large OOB message that is not whole does not come to who was cut off",
             "Stream.early", "early -= {assembly.last for assembly in "
             "self.reassembly.oob.values()}", "pass",
             test=OOB_AGAIN
             + "of_which_half_had_come_comes_whole_after_a_member_was_cut_off"),
    Mutation("the end of a sender's first stream ends the second, too", "Agreed.end",
             "later(window.offset, cut)", "cut",
             test=FLUSH + "test_who_misses_the_first_stream_of_a_sender_that_departs_twice_is_"
                          "told_so"),
    Mutation("who takes nothing any more does not know what it took", "Flush._forget",
             "if not gone.is_skipped", "if self.layer.receiving and not gone.is_skipped",
             test="tests/protocols/membership/test_ends.py::"
                  "test_who_takes_no_more_messages_says_what_it_has_taken"),
    Mutation("nobody says where the streams of new members begin here", "Flush.install",
             "begun[members[member]] = window.offset", "pass",
             test=FLUSH + "test_each_says_where_the_streams_of_new_members_begin[mcast-udp-0]"),
    Mutation("a view waits for a stream of which nothing comes", "Flush._depart",
             "self._end_earlier(stream, cut)", "pass",
             test=FLUSH + "test_a_view_that_waits_for_a_stream_of_which_nothing_comes_is_void"),
    Mutation("of two departures the second one counts", "without_void",
             "void.departed.items()}", "void.departed.items()} | view.departed",
             test=FLUSH + "test_who_misses_the_first_stream_of_a_sender_that_departs_twice_is_"
                          "told_so"),
    Mutation("who came before a sender went holds what came before, too", "Flush._depart",
             "        cut = agreed.end(window)",
             "        self.unsettled.discard(stream)\n"
             "        cut = agreed.end(window)",
             test=FLUSH
             + "test_who_came_when_a_sender_went_holds_nothing_that_comes_before[mcast-udp-AD]"),
    Mutation("as many streams are held as the last view has members", "Flush.install",
             "self.largest = max(self.largest, len(layer.members))",
             "self.largest = len(layer.members)",
             test=FLUSH
             + "test_a_group_that_shrinks_holds_as_many_streams_as_it_had_members"),
    Mutation("a leaver that all have let go waits for its deadline", "Endpoint.receive",
             "self.leaving.advance(now)", "pass",
             test="tests/sim/test_member.py::"
             "test_a_leaver_waits_for_its_acks_and_sees_that_the_others_know"),
    # ---------------------------------------------------------------------------- failure detection
    Mutation("a silent member is suspected without a probe", "Detection._begin_to_probe",
             "self.probing[member] = Probing(times, now, pause)", "self._suspect(member, now)",
             test=CHANGE + "test_a_silent_member_that_answers_a_probe_is_suspected_by_nobody"),
    Mutation("one who refuses is suspected without a probe", "Detection.refuse",
             "self.probing[member] = Probing(PROBES_REFUSED, now, REFUSED_PAUSE, True)",
             "self._suspect(member, now)",
             test=CHANGE + "test_one_whose_datagram_is_refused_is_probed_before_it_is_suspected"),
    Mutation("a second refusal counts before a member can have answered", "Detection.refuse",
             "and not probing.left", "and probing.left < PROBES_REFUSED",
             test=MEMBERSHIP + "test_a_forged_refusal_excludes_nobody"),
    Mutation("what another one suspects makes no refusal count", "Detection.refuse",
             "is_refused or any(member in silent for silent in self.reports.values())",
             "is_refused",
             test=CHANGE + "test_a_refusal_is_enough_where_another_member_suspects_the_same"),
    Mutation("a suspicion that is said again is not looked into", "Detection.take",
             "for member in suspects:", "for member in suspects - self.reports.get(sender, set()):",
             test=CHANGE + "test_what_comes_late_of_a_dead_member_does_not_keep_it_in_the_view"),
    Mutation("what comes late hides that its sender refused", "Detection.hear",
             "if sender in self.refusing:", "if False:",
             test=CHANGE + "test_what_comes_late_of_a_dead_member_does_not_hide_that_it_refused"),
    Mutation("who was refused and answers is probed again", "Detection.answer",
             "self.refusing.discard(member)\n        self.probing.pop(member, None)", "pass",
             test=CHANGE + "test_one_whose_datagram_is_refused_is_probed_before_it_is_suspected"),
    Mutation("what another one suspects is suspected", "Detection.take",
             "if member in self.refusing - self.silent:", "if member not in self.silent:",
             test=CHANGE + "test_a_refusal_is_enough_where_another_member_suspects_the_same"),
    Mutation("one suspicion is enough", "Detection.gone",
             "if 2 * len(against) > len(voters):", "if against:",
             test=CHANGE + "test_one_suspicion_is_not_enough_against_a_member"),
    Mutation("our own lateness is the fault of others", "Detection.tick",
             "self._recover(now)", "pass",
             test=CHANGE + "test_a_member_that_was_paused_begins_to_listen_anew_and_probes_nobody"),
    Mutation("who is silent is never probed", "Detection._look",
             "if now - heard >= self.timeout * self.patience:", "if False:",
             test=CHANGE + "test_a_silent_member_that_answers_a_probe_is_suspected_by_nobody"),
    Mutation("a suspicion counts until the next view", "Detection._drop_old_reports",
             "if now - said > lasts:", "if False:",
             test=CHANGE + "test_one_suspicion_that_is_not_repeated_excludes_nobody"),
    Mutation("who never had the INSTALL counts for a majority", "Detection._voters",
             "self.suspected", "(self.silent | self.withholding)",
             test=CHANGE + "test_who_never_had_the_install_does_not_keep_a_dead_coordinator_in_"
                           "the_view"),
    Mutation("who is alive and has not our view may coordinate for ever", "Detection._silent_of",
             "return self.suspected", "return self.silent",
             test=CHANGE + "test_a_coordinator_that_is_alive_without_our_view_is_not_waited_for_"
                           "for_ever"),
    Mutation("who has another view counts for a majority", "Membership._on_alive",
             "if alive.view_id == self.view_id:", "if True:",
             test=CHANGE + "test_who_went_with_others_does_not_keep_a_dead_coordinator_in_the_"
                           "view"),
    # ------------------------------------------------------------------------------- what is kept
    Mutation("receivers free what they have delivered", "Mcast._count_finished",
             "return stream.keep() if keeps else stream.free()",
             "return stream.free()",
             test=FLUSH + "test_a_receiver_keeps_what_not_all_members_have_finished"),
    Mutation("LOW of another view is believed", "Multicast._on_highest",
             "highest.view_id == self.view_id", "True",
             test=FLUSH + "test_low_of_another_view_frees_nothing"),
    # ------------------------------------------------------------------------ which part is primary
    Mutation("any half is a majority", "has_majority",
             "2 * votes > len(quorum.voters) or", "2 * votes >= len(quorum.voters) or",
             test=PRIMARY + "test_a_majority_is_more_than_half_or_half_with_the_oldest"),
    Mutation("a view that was given up is finished all the same", "Membership.take_prepare",
             "(self.install or prepare.finish.id > self.given_up)", "True",
             test=PRIMARY
             + "test_who_has_promised_a_lower_view_since_finishes_none_that_it_gave_up"),
    Mutation("half of an attempt is a majority, with who seemed to be the oldest", "has_majority",
             "is_half and quorum.is_sure and", "is_half and",
             test=PRIMARY + "test_of_an_attempt_more_than_half_is_needed"),
    Mutation("who reported to a view tells who is the oldest in it", "known_together",
             "if other.is_sure: one, other = other, one",
             "one = msgspec.structs.replace(one, is_sure=one.is_sure or other.is_sure)",
             test=MODEL + "test_the_oldest_may_be_another_one_than_the_attempt_said"),
    Mutation("members of a minority send", "Voting.install",
             "self.may_send = self.is_primary", "self.may_send = True", PARTED),
    Mutation("a minority forgets the last primary view", "Change.decide",
             "quorums = verdict.needed", "quorums = []", PARTED),
    Mutation("who reported to a view that it never got forgets it", "Voting.attempt",
             "if prepare.roots and", "if False and", PARTED),
    Mutation("an attempt is the heir of those before it", "Voting.attempt",
             "for quorum in self.quorums if quorum.is_sure]", "for quorum in self.quorums]",
             test=MODEL + "test_who_reported_to_two_attempts_follows_neither_in_vain"),
    Mutation("members are told of roots that the view does not have", "Change.has_told",
             "{self.id, *verdict.roots(self.id)}.issuperset(self.roots)", "True",
             test=PRIMARY + "test_members_are_told_again_if_a_view_follows_no_attempt"),
    Mutation("an attempt that one of those present does not know is void", "judge_view",
             "voter in listed and quorum.id not in listed[voter] for voter in quorum.voters",
             "quorum.id not in known for known in listed.values()",
             test=PRIMARY + "test_an_attempt_that_may_have_been_installed_counts"),
    Mutation("who follows an attempt follows what the attempt was to follow", "inherited_roots",
             "for quorum in quorums if quorum.is_sure for root", "for quorum in quorums for root",
             test=PRIMARY + "test_an_attempt_that_nobody_may_have_does_not_take_the_place_of_"
             "another_group"),
    Mutation("who follows attempts only is no first view", "judge_view",
             "not any(quorum.is_sure for quorum in needed)", "not needed",
             test=PRIMARY + "test_a_view_that_follows_attempts_only_needs_min_members"),
    # --------------------------------------------------------------- members that are expected back
    Mutation("a sender purges what an absent member lacks", "Flush.bound_purge",
             "        if self.keeping.is_on:\n"
             "            return self.layer.send_window.ring.low\n",
             "", ABSENT),
    Mutation("what came before a sender was cut off is not held when it departs again",
             "Flush._set_aside", "gone.is_held &= self.keeping.is_on", "gone.is_held = False",
             test=DURABLE + "test_a_sender_that_was_cut_off_and_died_is_heard_to_the_end"),
    Mutation("of a sender that is back only its last stream is told as kept", "Keeping._kept",
             "for each in held:", "for each in held[:1]:",
             test=DURABLE + "test_a_sender_that_was_cut_off_and_died_is_heard_to_the_end"),
    Mutation("what is kept of a sender before a gap is not told", "Keeping._kept",
             "others[:MOST_PARTS]", "[]", test=DURABLE + BEFORE_A_GAP),
    Mutation("no view waits for what is fetched", "Flush.install",
             "cuts |= self._ends_of_fetched()", "pass",
             test=DURABLE
             + "test_what_others_kept_of_a_sender_comes_before_what_it_sends_when_it_is_back"),
    Mutation("what is fetched goes with a view that is not shown", "Flush._owe",
             "gone.stream.is_resumed = True", "pass",
             test=DURABLE + "test_what_others_kept_is_not_lost_with_a_view_that_is_not_shown"),
    Mutation("what is kept before a gap and behind it is told as one part", "Keeping._kept",
             "if stretches and not precedes(each.come_up_to, stretches[-1].low):",
             "if stretches:", test=DURABLE + BEFORE_A_GAP),
    Mutation("what nobody has of a stream behind a gap is not counted", "Keeping._place_in",
             "(last - reach(owed.parts, place)) % MODULUS", "0", test=DURABLE + BEFORE_A_GAP),
    Mutation("of a sender that is back only its last stream is sent on", "Fetching.answer",
             "for held, end, pace in sources:", "for held, end, pace in sources[:1]:",
             test=DURABLE + "test_a_sender_that_was_cut_off_and_died_is_heard_to_the_end"),
    Mutation("a view is settled before members that are back have what they lack",
             "Flush.install",
             "self.cuts[window.stream] = agreed.cuts[member]", "pass",
             test=DURABLE
             + "test_a_view_is_not_settled_before_a_member_that_is_back_has_what_it_lacks"),
    Mutation("who is back is not told where a stream ends for it", "Flush._tell_end",
             "self.pending[index] = Pending(view, cuts, is_void)", "pass",
             test=DURABLE
             + "test_a_view_is_not_settled_before_a_member_that_is_back_has_what_it_lacks"),
    Mutation("an observer frees what an absent member lacks", "Nakack2.stable",
             "if not self.keeping.is_on:", "if True:",
             test=DURABLE
             + "test_an_observer_keeps_what_an_absent_member_lacks[nakack2-udp]"),
    Mutation("who has left in another part of the group is waited for", "Absentees.decide",
             "not in self.given_up | left", "not in self.given_up",
             test=DURABLE
             + "test_a_durable_member_that_leaves_in_one_part_is_absent_in_no_other"),
    Mutation("who comes back after somebody said LEAVE in its name is never waited for",
             "Absentees.install", "if self.left[member] < install.id:", "if False:",
             test=DURABLE
             + "test_a_durable_member_in_whose_name_somebody_says_leave_is_waited_for_later"),
    Mutation("what departed senders sent is held for members that are there only",
             "Settling.take",
             "change.finished >= awaited and not layer.absentees.known",
             "change.complete >= awaited",
             test=DURABLE + "test_senders_that_died_meanwhile_are_heard_to_the_end"),
    Mutation("a durable member needs no departed stream that it has and has not finished",
             "Keeping.has_finished", "not self.durable", "True",
             test=DURABLE
             + "test_what_a_durable_member_has_not_finished_of_a_departed_sender_is_held"),
    Mutation("streams begin at their cuts for a member that is back", "Keeping.begin",
             "begin = self._place(sender, low, cut)", "begin = cut",
             test=DURABLE
             + "test_a_durable_member_that_dies_is_absent_and_gets_what_was_sent_meanwhile"),
    Mutation("what a member heard before two parts met comes again", "Keeping.begin",
             "begin = later(begin, had)", "pass",
             test=FLUSH + "test_what_a_member_heard_of_another_part_after_its_report_comes_once"),
    Mutation("what departed senders sent is not fetched by who is back", "Keeping.owed",
             "if next_part(each.parts, place)]", "if False]",
             test=DURABLE + "test_senders_that_died_meanwhile_are_heard_to_the_end"),
    Mutation("a stream goes on behind a gap", "Keeping._place_in", "place = known", "pass",
             test=DURABLE
             + "test_a_stream_has_no_hole_where_only_who_came_meanwhile_is_left[True-mcast-udp]"),
    Mutation("a stream ends at the rest of a large message", "Keeping._place_in",
             "if rests else place", "if False else place",
             test=DURABLE
             + "test_a_stream_goes_on_behind_a_large_message_that_was_acknowledged_in_part"
               "[mcast-udp]"),
    Mutation("a false end of a stream is believed", "Keeping.begin",
             "if had is not None and not precedes((cut + MAX_CAPACITY) % MODULUS, had):",
             "if had is not None:",
             test=FLUSH + "test_each_says_where_the_streams_of_new_members_begin"),
    Mutation("behind one gap no stream is fetched", "Keeping.owed",
             "if next_part(each.parts, place)]",
             "if not self.layer.counters.num_gone_undelivered and next_part(each.parts, place)]",
             test=EXCUSES),
    Mutation("who gave up one stream may lack all", "Lives.has_given_up",
             "self.given_up.get((receiver.name, sender.incarnation), ())",
             "(had,)", test=EXCUSES),
    Mutation("what was given up may end before its place", "Lives.has_given_up",
             "had == sender.log.end_before(place)", "True", test=EXCUSES),
    # ------------------------------------------------------------------------------- state transfer
    Mutation("let nobody begin without a state", "StateTransfer.install",
             "elif not said.giver and said.place == install.id:", "elif False:", REPLICAS),
    Mutation("a part of a state raises where its lists are too deep", "StateTransfer._take",
             "except UNDECODABLE:", "except msgspec.MsgspecError:",
             test=STATES + "test_a_giver_that_sends_nonsense_has_failed"),
    Mutation("keep pieces of a state without a byte", "StateTransfer._add", " or is_empty", "",
             test=STATES + "test_the_piece_of_a_chunk_is_not_empty"),
    Mutation("the place of a stream to all is before a part of a message", "Stream.retire",
             "self.ring.hd if self.dest is None else self.whole", "self.whole",
             test=FLUSH + "test_a_view_comes_behind_a_part_of_a_large_message_that_is_forgotten_"
                          "by_then"),
    Mutation("what came between the parts of a large message was not given", "Stream.whole",
             "if self.dest is None:", "if False:",
             test=FLUSH + "test_what_a_sender_that_died_sent_between_the_parts_of_a_large_message_"
                          "was_given[mcast-udp]"),
    Mutation("what is told of a large message ends where another one came between",
             "as_sent", "rejoin(run.payloads, parts)",
             "rejoin(run.payloads, {})",
             test=FLUSH + "test_what_was_not_delivered_is_told_whole_though_another_message_is_"
                          "between_its_parts[mcast-udp]"),
    Mutation("give no begins of messages with a state", "Begins.give",
             "if before is not None:", "if False:", test=INSIDE + "[mcast-udp]"),
    Mutation("give none of a begin that another one gave", "Begins.give",
             "[before, *rest]", "rest",
             test=STATES + "test_who_was_given_the_begin_of_a_message_gives_it_to_the_next_one"
                           "[nakack2-tcp]"),
    Mutation("a stream never begins inside a message", "Stream._assemble",
             "may_begin_inside=self.dest is None", "may_begin_inside=False",
             test=INSIDE + "[nakack2-udp]"),
    Mutation("a stream begins inside each message", "Reassembly.add",
             "self.may_begin_inside &= is_oob", "pass",
             test=FRAG + "test_the_rest_of_a_message_that_began_before_the_stream_is_put_together_"
                         "once"),
    Mutation("the rest of a message is the message", "Stream._assemble",
             "run.bits if self.reassembly.is_rest else run.bits & ~FRAGMENT",
             "run.bits & ~FRAGMENT", test=INSIDE + "[mcast-tcp]"),
    Mutation("a stream begins before a message of which it has the rest", "Stream._assemble",
             "not is_skipped and self.reassembly.is_rest and (", "False and (",
             test=FLUSH + "test_the_cut_is_behind_what_an_application_has_got_between_two_fragments"
                          "[mcast-udp]"),
    Mutation("tell of messages behind the cut", "Reassembly.begun",
             "not precedes(cut, assembly.first)", "True",
             test=FRAG + "test_what_is_here_of_a_message_is_told_for_a_cut_in_its_middle"),
    Mutation("a begin of another message will do", "Begins._first_of",
             "begin.number != number", "False", test=FIT),
    Mutation("a begin may be too short", "Begins._first_of",
             "begin.count < count", "False", test=FIT),
    Mutation("a begin is what its giver has", "Begins._first_of",
             "[:len(begin.payload) // begin.count * count]", "", test=FIT),
    Mutation("a begin and a rest may be as large as they like", "Begins.join",
             "len(before) + len(payload) - HEAD.size > self.largest", "False", test=FIT),
    Mutation("keep the begins of strangers", "Begins.take",
             "begin.sender in self.senders", "True",
             test=STATES + "test_of_each_member_one_begin_is_kept_and_of_strangers_none"),
    Mutation("keep the begins of who is gone", "StateTransfer._make_whole",
             "for member in view.left:", "for member in ():",
             test=STATES + "test_of_a_sender_that_goes_in_the_middle_of_a_message_nobody_keeps_"
                           "the_begin[mcast-udp-crash]"),
    Mutation("a begin raises where its lists are too deep", "Begins.take",
             "except UNDECODABLE:", "except msgspec.MsgspecError:",
             test=STATES + "test_a_giver_of_begins_that_make_no_sense_has_failed"),
    Mutation("a state may end before it begins", "StateTransfer._take_begins",
             "if self.is_whole:", "if False:",
             test=STATES + "test_a_state_that_ends_before_it_begins_is_none"),
    Mutation("a begin is no larger than a chunk", "StateTransfer._add",
             "self.largest + OVERHEAD", "self.largest",
             test=STATES + "test_the_begin_of_the_largest_message_is_taken"),
    Mutation("lists in lists in a file of a journal raise", "read_json",
             "except (ValueError, *UNDECODABLE)", "except ValueError",
             test=FUZZ + "test_a_bug_that_was_found_once_stays_repaired[files-01100a7b2278223a]"),
    Mutation("a proposal outlives its connection", "Handshaking._close_handshake",
             "numbers.give_up()", "numbers",
             test=FUZZ + "test_the_corpus_breaks_no_promise[connecting]"),
    Mutation("put a cut into the middle of a large message", "Flush.prepare",
             "stream.boundary(seqno)", "seqno",
             test=FLUSH + "test_a_joiner_gets_a_large_message_that_is_on_its_way_when_it_comes"),
    # --------------------------------------------------------------------------------- the seal
    Mutation("take datagrams without a check where no seal is", "Stack.open",
             "self.group, self._checked", "self.group, datagram[2] == 2",
             test=THREATS
             + "test_a_datagram_without_a_check_is_read_only_where_a_seal_is_its_check"),
    Mutation("open what is not sealed", "SealCore.open_one",
             "return None\n        sender =", "return datagram\n        sender =",
             test=THREATS + "test_what_is_not_sealed_does_not_come_in"),
    Mutation("open what was altered", "SealCore.open_one",
             "except self.invalid_tag:\n            self.counters.datagrams_unopened += 1\n"
             "            return None",
             "except self.invalid_tag:\n            return opened.toreadonly()",
             test=THREATS + "test_of_every_kind_of_datagram_no_flipped_bit_opens"),
    Mutation("make objects of messages beyond the window", "clip",
             "room = capacity - start if", "room = count if",
             test=WIRE + "test_a_datagram_of_tiny_messages_takes_memory_for_those_that_are_in_"
                         "the_window"),
    Mutation("read a run whose lengths do not add up", "read_run",
             "<Py_ssize_t> size if total == run.size else -1", "<Py_ssize_t> size",
             test=WIRE + "test_a_datagram_whose_lengths_lie_takes_no_memory"),
    Mutation("open what was altered in a view", "SealCore.open_one",
             "except self.invalid_tag:\n            self.counters.datagrams_unopened += 1\n"
             "            return None",
             "except self.invalid_tag:\n            return opened.toreadonly() if tag else None",
             test=THREATS + "test_of_every_kind_of_datagram_no_flipped_bit_opens[pair_in_view]"),
    Mutation("open what was altered where keys are trusted", "SealCore.open_one",
             "except self.invalid_tag:\n            self.counters.datagrams_unopened += 1\n"
             "            return None",
             "except self.invalid_tag:\n"
             "            return opened.toreadonly() if known.root else None",
             test=TRUST
             + "test_of_every_kind_of_datagram_no_flipped_bit_opens_where_keys_are_trusted"),
    Mutation("believe a HELLO that was not made with the secret", "read_hello",
             "not hmac.compare_digest(check, _mac(key, said))", "False",
             test=THREATS + "test_of_a_hello_no_flipped_bit_is_believed"),
    Mutation("open what comes from somebody who has not answered", "Seal._on_hello",
             "hello.answers.get(self.member) == self.challenge", "True",
             test=THREATS + "test_recorded_hellos_do_not_bring_a_dead_process_back"),
    Mutation("form a group while others prove that they are there", "Seal._answer",
             "self.was_asked = None, True", "self.was_asked = None, False",
             test="tests/sim/test_forming.py::"
                  "test_members_that_must_prove_first_that_they_are_there_form_one_group_too"),
    Mutation("whoever sends on and on keeps a group from forming", "heard_at",
             "min(unread_at, since + MOST_UNREAD)", "unread_at",
             test=MEMBERSHIP
             + "test_what_is_left_unread_keeps_a_group_from_forming_but_not_for_ever"),
    Mutation("open what a member sent before it answered", "Seal._learn",
             "Epoch(cipher, hello.numbers)", "Epoch(cipher, [0, 0, 0, 0])",
             test=THREATS + "test_what_was_said_before_a_member_started_does_not_open_there"),
    Mutation("open a datagram twice", "ReplayWindow.is_new",
             " and not self.seen[at(number)] & bit(number)", "",
             test=THREATS + "test_ten_thousand_recorded_datagrams_change_nothing"),
    Mutation("open again what a stranger says again", "SealCore.open_one",
             "if not window.is_new(header.number & COUNT):", "if False:",
             test=FUZZ + "test_what_comes_without_the_key_is_counted_and_does_nothing"),
    Mutation("hear a stranger that has a key and answers", "Identity.believes",
             "key not in self.trusted or", "",
             test=FUZZ + "test_what_comes_without_the_key_is_counted_and_does_nothing"),
    Mutation("who has the key of a view has a place in it", "ViewSeal.sender",
             "if found is None and sender in self.members:", "if found is None:",
             test=FUZZ + "test_what_a_member_says_under_the_seal_breaks_no_promise[mcast-udp]"),
    Mutation("remember numbers of what has not opened", "SealCore.open_one",
             "if not window.is_new(header.number & COUNT):",
             "if window.is_new(header.number & COUNT):\n"
             "            window.note(header.number & COUNT)\n        else:",
             test=SEAL + "test_a_number_that_somebody_has_forged_is_not_remembered"),
    Mutation("open what is older than the window", "ReplayWindow.is_new",
             "self.highest - number < WINDOW and", "",
             test=SEAL + "test_the_window_remembers_so_many_numbers_and_no_more"),
    Mutation("one window for all channels", "Epoch.__init__",
             "tuple(map(ReplayWindow, floors))", "(ReplayWindow(min(floors)),) * CHANNELS",
             test=SEAL + "test_each_channel_counts_for_itself_so_that_one_may_wait_behind_another"),
    Mutation("leave what is hurried among messages", "SealCore.seal_one",
             "HURRIED if kind in self.hurried else", "",
             test=SEAL + "test_the_clear_header_tells_what_has_a_connection_of_its_own"),
    Mutation("take the nonce from the number alone", "nonce",
             "memcpy(raw, &channel, 4)", "memset(raw, 0, 4)",
             test=THREATS + "test_in_a_thousand_starts_no_key_meets_a_number_twice"),
    Mutation("make keys without the salt of the process", "Keys.cipher",
             "_SENDER.pack(salt, sender, epoch)", "_SENDER.pack(bytes(16), sender, epoch)",
             test=THREATS + "test_in_a_thousand_starts_no_key_meets_a_number_twice"),
    Mutation("make keys without the secret", "Keys.__init__", "derive(secret,",
             "derive(NO_SECRET,",
             test=THREATS + "test_another_secret_group_or_cipher_opens_nothing_and_does_not_join"
             "[secret]"),
    Mutation("make keys without the group", "Keys.__init__", "{cipher} {group}", "{cipher}",
             test=THREATS + "test_another_secret_group_or_cipher_opens_nothing_and_does_not_join"
             "[group]"),
    Mutation("seal with one key for ever", "SealCore.seal_one",
             "count >= self.most_sealed", "False",
             test=SEAL
             + "test_after_so_many_datagrams_a_new_key_seals_and_the_old_one_opens_for_a_while"),
    Mutation("begin epochs without end", "Seal._begin_epoch",
             "under.epoch >= LAST_EPOCH", "False",
             test=SEAL + "test_there_is_a_last_epoch"),
    Mutation("number datagrams again under the same key", "Seal._begin_epoch",
             "under.cipher = self.keys.cipher(self.salt, self.member, under.epoch, under.root)",
             "pass",
             test=THREATS + "test_in_a_thousand_starts_no_key_meets_a_number_twice"),
    Mutation("leave the header out of what is authenticated", "SealCore.seal_one",
             "clear(&header)", "None",
             test=SEAL + "test_what_one_seals_the_other_opens"),
    Mutation("seal in another one's name", "SealCore.open_one",
             "size < SENDER + 8 or memcmp(raw_of(opened) + SENDER, &header.sender, 8) != 0",
             "False",
             test=THREATS + "test_no_member_seals_in_another_ones_name"),
    Mutation("keep the challenge that a forgotten member has answered", "Seal._learn",
             "self._draw_challenge()", "pass",
             test=SEAL + "test_the_oldest_makes_room_and_what_it_sent_opens_no_more"),
    Mutation("answer every HELLO", "Allowance.take", "if not self._left:", "if False:",
             test=SEAL + "test_recorded_questions_are_answered_only_so_often"),
    Mutation("ask strangers at once", "Seal.hellos",
             "self._strangers and now >= self._ask_after", "self._strangers",
             test=SEAL + "test_who_sends_garbage_in_many_names_is_asked_rarely"),
    Mutation("derive the key of a forged epoch each time", "Seal._begin_opening",
             "known.epochs[epoch] = under", "pass",
             test=SEAL + "test_the_next_epoch_is_made_once_however_often_somebody_forges_it"),
    Mutation("derive the key of any epoch that somebody forges in a view", "Seal._begin_opening",
             "MOST_AHEAD if known.is_in_view", "LAST_EPOCH if known.is_in_view",
             test=KEYS + "test_in_a_view_whole_epochs_may_be_missed"),
    Mutation("ask everybody for a stranger that has no number", "SealCore.open_one",
             "or header.sender == EVERYONE", "",
             test=SEAL + "test_a_sender_that_would_be_everybody_is_dropped"),
    Mutation("forget members of the view for others", "Seal._first_to_go",
             "sender not in self._members", "True",
             test=TRUST + "test_nobody_takes_a_members_place_however_many_processes_it_begins"),
    Mutation("know nobody of the view", "Keyring.held", "held.members.keys()", "()",
             test=TRUST + "test_whoever_is_in_the_view_is_not_forgotten"),
    Mutation("hear in a view who is no member of it", "ViewSeal.sender",
             "and sender in self.members", "",
             test=KEYS + "test_however_many_processes_begin_each_member_of_a_view_is_heard"
             "[with the key]"),
    Mutation("remember in a view of whom nothing has opened", "ViewSeal.sender",
             "return Sender(salt, -1, None, self.root)",
             "return self.senders.setdefault(sender, Sender(salt, -1, None, self.root))",
             test=KEYS
             + "test_who_proves_himself_with_the_number_of_a_member_takes_no_place_in_its_view"),
    Mutation("do not ask a member whose number somebody has proved", "ViewSeal.sender",
             "and found.salt == salt", "",
             test=KEYS
             + "test_a_member_whose_number_somebody_proves_is_asked_when_it_speaks_in_its_view"),
    Mutation("seal from two threads at once", "SealedTransport.put",
             "with self._sealing:", "if True:",
             test=THREATS + "test_threads_that_send_at_once_never_use_a_number_twice"),
    Mutation("ask who somebody is that has said something without a seal", "SealCore.open_one",
             "return None\n        sender =",
             "self._note_stranger(header.sender)\n            return None\n        sender =",
             test=THREATS + "test_who_seeks_without_a_seal_is_not_even_asked_who_it_is"),
    Mutation("say ALIVE when it is time, whatever the coordinator says", "Detection.hear_inside",
             "self.next_beat = now", "pass",
             test=MEMBERSHIP + ALIVE_TOGETHER),
    Mutation("say ALIVE whenever the coordinator does", "Detection.hear_inside",
             "self.next_beat - now <= (LATER - EARLIEST) * self.interval // 100",
             "True", test=MEMBERSHIP + ALIVE_FORGED),
    Mutation("do not wait for the coordinator to say ALIVE", "Detection._beat",
             "else LATER", "else 80", test=MEMBERSHIP + ALIVE_TOGETHER),
    Mutation("say ALIVE when any member does", "Detection.hear_inside",
             "and member == self.layer.acting(set())", "",
             test=MEMBERSHIP + ALIVE_FORGED),
    Mutation("wait longer for those who were cut off", "Membership._install",
             "- self.detection.silent", "",
             test=MEMBERSHIP
             + "test_a_group_that_comes_apart_again_and_again_is_one_as_quickly_each_time"),
    Mutation("wait longer because members have left", "Membership._install",
             "- self.leavers.keys()", "",
             test=MEMBERSHIP + "test_members_that_come_and_go_make_no_partition_last_longer"),
    Mutation("a group that waits long to meet was not broken before", "Meeting.join",
             "        if has_lost:", "        if now - self.met_at >= STEADY:\n"
             "            self.hold_off = HOLD_OFF\n        elif has_lost:",
             test=MEMBERSHIP
             + "test_two_that_do_not_hear_each_other_do_not_make_all_others_change_their_view"),
    Mutation("meet as soon again however often the group breaks", "Meeting.join",
             "2 * self.hold_off, MOST", "HOLD_OFF, MOST",
             test=MEMBERSHIP
             + "test_two_that_do_not_hear_each_other_do_not_make_all_others_change_their_view"),
    Mutation("say that there is a view to each that seeks", "Meeting.present",
             "self.told.allows(now) if taken is None", "True if taken is None",
             test=HOSTILE
             + "test_however_many_seek_a_member_says_only_so_often_that_there_is_a_view"),
    Mutation("say to each that seeks that its name is taken", "Meeting.present",
             "self.taken.take(now)", "True",
             test=HOSTILE
             + "test_however_many_seek_with_the_name_of_a_member_it_is_said_only_so_often"),
    Mutation("name all members to each that asks", "Meeting.name_all",
             "and self.named.allows(now)", "",
             test=HOSTILE + "test_strangers_have_a_small_part_sent_of_what_they_send"),
    Mutation("answer a stranger whenever it seeks", "Meeting.take_seek",
             "is_new = sender not in self.discovery.seekers", "is_new = True",
             test=HOSTILE + "test_strangers_have_a_small_part_sent_of_what_they_send"),
    Mutation("tell one that seeks more than it has told", "Meeting.answer",
             "layer.local.name, layer.stack.physical", "layer.local.name, \"x\" * 200",
             test=HOSTILE + "test_a_seek_is_answered_with_one_that_differs_only_in_names"),
    Mutation("a HELLO for each one that is asked", "Seal.hellos",
             "-(-len(asked) // MOST_ASKED)", "len(asked)",
             test=THREATS + "test_no_hello_is_answered_with_much_more_than_it_has"),
    Mutation("a HELLO for each one that is answered", "Seal.hellos",
             "most = MOST_ANSWERS if self.identity is None else MOST_SIGNED_ANSWERS", "most = 1",
             test=TRUST + "test_no_signed_hello_is_answered_with_much_more_than_it_has"),
    Mutation("a seal shows its keys", "Seal.take_linked", "def take_linked(self)",
             "def __repr__(self) -> str:\n        return f\"Seal({self.keys.hello!r})\"\n\n"
             "    def take_linked(self)",
             test="tests/security/test_sealed_channel.py::"
                  "test_no_secret_is_in_what_a_member_says_of_itself"),
    Mutation("a seal draws what every process draws", "open_transport",
             "secrets.token_bytes(ENTROPY)", "bytes(ENTROPY)",
             test=THREATS
             + "test_a_real_channel_draws_what_is_random_from_the_operating_system"),
    Mutation("a keyring draws what every process draws", "open_access",
             "secrets.token_bytes(ENTROPY)", "bytes(ENTROPY)",
             test=THREATS
             + "test_a_real_channel_draws_what_is_random_from_the_operating_system"),
    Mutation("off loopback without a seal", "check_interface",
             "not address.is_loopback and not insecure", "False",
             test=SECRET + "test_off_loopback_it_is_one_of_the_two"),
    Mutation("take a secret that others can read", "_read_secret_file", "if not is_private:",
             "if False:", test=SECRET + "test_a_secret_that_others_can_read_or_write_is_refused"),
    Mutation("the check of a TCP record needs no key", "_check", ", key=key)", ")",
             test=HANDSHAKE + "test_a_record_answers_one_record_and_is_made_with_one_key"),
    Mutation("leave readable what is sent", "SealCore.seal_one",
             "under.cipher.encrypt_into(nonce(header.channel, header.number), datagram,"
             " clear(&header), sealed[HEADER:])",
             "sealed[HEADER:HEADER + len(datagram)] = datagram",
             test=THREATS + "test_nothing_can_be_read_of_what_is_sent"),
    Mutation("remember each stranger that sends garbage", "Seal._note_stranger",
             "and len(self._strangers) <= MOST_ASKED", "",
             test=THREATS + "test_a_flood_of_garbage_is_counted_and_leaves_nothing_behind"),
    Mutation("read a HELLO whose counts do not fit", "read_hello",
             "if len(body) != end + more:", "if False:",
             test=THREATS + "test_a_hello_with_counts_that_do_not_fit_is_refused"),
    Mutation("read the counts of a HELLO that has none", "read_hello",
             "if len(body) < _BODY.size:", "if False:",
             test=THREATS + "test_a_hello_with_counts_that_do_not_fit_is_refused"),
    Mutation("show a secret that is given in the place of its path", "_read_secret_file",
             "if re.fullmatch", "if not re.match",
             test=SECRET + "test_a_secret_that_is_given_itself_is_refused_and_not_shown"),
    Mutation("a forked child seals with its parent's numbers", "_disable_copies",
             "in tuple(CLOSINGS):", "in ():",
             test="tests/security/test_sealed_channel.py::"
                  "test_a_child_that_inherits_a_channel_seals_nothing"),
    # ----------------------------------------------------------------------------- trusted keys
    Mutation("believe any signature", "Identity.believes",
             "Ed25519PublicKey.from_public_bytes(key).verify(proof[IDENTITY_SIZE:], said)", "pass",
             test=TRUST + "test_of_a_signed_hello_no_flipped_bit_is_believed"),
    Mutation("believe any key", "Identity.believes", "key not in self.trusted or", "",
             test=TRUST + "test_who_has_no_trusted_key_is_not_heard_and_hears_nothing"),
    Mutation("check as many signatures as a stranger sends", "Identity.believes",
             "or not self._checks.take(now)", "",
             test=TRUST + "test_only_so_many_signatures_are_checked"),
    Mutation("check what concerns others", "Seal._on_hello",
             "(is_answer or is_question) and not", "not",
             test=TRUST + "test_what_concerns_others_is_not_checked"),
    Mutation("a key speaks for a process of another one", "Seal._is_believed",
             "self.identity.may_be(sender, hello.proof)", "True",
             test=TRUST
             + "test_nobody_speaks_in_the_name_of_a_process_that_has_proved_another_key"),
    Mutation("a stranger disputes whose a process is", "Seal._is_believed",
             "if is_believed and not", "if not",
             test=TRUST + "test_a_key_that_nobody_trusts_disputes_nothing"),
    Mutation("tell nobody that two keys sign for one process", "SealedTransport._tell",
             "log.warning(", "log.debug(",
             test=CHANNEL + "test_two_keys_that_sign_for_one_process_are_told"),
    Mutation("a signature serves all groups and secrets", "_signed_hello", "+ key + raw", "+ raw",
             test=TRUST + "test_a_hello_is_signed_for_one_group_and_secret"),
    Mutation("a key may use whatever begins with its name", "may_use",
             'name.partition("/")[0] in names', "name[:1] in names",
             test=TRUST + "test_a_key_may_use_its_name_and_what_is_below_it"),
    Mutation("let in who seeks, whatever its name", "Membership._on_seek",
             "not self.rekeying.believes(sender, seek.name, seek.public)", "False",
             test=TRUST + "test_who_seeks_with_the_name_of_another_key_is_not_let_in"),
    Mutation("take PRESENT in any name", "Membership._on_present",
             "not self.rekeying.believes(sender, present.name)", "False",
             test=TRUST + "test_who_seeks_with_the_name_of_another_key_is_not_let_in"),
    Mutation("a proved name may have any public key", "Identity.fits",
             "public in (None, proved.public)", "True",
             test=TRUST + "test_who_seeks_with_the_name_of_another_key_is_not_let_in"),
    Mutation("promise a view with who has not proved its seat", "Membership.take_prepare",
             "strangers := self.rekeying.strangers(prepare.seats)", "strangers := []",
             test=TRUST
             + "test_no_member_promises_a_view_with_one_who_has_not_proved_its_seat[name]"),
    Mutation("install a view with other names", "Rekeying.fits",
             "and not self.strangers(install.seats)", "",
             test=TRUST + "test_a_view_whose_names_were_changed_is_not_installed"),
    Mutation("a member may take another name in the next view", "Rekeying.strangers",
             "or (old.name, old.public) != (seat.name, seat.public)", "",
             test=TRUST + "test_who_takes_another_name_is_a_stranger"),
    Mutation("exclude who does not trust one that comes", "Coordinator._part",
             "change.members & set(refuse.strangers) - ours.keys() or {sender} - ours.keys()",
             "{sender}",
             test=TRUST
             + "test_a_member_that_refuses_a_stranger_stays_and_the_stranger_does_not_come"),
    Mutation("let nobody meet before it is judged", "Coordinator._part",
             "or now - change.began < MEETING", "",
             test=TRUST
             + "test_a_member_that_refuses_a_stranger_stays_and_the_stranger_does_not_come"),
    Mutation("take a part of a group", "Coordinator._leave_out",
             "and seat.before not in groups", "",
             test=TRUST
             + "test_a_member_that_refuses_a_stranger_stays_and_the_stranger_does_not_come"),
    Mutation("try at once again with one whom a member does not trust", "Discovery.is_shunned",
             "now < self.shunned.get(sender, 0)", "False",
             test=TRUST
             + "test_one_whom_a_member_does_not_trust_is_not_let_in_and_nobody_is_excluded"),
    Mutation("keep who has lost its name", "Membership.linked",
             "self.detection.misname(self.rekeying.misnamed([member]))", "pass",
             test=TRUST + "test_a_member_whose_key_loses_its_name_keeps_nobody_out"),
    Mutation("ask for its name who has to prove it again", "Identity.has_lost",
             "proved is not None and not may_use", "proved is None or not may_use",
             test=TRUST + "test_a_key_that_loses_a_name_that_is_not_used_stays"),
    Mutation("keep in the next view who has lost its name", "Membership._install",
             "self.detection.misname(self.rekeying.misnamed(self.members))", "pass",
             test=TRUST + "test_a_member_that_has_lost_its_name_must_go_in_the_next_view_too"),
    Mutation("remember whose key was removed", "Seal.retrust",
             "for sender in gone:\n                self._forget(sender)", "pass",
             test=TRUST + "test_whose_key_is_removed_is_heard_no_more_and_reads_nothing"),
    Mutation("seal on with what a removed one knows", "Seal.retrust", "self._replace_root()",
             "pass",
             test=TRUST + "test_whose_key_is_removed_is_heard_no_more_and_reads_nothing"),
    Mutation("answer who asked before its key was removed", "Seal.retrust",
             "self._answers, self._publics = {}, {}", "pass",
             test=TRUST
             + "test_who_asked_before_its_key_was_removed_is_not_answered_with_the_new_root"),
    Mutation("keep the challenge that a removed one has answered", "Seal.retrust",
             "self._draw_challenge()", "pass",
             test=TRUST + "test_a_key_that_comes_back_brings_no_process_back"),
    Mutation("another root in the next epoch", "Seal._replace_root", "under.epoch += 1", "pass",
             test=TRUST + "test_who_did_not_hear_of_the_new_root_asks_for_it"),
    Mutation("a root is bound to nobody", "_info_of_root", "% (sender, receiver, epoch)",
             "% (0, 0, 0)",
             test=TRUST + "test_what_a_hello_brings_opens_for_the_one_whom_it_answers_alone"),
    Mutation("a root takes no secret", "Keys.of_process", "self._senders + key", "key",
             test=TRUST + "test_what_opens_the_datagrams_of_a_process_takes_the_secret_too"),
    Mutation("take a record of TCP that nobody trusted has signed", "decode",
             "and identity.believes(_signed_record(raw, before), proof, now)", "",
             test=TRUST + "test_a_handshake_of_somebody_without_a_trusted_key_is_refused"),
    Mutation("take a record of TCP in the name of a process of another key", "decode",
             "identity.may_be(member, proof)", "True",
             test=TRUST
             + "test_no_handshake_is_taken_in_the_name_of_a_process_that_has_proved_another_key"),
    Mutation("trust no more what cannot be read for a while", "Folder._read_changed",
             "unread[file] = str(error)", "unread[file] = str(error)\n                continue",
             test=FOLDER + "test_a_file_that_cannot_be_read_for_a_while_takes_no_trust_away"),
    Mutation("read once what could not be read", "Folder._read_changed",
             "stamps | dict.fromkeys(unread)", "stamps",
             test=FOLDER + "test_a_file_that_cannot_be_read_for_a_while_takes_no_trust_away"),
    Mutation("trust for ever what could not be read once", "Folder._read_changed",
             "stamps | dict.fromkeys(unread)",
             "{file: stamp for file, stamp in stamps.items() if file not in unread}",
             test=FOLDER + "test_a_key_that_cannot_be_read_is_trusted_until_its_file_is_removed"),
    Mutation("see not who may write a key", "_stamp",
             "status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode",
             "status.st_ino, status.st_size",
             test=FOLDER + "test_a_key_is_read_again_after_the_chmod_that_the_log_asks_for"),
    # ----------------------------------------------------------------------------- keys of views
    Mutation("the key of the former view still seals", "Seal.rekey",
             "self._in_view is None or self._in_view.tag != present.tag", "self._in_view is None",
             test=FORMER + "test_who_was_excluded_reads_nothing_of_the_next_views"),
    Mutation("no new key when somebody has gone", "Keyring.make",
             'view_id.to_bytes(8, "little"))', 'b"")',
             test=FORMER + "test_who_was_excluded_reads_nothing_of_the_next_views"),
    Mutation("the key of a former view opens for ever", "SealCore.open_one",
             "view is None or now >= view.until", "view is None",
             test=KEYS + "test_a_key_that_was_replaced_seals_nothing_and_opens_for_a_moment"),
    Mutation("the key of a former view opens no more at once", "Seal.rekey", "now + OLD_KEY", "now",
             test=KEYS + "test_a_key_that_was_replaced_seals_nothing_and_opens_for_a_moment"),
    Mutation("remember keys that open no more", "Seal.end_old", "if view.until > now", "",
             test=KEYS + "test_a_key_that_was_replaced_seals_nothing_and_opens_for_a_moment"),
    Mutation("take a view from a coordinator that does not hold our key", "Keyring.take",
             "chain is not None and not self._is_chained(chain, _said(view_id, seats, keys))",
             "False",
             test=FORMER + "test_who_was_excluded_makes_no_view_of_the_others"),
    Mutation("a chain may link to any key that we hold", "Keyring._is_chained",
             "_link(self._held[self.present].key), said)\n"
             "        return hmac.compare_digest(chain.get(self.present, b\"\"), mac)",
             "_link(self._held[max(self._held)].key), said)\n"
             "        return hmac.compare_digest(chain.get(max(self._held), b\"\"), mac)",
             test=KEYS + "test_who_was_to_come_and_did_not_makes_no_view_of_the_others"),
    Mutation("a chain does not cover the public keys", "_said", "seat.public, sealed]", "sealed]",
             test=KEYS + "test_a_chain_covers_all_that_a_prepare_says_of_keys"),
    Mutation("link only to the view that was installed last", "Keyring.make",
             "self._links | {each: _link(held.key) for each, held in self._held.items()}",
             "{self.present: _link(self._held[self.present].key)} if self.present else {}",
             test=KEYS + "test_who_missed_a_view_and_who_has_it_understand_each_other"),
    Mutation("the key is not bound to the view", "Keyring._info", "% (view_id, member)",
             "% (0, member)", test=KEYS + "test_a_key_is_bound_to_the_view_and_to_the_member"),
    Mutation("two keys for one view", "Keyring.take", "return held.maker == maker", "pass",
             test=KEYS + "test_of_one_view_there_is_one_key"),
    Mutation("prepare an older view again", "Keyring.take", "view_id <= self.present or", "",
             test=KEYS + "test_an_older_view_is_not_prepared_again"),
    Mutation("install a view that was given up for a later one", "Membership.take_install",
             "elif install.id == self.promised:", "elif install.id <= self.promised:",
             test=FORMER + "test_a_view_that_was_given_up_for_a_later_one_is_not_installed"),
    Mutation("install the present view again", "Membership._install",
             "mine.before != before or install.id <= before", "False",
             more=(("seat.before != before for", "False for"),
                   ("not self.multicast.may_end_at(mine.cut) or", "")),
             test=FORMER + "test_a_former_member_that_says_install_again_changes_nothing"),
    Mutation("install a former view again", "Membership",
             "elif install.id == self.promised:", "elif install.id <= self.promised:",
             more=(("mine.before != before or install.id <= before", "False"),
                   ("seat.before != before for", "False for"),
                   ("not self.multicast.may_end_at(mine.cut) or not self.rekeying.fits(install)",
                    "False")),
             test=FORMER + "test_a_former_member_that_says_install_again_changes_nothing"),
    Mutation("hold the keys of former views", "Keyring.install", "if each >= view_id", "",
             test=KEYS + "test_each_view_has_a_new_key"),
    Mutation("a view has other members than its key", "Keyring.fits",
             "held is not None and held.members == _publics(seats)", "held is not None",
             test=KEYS + "test_a_view_is_that_of_the_members_for_whom_its_key_was_made"),
    Mutation("install a view with members that its key was not made for", "Membership._install",
             "or not self.rekeying.fits(install)", "",
             test=FORMER + "test_a_view_with_a_public_key_that_was_changed_is_not_installed"),
    Mutation("install a view in which a member has another name", "Membership._install",
             "told = [(each.incarnation, each.name) for each in install.seats]", "told = []",
             test=HOSTILE + "test_no_member_installs_a_view_in_which_one_of_its_view_has_"
                            "another_name"),
    Mutation("install a view in which an absent member has another name", "Membership._install",
             "told += [(each.incarnation, each.name) for each in install.absent]", "pass",
             test=HOSTILE + "test_no_member_installs_a_view_in_which_an_absent_one_has_"
                            "another_name"),
    Mutation("a joiner installs a view in which it has another name", "Membership._install",
             "| {self.local.incarnation: self.local.name}", "",
             test=HOSTILE + "test_no_joiner_installs_a_view_in_which_it_has_another_name"),
    Mutation("keep the window of a connection that is given up", "Closed.give_up",
             "self.stream.retire()", "pass",
             test=UNICAST + "test_lives_that_come_and_go_leave_a_slow_application_no_window_"
                            "of_each[0-False-0]"),
    Mutation("a connection that was given up goes on before all is finished",
             "Receivers._find_low", "None if closed.is_held else closed.delivered",
             "closed.delivered",
             test=UNICAST + "test_what_an_application_has_of_a_connection_that_was_given_up_is_"
                            "not_acknowledged"),
    Mutation("a connection that was given up goes on behind what was in its window",
             "Closed.give_up", "self.stream.whole", "self.stream.ring.hd",
             test=UNICAST + "test_a_large_message_of_a_connection_that_was_given_up_comes_whole"),
    Mutation("time out a window that has a begun message of a member that is back",
             "Lifecycle._is_needed",
             "receiver.peer in self.context.members and not receiver.is_idle", "False",
             test=UNICAST + "test_a_large_message_of_a_member_that_is_back_does_not_time_out"),
    Mutation("give up what was kept of a member that is back", "Lifecycle.install_view",
             "self.receivers.resume(peer, now)", "pass",
             test=UNICAST + "test_a_large_message_of_a_member_that_is_back_is_not_given_up"),
    Mutation("acknowledge the rest of a message whose begin was given up", "Closed.is_held",
             "self.is_torn or", "",
             test=UNICAST + "test_the_rest_of_a_large_message_that_was_given_up_is_reported_and_"
                            "not_acknowledged[0]"),
    Mutation("the first fragment of an OOB message is the one that came first",
             "Reassembly.add", "if precedes(seqno, assembly.first):", "if False:",
             test="tests/protocols/test_frag.py::"
                  "test_an_oob_message_begins_at_its_lowest_fragment_that_came"),
    Mutation("a newer connection does not wait for one that was given up",
             "Receivers._open_entry", "self.deliveries.await_finished(closed.stream)", "pass",
             test=UNICAST + "test_a_newer_connection_waits_for_what_an_application_has_of_one_"
                            "that_was_given_up"),
    Mutation("who stops acknowledges what was delivered of a closed connection",
             "Receivers._refuse_messages", "closed.finished", "closed.delivered",
             test=UNICAST + "test_who_stops_does_not_acknowledge_what_its_application_has_of_a_"
                            "closed_connection[True]"),
    Mutation("who tells which connection is the latest acknowledges what was delivered",
             "Receivers._tell_latest",
             "tell(sender, closed.conn_id, closed.finished",
             "tell(sender, closed.conn_id, closed.delivered",
             test=UNICAST + "test_who_tells_which_connection_is_the_latest_acknowledges_nothing_"
                            "that_is_not_finished"),
    Mutation("keep the parts of a connection that is given up", "Deliveries.give_up",
             "entry.stream.retire()", "entry.ring.close()",
             test=UNICAST + "test_lives_that_come_and_go_leave_a_slow_application_no_window_"
                            "of_each[8-True-0]"),
    Mutation("look at all ranges of a flood of requests", "Quota.take",
             "MAX_RANGES - before", "room",
             test=FORGED + "test_of_a_flood_of_requests_only_so_many_ranges_are_looked_at_"
                           "in_a_turn[mcast-udp]"),
    Mutation("look at all ranges of a flood of requests in many names", "Quota.take",
             "max(MOST_LOOKED - self.total,", "max(MAX_RANGES,",
             test=GAPS + "test_of_many_that_ask_for_much_in_one_turn_each_has_its_part"),
    Mutation("a flood in many names leaves nothing for the others", "Quota.take",
             "MOST_LOOKED // max(1, num_members) - before", "0",
             test=GAPS + "test_of_many_that_ask_for_much_in_one_turn_each_has_its_part"),
    Mutation("many that ask for much are remembered without bound", "Requests._note",
             "MOST_NOTED - self.num_noted", "MAX_RANGES",
             test=GAPS + "test_many_members_that_ask_for_much_are_not_remembered_without_bound"),
    Mutation("believe the first refusal", "Mcast._on_refusal",
             "self.refusals.get(member)", "True",
             test=FORGED + "test_one_refusal_in_anothers_name_ends_no_stream"),
    Mutation("believe the first vote that takes nothing", "Stable._is_believed",
             "elif member not in self.refusals:", "elif False:",
             test=FORGED + "test_one_vote_that_its_member_takes_nothing_ends_no_stream"),
    Mutation("believe the first refusal of a connection", "SenderEntry.accept_refusal",
             "self.was_granted and not self.is_doubted", "False",
             test=FORGED + "test_one_refusal_in_anothers_name_closes_no_connection"),
    Mutation("go on below a connection that somebody else has opened", "Senders._outbid",
             "if is_said_again:", "if False:",
             test=FORGED + "test_one_connection_in_anothers_name_stops_no_messages"),
    Mutation("deliver of a newer connection at once", "Deliveries.is_held",
             "sender in self.former or", "",
             test=UNICAST + "test_an_application_has_messages_of_one_connection_of_a_sender_at_a_"
                            "time"),
    Mutation("a vote counts however far ahead it is", "Stable._possible",
             "if not false:", "if True:",
             test=FORGED + "test_one_vote_far_ahead_says_nothing_of_what_is_sent_later"),
    Mutation("keep the first early vote of each member", "Stable._on_vote",
             "self.early.remember(sender, vote)", "self.early.setdefault(sender, vote)",
             test=STABLE + "test_early_votes_are_bounded_and_stale_ones_are_not_kept"),
    Mutation("any host may take a link", "Handshaking._on_propose",
             "peer.is_linked and shake.host != peer.host", "False",
             test=TCP + "test_a_link_that_stands_is_not_taken_from_another_host"),
    Mutation("believe any id", "Ceiling.allows",
             "counter <= self.counter", "True",
             test=HOSTILE + "test_a_group_whose_ids_somebody_drives_up_goes_on"),
    Mutation("a joiner keeps its promise for good", "Membership.take_prepare",
             "self.voting.last_id if is_void else self.promised", "self.promised",
             test=HOSTILE + "test_a_joiner_takes_a_lower_view_when_the_one_that_it_has_promised_"
                            "did_not_come"),
    Mutation("a report counts however far ahead it is", "Change._cut",
             "if not precedes(last, each[0])", "",
             test=CHANGE + "test_nobody_can_have_more_than_a_window_beyond_what_the_sender_has_"
                           "reported"),
    Mutation("a view has all departed senders that are reported", "Change._most_reported",
             "[:MAX_STREAMS]", "",
             test=CHANGE + "test_departed_senders_that_one_member_makes_up_keep_no_view_from_being_"
                           "read"),
    Mutation("a stream may end anywhere", "Membership._install",
             "not self.multicast.may_end_at(mine.cut) or", "",
             test=HOSTILE + "test_no_member_installs_a_view_that_ends_its_stream_where_it_cannot_"
                            "end"),
    Mutation("a member may be twice in a view", "are_seats",
             "len(members) == len(names) == len(view.seats)", "True",
             test=HOSTILE + "test_what_contradicts_itself_is_no_view"),
    Mutation("others say what the view of the coordinator is", "Change.known",
             "report.install.id != ours.id", "True",
             test=HOSTILE + "test_no_report_makes_somebody_absent_in_the_view_of_its_coordinator"),
    Mutation("make a view for each NEED", "Coordinator.renew",
             "self.renewed.allows(now)", "True",
             test=STATES + "test_however_many_say_need_a_view_is_made_only_so_often"),
    Mutation("make a view for each REFUSE", "Coordinator.renew",
             "is_allowed = self.renewed.allows(now)", "is_allowed = True",
             test=FORGED + "test_however_many_refuse_the_view_that_they_have_another_one_is_made_"
                           "only_so_often"),
    Mutation("begin again whatever a member says of primary views", "Coordinator._decide",
             "is_untold and change.tries < TRIES", "is_untold",
             test=HOSTILE + "test_who_knows_of_another_primary_view_each_time_keeps_no_other_"
                            "member_from_one"),
    Mutation("a view is primary though its members do not know it", "Coordinator._decide",
             "verdict.is_primary and not is_untold", "verdict.is_primary",
             test=HOSTILE + "test_who_knows_of_another_primary_view_each_time_keeps_no_other_"
                            "member_from_one"),
    Mutation("begin again however long somebody refuses", "Coordinator.take_refusal",
             "now - since >= REFUSING", "False", test=REFUSES + "[member-0-False]"),
    Mutation("a member that refuses for long is waited for", "Coordinator.take_refusal",
             'layer.detection.depart([sender], "it refuses each view")', "return",
             test=REFUSES + "[member-0-False]"),
    Mutation("begin again however long somebody refuses INSTALL", "Coordinator.join",
             "self.held_up_since = None", "self.refused.clear()",
             test=REFUSES + "[member-0-True]"),
    Mutation("begin again at once however often somebody refuses", "Coordinator.take_refusal",
             "times >= MOST_REFUSED", "False", test=REFUSES + "[comes-0-False]"),
    Mutation("a first view is begun again at once however often somebody refuses",
             "Coordinator.form", "now >= self.rests_until and", "",
             test=REFUSES + "[forms-0-False]"),
    Mutation("who has refused once has refused each attempt", "Coordinator.begin",
             "asked -= self.change.installed", "pass",
             test=HOSTILE + "test_who_refuses_the_first_attempt_each_time_is_not_excluded"),
    Mutation("remember who has refused while another one coordinates", "Coordinator.stop",
             "self.refused.clear()", "pass",
             test=HOSTILE + "test_who_refused_before_another_one_coordinated_has_not_refused_"
                            "since"),
    Mutation("somebody new comes with each attempt", "Coordinator._is_stuck",
             "strangers and change.install is None", "False",
             test=HOSTILE + "test_who_comes_under_ever_more_numbers_keeps_no_member_from_a_view"
                            "[False-seek]"),
    Mutation("a first view waits for other ones each time", "Coordinator.form",
             "self._leave_out(change.missing() - {layer.local.incarnation}, now)", "self.stop()",
             test=HOSTILE + FORMS + "[20]"),
    Mutation("wait for a calm moment to form a group, however long", "Discovery.is_calm_at",
             "min(self.changed, self.restless + MOST_RESTLESS)", "self.changed",
             test=HOSTILE + FORMS + "[20]"),
    Mutation("those who may form a group begin at one moment", "Discovery.wait_anew",
             "self.changed = self.restless = now", "self.changed = now",
             test=HOSTILE + FORMS + "[20]"),
    Mutation("those who are not the lowest leave the group to it for ever", "Discovery.may_form",
             "(not rank or since >= LOWEST + rank * NEXT)", "not rank",
             test="tests/sim/test_forming.py::test_who_should_form_the_group_and_hears_nobody_"
                  "keeps_the_others_from_no_view[mcast-udp]"),
    Mutation("who is not heard by all tries again and again to form the group",
             "Coordinator._leave_out", "if not ours and self.change is None and lives:",
             "if False:",
             test="tests/sim/test_forming.py::test_who_should_form_the_group_and_is_not_heard_by_"
                  "one_lets_another_one_do_it[mcast-udp-ABC-1-6]"),
    Mutation("those who come are left out one by one, however long", "Coordinator._leave_out",
             "ours and now - self.held_up_since >= REFUSING", "False",
             test=HOSTILE + "test_members_that_come_and_answer_only_so_often_keep_nobody_from_a_"
                            "view_for_long"),
    Mutation("two coordinators begin again at once, however often", "Coordinator.coordinate",
             "and now >= self.rests_until", "",
             test=HOSTILE + "test_two_that_prepare_for_each_other_do_not_outbid_each_other_without_"
                            "a_pause"),
    Mutation("two coordinators wait as long each time", "Coordinator._rest",
             "pause << min(times, MOST_DOUBLINGS)", "pause",
             test=HOSTILE + "test_two_that_prepare_for_each_other_do_not_outbid_each_other_without_"
                            "a_pause"),
    Mutation("keep who reports in each view what was not sent", "Coordinator._accuse",
             "times >= MOST_FALSE", "False",
             test=FORGED + "test_who_reports_again_and_again_what_a_member_has_not_sent_is_excluded"
                           "[mcast-udp-D-A]"),
    Mutation("accuse also the coordinator", "Detection.contradict",
             "sender if member == self.layer.local.incarnation else member", "member",
             test=FORGED + "test_a_sender_that_denies_again_and_again_what_the_coordinator_has_is_"
                           "excluded"),
    Mutation("forget no accusation", "Coordinator._decide",
             "if member in change.claims.values()", "",
             test=FORGED + "test_who_reports_now_and_then_what_a_member_denies_is_kept"),
    Mutation("accuse whoever has as much as the sender", "Change.decide",
             "if precedes(report.digest[seat.incarnation], cut):", "if True:",
             test=FORGED + "test_who_refuses_views_in_which_nobody_claims_more_excludes_nobody"),
    Mutation("accuse when a view is late", "Coordinator.take_refusal",
             "refuse.promised <= refuse.id and", "",
             test=FORGED + "test_who_waits_for_a_view_that_is_late_accuses_nobody"),
    Mutation("a LEAVE counts in each view", "Leaving.hear",
             "if last == layer.view_id:", "if True:",
             test=HOSTILE + "test_a_leave_of_another_view_takes_nobody_out"),
    Mutation("a LEAVE is noted for any view", "Leaving.hear",
             "min(last, known)", "last",
             test=HOSTILE + "test_a_leave_of_a_view_far_ahead_does_not_end_the_absence_of_a_"
                            "member"),
    Mutation("a view is settled when somebody says so", "Settling.hear",
             "self.layer.multicast.is_complete()", "True",
             test=HOSTILE + "test_a_member_that_is_not_complete_knows_that_nothing_is_settled"),
    Mutation("prepare a view of all that seek", "Coordinator._wanted",
             "and len(seats) < MAX_MEMBERS", "",
             test=HOSTILE + "test_however_many_seek_a_view_can_be_prepared"),
    Mutation("answer each PREPARE of a stranger", "Membership.take_prepare",
             "not self.strangers.take(now)", "False",
             test=HOSTILE + "test_however_many_strangers_prepare_they_are_answered_only_so_often"),
    Mutation("say nothing when a view says that we have what we have not", "Membership._remind",
             "or self._is_misquoted()", "",
             test=FORGED + "test_one_report_of_more_than_there_is_ends_no_deliveries"
                           "[mcast-udp-A-1]"),
    Mutation("our own stream may end beyond what was sent", "Install.held_by", "own + held", "held",
             test=FORGED + "test_one_report_of_more_than_there_is_ends_no_deliveries"
                           "[mcast-udp-C-1]"),
    Mutation("say nothing when we had to give up what our view says that we have",
             "Membership._install", "self.multicast.can_give(sender, part) or not", "not",
             test=FORGED + "test_who_had_to_give_up_what_it_has_reported_asks_for_another_view"
                           "[mcast-udp]"),
    Mutation("wait for ever for who does not give what it has reported", "Detection.suspected",
             "| self.withholding", "",
             test=FORGED + "test_who_never_gives_what_it_reports_again_and_again_is_excluded"
                           "[mcast-udp-D-3]"),
    Mutation("suspect who gives something now and then", "Fetching._add", "if added:", "if False:",
             test=FORGED + "test_a_holder_that_gives_a_message_now_and_then_is_not_suspected"
                           "[mcast-udp]"),
    Mutation("suspect a holder after some seconds, if scans are frequent", "Fetching.withholding",
             "max(WITHHELD, WITHHELD_FOR // self.layer.scan_pause)", "WITHHELD",
             test=FORGED + "test_a_holder_has_twelve_seconds_however_frequent_scans_are"),
    Mutation("suspect a holder though there is no room for what it has", "Fetching.ask",
             "gone.in_vain + gone.has_room", "gone.in_vain + 1",
             test=FORGED + "test_a_holder_is_not_suspected_while_there_is_no_room_for_what_it_has"),
    Mutation("wait for ever for what a member does not give of its own", "Fetching.withholding",
             "window.standing.scans >= enough", "False",
             test=FORGED + "test_a_member_that_does_not_give_what_it_has_sent_is_not_waited_for_"
                           "for_ever[mcast-udp-A]"),
    Mutation("without retransmission, count nothing while a stream is not complete",
             "Nakack2.is_busy", "self.flushing.awaits()", "self.fetching.is_needed()",
             test=FORGED + "test_a_member_that_does_not_give_what_it_has_sent_is_not_waited_for_"
                           "for_ever[nakack2-tcp-A]"),
    Mutation("suspect a sender though the application is slow", "Fetching.ask",
             "if window.is_idle:", "if True:",
             test=FORGED + "test_a_sender_is_not_suspected_while_the_application_has_no_room_for_"
                           "more"),
    Mutation("count on in the next view", "Fetching.ask",
             "(window.come_up_to, layer.view_id)", "window.come_up_to",
             test=FORGED + "test_a_sender_has_twelve_seconds_in_each_view"),
    Mutation("ask only the one that says that it has most", "next_part",
             "part.holder not in passed_over", "True",
             test=DURABLE + "test_who_says_that_it_keeps_more_than_it_has_does_not_stand_for_"
                            "others[mcast-udp-A-4]"),
    Mutation("tell only the parts of those that say that they have most", "outermost",
             "spare[:SPARES]", "[]",
             test=DURABLE + "test_who_says_that_it_keeps_more_than_it_has_does_not_stand_for_"
                            "others[mcast-udp-A-4]"),
    Mutation("free for a cut whatever it is", "Flush._depart", "(last - stream.ring.capacity)",
             "(cut - stream.ring.capacity)",
             test=FORGED + "test_one_report_of_more_than_there_is_ends_no_deliveries"
                           "[mcast-udp-A-1099511627776]"),
    Mutation("what belongs to a view opens without one", "SealCore.open_one",
             "not tag and kind_of(opened) not in self.outside", "False",
             test=KEYS + "test_without_a_view_only_what_needs_none_opens"),
    Mutation("parts of what belongs to a view go outside", "Parts._cut_packet",
             "PART if self.stack.kind(packet.kind).outside else VIEW_PART", "PART",
             test="tests/protocols/test_parts.py::"
             "test_what_only_members_may_say_goes_in_parts_of_its_own"),
    Mutation("parts may carry what belongs to a view", "Parts._may_carry",
             "and ( kind.outside == (part == PART))", "",
             test="tests/protocols/test_parts.py::"
             "test_what_only_members_may_say_goes_in_parts_of_its_own"),
    Mutation("never make a new key on the clock", "Coordinator._wanted",
             "self.renews or (rekey_at is not None and now >= rekey_at)", "self.renews",
             test=FORMER + "test_a_view_that_stands_long_is_followed_by_one_with_another_key"),
    Mutation("take a record that answers another one", "_check", "before + raw", "raw",
             test=HANDSHAKE + "test_a_record_answers_one_record_and_is_made_with_one_key"),
    Mutation("a link outlives the key that signed it", "TcpTransport._cut_dead_links",
             "link.key not in self._identity.trusted", "False",
             test=TRUST + "test_the_links_of_a_key_that_is_removed_are_cut_and_not_made_again"),
    # ------------------------------------------------------------------------- what uses things up
    Mutation("keep all first fragments", "Reassembly._drop_excess",
             "while open_ones.size > most:", "while False:",
             test="tests/protocols/test_frag.py::"
                  "test_a_hostile_sender_fills_no_more_than_the_limits"),
    Mutation("remember everybody for ever", "Latest.remember", "if len(self) <= self.most:",
             "if True:",
             test=FLOOD + "[mcast-udp-of_joiners]"),
    Mutation("remember all offers", "Latest.remember",
             "if len(self) <= self.most:", "if len(self) <= self.most or self.most < 100:",
             test=FLOOD + "[mcast-udp-of_views]"),
    Mutation("a datagram in parts may be as large as it likes", "Parts._keep_part",
             "while self.size > MOST_BYTES:",
             "while self.size > MOST_BYTES and next(iter(self.partials)) != key:",
             test="tests/protocols/test_parts.py::"
                  "test_parts_of_any_size_and_of_anybody_fill_no_more_than_the_limit"),
    Mutation("small parts count for nothing", "Partial.size",
             "+ OVERHEAD * len(self.parts)", "",
             test="tests/protocols/test_parts.py::"
                  "test_parts_of_any_size_and_of_anybody_fill_no_more_than_the_limit"),
    Mutation("keep all connections of who is in no view", "EarlyPackets.keep",
             "self.size >= MOST_EARLY_OF_ALL or", "",
             test="tests/fuzz/test_flooding.py::test_a_member_that_floods_the_others_fills_no_"
                  "memory_and_they_go_on_without_it[mcast-udp-False]"),
    Mutation("keep all parts", "Parts._keep_part", "while self.size > MOST_BYTES:", "while False:",
             test=FLOOD + "[mcast-udp-everything]"),
    Mutation("the end of a link waits behind what came before", "TcpTransport._read",
             "while well and has_ended and not link.is_drained:", "while False:",
             test=TCP + "test_the_end_of_a_link_is_noticed_in_one_poll_with_all_that_came_before"),
    Mutation("a sender passes the polling thread", "Driver.flush",
             "with self._gate:", "if True:",
             test="tests/test_driver.py::test_a_sender_does_not_pass_the_polling_thread_that_waits_"
                  "for_the_turn"),
    Mutation("a connection takes what the kernel gives it at first", "widen",
             "connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)", "pass",
             test=TCP + "test_a_megabyte_waits_for_a_member_that_does_not_poll"),
    Mutation("accept as many connections as come", "Handshaking._make_room",
             "if len(accepted) < MOST_HANDSHAKES:", "if True:",
             test=TCP + "test_many_connections_that_never_speak_do_not_keep_members_from_linking"),
    Mutation("have a descriptor for each stranger that connects", "Handshaking._make_room",
             "if len(accepted) < MOST_HANDSHAKES:", "if True:",
             test="tests/security/test_strangers.py::test_thousands_of_idle_connections_keep_"
                  "nobody_out_and_cost_little[mcast-tcp]"),
    Mutation("the oldest handshake makes room, of whichever host it is", "Handshaking._make_room",
             "if shake.host == host", "",
             test=TCP + "test_who_connects_often_from_one_host_ends_no_handshake_of_another"),
    Mutation("accept on and on without descriptors", "Handshaking._accept",
             "if error.errno in NO_DESCRIPTORS:", "if False:",
             test=TCP + "test_without_descriptors_accepting_pauses_and_goes_on_later"),
    Mutation("log each line of a cause", "Rules.filter", "0 <= record.created - at < PAUSE",
             "False",
             test=LOGS + "test_a_cause_has_one_line_a_second_and_the_next_one_says_how_many_"
                         "there_were"),
    Mutation("log what others choose as it is", "printable",
             "each if each.isprintable() or", "each if True or",
             test=LOGS + "test_what_others_choose_is_escaped"),
    Mutation("unpickle a body", "Kind.decode", "if self._decoder is None:",
             "import pickle\n        if self._decoder is pickle:",
             test="tests/test_house.py::test_decision_24_nothing_is_unpickled_or_evaluated"),
]


@dataclass(frozen=True)
class Place:
    """Where a function or a class stands: a file, the first line and the last, counted
    from 1."""
    path: Path
    first: int
    last: int


@cache
def places() -> dict[str, list[Place]]:
    """Find all functions and classes of ringcast, by their qualified names."""
    found: dict[str, list[Place]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, node in definitions(ast.parse(path.read_text())):
            first = min([node.lineno] + [decorator.lineno for decorator in node.decorator_list])
            found.setdefault(name, []).append(Place(path, first, node.end_lineno or first))
    for path in sorted(CORE.glob("*.pyx")):
        for name, first, last in compiled_definitions(path.read_text().splitlines()):
            found.setdefault(name, []).append(Place(path, first, last))
    return found


def definitions(
    scope: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield the functions and classes of a module, and those of its classes."""
    for node in scope.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{prefix}{node.name}.")


def compiled_definitions(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the functions and classes of a source of the core, and the methods of its
    classes: each up to the next line that stands no deeper."""
    scope = ""
    for first, line in enumerate(lines):
        if head := COMPILED.match(line):
            depth = len(head[1])
            last = next((at for at in range(first + 1, len(lines))
                         if lines[at] and not lines[at].startswith(" " * (depth + 1))), len(lines))
            scope = scope if depth else f"{head[2]}." if head[2] else ""
            yield head[2] or scope + head[3], first + 1, last


def mutate(mutation: Mutation) -> tuple[Path, str]:
    """Return the file that a mutation changes, and the text of this file with the
    mistake."""
    there = places().get(mutation.function, [])
    if len(there) != 1:
        raise ValueError(f"{mutation.name}: bring it up to date; {mutation.function} is defined"
                         f" {len(there)} times")
    place = there[0]
    lines = place.path.read_text().splitlines(keepends=True)
    body = "".join(lines[place.first - 1:place.last])
    for old, new in ((mutation.old, mutation.new), *mutation.more):
        body, times = replaced(body, old, new)
        if times != 1:
            raise ValueError(f"{mutation.name}: bring it up to date; what it replaces occurs"
                             f" {times} times in {mutation.function}")
    lines[place.first - 1:place.last] = [body]
    return place.path, "".join(lines)


def replaced(text: str, old: str, new: str) -> tuple[str, int]:
    """Return the text with `new` for `old`, and how often that was there. Where the
    source breaks its lines does not matter."""
    old = re.sub(r"(?<=\S)\s+(?=\S)", "\0", old)
    return re.subn(re.escape(old).replace("\0", r"\s+"), lambda found: new, text)


def build(path: Path, text: str, target: Path, variant: str = "debug") -> None:
    """Build one source of the core, with this text, into the folder `target`: a variant
    of setup.py. The others are as they are."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, root)
        shutil.copytree(ROOT / "ext", root / "ext", ignore=shutil.ignore_patterns("*.c", "*.pyx"))
        (root / path.relative_to(ROOT)).write_text(text)
        made = root / "made"
        run = subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "-b", made],
                             cwd=root, env=os.environ | {"RINGCAST_BUILD": variant},
                             capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{path.name} could not be built\n{run.stdout}{run.stderr}")
        for library in made.rglob("*.so"):
            (target / library.name).unlink()
            shutil.copy(library, target)


def link(copy: Path, path: Path) -> None:
    """Make `copy` the package without the file `path`. All but the folders that lead to
    that file are links, because it takes long to make files. A folder that is made has
    no compiled modules of the package, or Python would overwrite one."""
    for folder in reversed(path.relative_to(PACKAGE).parents):
        (copy / folder).mkdir()
        for each in (PACKAGE / folder).iterdir():
            if each not in (path, *path.parents) and each.name != "__pycache__":
                (copy / folder / each.name).symlink_to(each)


def hunt(mutation: Mutation) -> str:
    """Return how the mutation was caught, or "" if it survived."""
    path, text = mutate(mutation)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "ringcast"
        if path.suffix == ".pyx":
            link(copy, PACKAGE / "_core" / path.name)
            build(path, text, copy / "_core")
        else:
            link(copy, path)
            (copy / path.relative_to(PACKAGE)).write_text(text)
        said = Path(directory) / "said"
        said.touch()
        process = FORKS.Process(target=look, args=(mutation, directory, said))
        process.start()
        process.join()
        output = said.read_text()
        if process.exitcode not in (0, 1) or (process.exitcode == 1 and not output):
            raise RuntimeError(f"{mutation.name}: the simulation could not be run: see stderr")
        if mutation.test and process.exitcode and " failed" not in output:
            raise RuntimeError(f"{mutation.name}: the test could not be run\n{output}")
        return output.strip() if process.exitcode else ""


def look(mutation: Mutation, directory: str, said: Path) -> None:
    """Run the test of a mutation, or simulate seeds, with the package in `directory`.
    Exit with 1 if that fails. What is printed goes into the file `said`."""
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
    os.chdir(ROOT)
    os.environ |= {"PYTHONPATH": directory, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    sys.path.insert(0, directory)
    if mutation.test:               # with few plugins: to load them takes longer than most tests
        import pytest

        sys.exit(int(pytest.main(["-q", "-x", "-o", "addopts=", "-p", "no:cacheprovider",
                                  "-p", "pytest_timeout", mutation.test])))
    from ringcast.sim.runs.run import simulate
    from ringcast.sim.runs.settings import Settings

    draws = eval(mutation.draws, {"Settings": Settings})
    for seed in range(mutation.first, mutation.first + SEEDS):
        for settings in draws:
            if (outcome := simulate(seed, settings)).check:
                print(f"{outcome.check}, seed {seed}: {outcome.sentence}")
                sys.exit(1)


if __name__ == "__main__":
    word = " ".join(sys.argv[1:])
    survived = 0
    for mutation in MUTATIONS:
        if word in f"{mutation.function} {mutation.name}":
            caught = hunt(mutation)
            survived += not caught
            print(f"{mutation.name:62} {caught[:140] or 'SURVIVED'}", flush=True)
    print(f"{survived} survived")
    sys.exit(survived > 0)
