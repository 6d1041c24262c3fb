"""The simulated application that sends from several threads, and whose messages wait
for company."""

from forming_group import FormingGroup

from ringcast.sim.network import MS


def group(names="AB", **options):
    options = {"threads": 2, "bundle_delay": 5, "turn_time": 1000} | options
    cluster = FormingGroup(names, "mcast-udp", **options).start()
    cluster.settle()
    return cluster


def test_messages_of_several_threads_wait_for_company_and_all_come_in_order():
    cluster = group()
    a = cluster["A"]
    a.offer(1000, 20)
    cluster.run(1)
    assert a.multicast.send_window.waiting > 0 and a.endpoint.bundler.deadline() is not None
    cluster.settle()
    assert cluster["B"].consumer.got[a.address] == a.log and len(a.log) == 1000
    assert a.producer.num_waits > 0 and a.num_ahead > 0 and a.producer.threads.running == []


def test_without_threads_a_message_leaves_in_the_instant_of_its_send():
    cluster = group(threads=0)
    a = cluster["A"]
    a.offer(1000, 20)
    cluster.run(0)
    assert a.multicast.send_window.sent == 1000 and a.endpoint.bundler.deadline() is None


def test_what_waits_is_sent_when_the_process_is_free():
    cluster = group(threads=1, bundle_delay=400, turn_time=5 * MS)
    a = cluster["A"]
    a.offer(2, 20)
    seen = []
    for _ in range(40):
        cluster.run(1)
        seen.append((a.multicast.send_window.sent, a.multicast.send_window.ring.hr))
    assert (1, 2) in seen and seen[-1] == (2, 2)
    assert 2 <= seen.count((1, 2)) <= 10                # turns of 5 ms, no delay of 400


def test_what_waits_after_a_full_datagram_is_sent_a_delay_later():
    cluster = group(threads=1, bundle_delay=400, max_bundle_size=600)
    a = cluster["A"]
    a.offer(40, 20)
    cluster.run(390)
    assert 0 < a.multicast.send_window.sent < a.multicast.send_window.ring.hr == 40
    cluster.run(20)
    assert a.multicast.send_window.sent == 40


def test_messages_to_one_member_wait_too_and_large_ones_go_in_fragments():
    cluster = group(max_bundle_size=600)
    a, b = cluster["A"], cluster["B"]
    a.send_unicast("B", 50, 20)
    a.send_unicast("B", 3, 5000)
    a.send_unicast("A", 20, 20)
    cluster.run(500)
    assert [a.producer.unicast_logs[each.address].last_delivered for each in (b, a)] == [52, 19]
    assert a.unicast.num_unacked() == 0 and a.producer.num_waits > 0


def test_threads_that_find_no_room_are_released_by_acks():
    cluster = group(capacity=4)
    cluster["A"].offer(100, 5)
    cluster.settle()
    a = cluster["A"]
    assert len(a.log) == 100 and a.producer.num_blockings > 0 and a.multicast.unacked() == 0


def test_threads_stand_still_with_their_process_and_go_on_when_it_does():
    cluster = group()
    a = cluster["A"]
    a.offer(10, 5)
    cluster.run(0)
    a.pause(3_600_000 * MS)
    done = len(a.log)
    cluster.run(100)
    assert len(a.log) == done < 10
    a.end_pause()
    cluster.run(100)
    assert len(a.log) == 10


def test_who_leaves_sends_no_more_and_what_waits_goes_first():
    cluster = group(capacity=32)
    a = cluster["A"]
    a.offer(1000, 5)
    cluster.run(1)
    a.leave()
    cluster.run(500)
    assert a.left and a.producer.threads.running == [] and 0 < len(a.log) < 1000
    assert cluster["B"].consumer.got[a.address] == a.log


def test_threads_interleave_otherwise_with_each_seed_and_alike_with_the_same():
    def datagrams(seed):
        cluster = group(seed=seed)
        cluster["A"].offer(200, 20)
        cluster.settle()
        return cluster.fingerprint

    assert datagrams(1) == datagrams(1) != datagrams(2)
