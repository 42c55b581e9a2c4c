"""The private names of the SDK that client sessions lean on: an upgrade that moves one fails here."""

import inspect

from mcp.client import _probe, sse, streamable_http
from mcp.client.session import ClientSession
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from smart_mcp_proxy.fastmcp_compat.client import is_transport_verdict


def test_a_session_stamps_sends_and_knows_header_rules():
    """`_stamp`, `_dispatcher` and `_x_mcp_header_maps` are attributes of every session."""
    source = inspect.getsource(ClientSession.__init__)
    for name in ("self._stamp:", "self._dispatcher", "self._x_mcp_header_maps:"):
        assert name in source


def test_the_dispatcher_takes_an_id_and_a_progress_listener():
    """Ids are ours, so that replies from before a reconnect belong to nobody."""
    assert list(inspect.signature(JSONRPCDispatcher.send_raw_request).parameters)[1:4] == ["method", "params", "opts"]
    source = inspect.getsource(JSONRPCDispatcher.send_raw_request)
    assert 'opts.get("request_id")' in source
    assert 'opts.get("on_progress")' in source
    assert "self._allocate_id()" in source


def test_negotiation_takes_a_session_alone():
    """Both eras, one call."""
    assert list(inspect.signature(_probe.negotiate_auto).parameters) == ["session"]


def test_the_sse_client_looks_its_stream_up_by_name():
    """And that takes the limit of one event, which the client itself does not."""
    assert "sse_within_origin(client, url) as event_source" in inspect.getsource(sse.sse_client)
    assert "max_event_size" in inspect.signature(sse.sse_within_origin).parameters
    assert not inspect.unwrap(sse.sse_client).__closure__


def test_the_sdks_own_words_are_told_from_a_servers():
    """The messages that the HTTP transport makes up where the server sent no JSON-RPC answer."""
    for own in ("Session terminated", "Server returned an error response", "Failed to parse JSON response: x"):
        assert is_transport_verdict(own)
        assert own.split(": ")[0] in inspect.getsource(streamable_http)
    assert not is_transport_verdict("Not Found: issue 5")
