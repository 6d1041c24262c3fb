"""Channel: one member of a group, on real threads and a real transport."""

from ringcast.channel.channel import Channel, OnMessage, OnView

__all__ = ["Channel", "OnMessage", "OnView"]
