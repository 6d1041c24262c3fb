"""A channel for asyncio, and for other loops that asyncio's API runs on."""

from ringcast.aio.channel import Channel

__all__ = ["Channel"]
