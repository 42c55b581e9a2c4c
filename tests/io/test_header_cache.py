"""Heads that were read before: found by their bytes, and never where those could mean something else."""

from smart_mcp_proxy.io.header_cache import KnownHeads


def packet(body: bytes, more: bytes = b"") -> bytes:
    return b"POST /mcp HTTP/1.1\r\nhost: here\r\n%bContent-Length: %d\r\nx: y\r\n\r\n%b" % (more, len(body), body)


def test_a_head_is_known_whatever_the_length_of_its_body() -> None:
    heads: KnownHeads[str] = KnownHeads(10)
    assert heads.find(packet(b"call")) is None
    heads.learn(packet(b"call"), b"call", "what was read")
    assert heads.find(packet(b"a longer call")) == ("what was read", b"a longer call")


def test_a_packet_that_holds_more_or_less_than_one_message_is_not_known() -> None:
    heads: KnownHeads[str] = KnownHeads(10)
    heads.learn(packet(b"call"), b"call", "what was read")
    assert heads.find(packet(b"call")[:-1]) is None
    assert heads.find(packet(b"call") + b"\r\n") is None
    assert heads.find(packet(b"call") * 2) is None
    assert heads.find(b"") is None


def test_what_is_not_plain_is_never_learned() -> None:
    """Two lengths, chunks, a head of kilobytes, a parser that saw another body."""
    heads: KnownHeads[str] = KnownHeads(10)
    oddities = (b"content-length: 4\r\n", b"transfer-encoding: chunked\r\n", b"z: %b\r\n" % (b"z" * 5_000))
    for odd in oddities:
        heads.learn(packet(b"call", odd), b"call", "what was read")
        assert heads.find(packet(b"call", odd)) is None
    heads.learn(packet(b"call"), b"cal", "what was read")
    assert heads.find(packet(b"call")) is None


def test_heads_are_bounded() -> None:
    heads: KnownHeads[int] = KnownHeads(10)
    for number in range(25):
        heads.learn(packet(b"call", b"n: %d\r\n" % number), b"call", number)
    known = [number for number in range(25) if heads.find(packet(b"call", b"n: %d\r\n" % number))]
    assert known == [20, 21, 22, 23, 24]
