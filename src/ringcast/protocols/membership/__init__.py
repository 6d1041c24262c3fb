"""Membership: a group that forms itself, and agrees on its views (layer.py)."""

from ringcast.protocols.membership.layer import Membership

__all__ = ["Membership"]
