"""What the traces of a group of real processes must show."""

from ringcast.audit.verdict import audit


def check_traces(spark, folder):
    """Check that no trace shows a broken promise. Those of processes that were killed
    have holes, so it is not known of all that it was kept."""
    result, _ = audit(spark, [folder])
    assert result.groups.num_messages > 0
    assert not result.violations, result.verdict
