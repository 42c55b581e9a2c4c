"""A store that cannot take a decision, over HTTP; and one that soon cannot."""

import shutil
from pathlib import Path

import pytest
from full_disks import full_disk
from page_gateway import opened, tool
from plain_http import plain_client

from smart_mcp_proxy.web.rest import operator_token

pytestmark = pytest.mark.anyio


async def test_a_decision_that_cannot_be_stored_now_is_to_be_sent_again(tmp_path: Path) -> None:
    """It is 503 with a time, not 500: the store is tried all the time, and the next one may be stored."""
    async with opened(tmp_path, [tool("a")]) as there, plain_client(base_url=there.base) as client:
        headers = {"authorization": f"Bearer {operator_token(there.gateway.settings)}"}
        with full_disk():
            refused = await client.post("/api/v1/approvals/block", json={"name": "s:a"}, headers=headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5"), refused.text
        assert refused.json()["error"]["retry_after_s"] == 5.0
        await there.gateway.catalog.refresh()
        taken = await client.post("/api/v1/approvals/block", json={"name": "s:a"}, headers=headers)
        assert taken.status_code == 200


async def test_a_disk_that_is_nearly_full_is_told_before_a_decision_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the reasons why answers are worse, as of the next heartbeat, and no longer once there is room."""
    async with opened(tmp_path, [tool("a")]) as there:
        catalog, tight = there.gateway.catalog, shutil.disk_usage(tmp_path)._replace(free=15 * 1024 * 1024)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: tight)
            await catalog.heartbeat()
            (told,) = there.gateway.status().degraded
        assert "nearly full" in told and told.endswith("Free some disk space.")
        await catalog.heartbeat()
        assert there.gateway.status().degraded == ()
