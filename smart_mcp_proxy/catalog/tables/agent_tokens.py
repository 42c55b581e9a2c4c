"""SQL of tokens of agents, with their reach, and of gateways; of each only its hash is stored."""

import json
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec
from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select, update

from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.tables.schema import agent_tokens, approval_votes, gateway_tokens
from smart_mcp_proxy.catalog.tables.sealed import read_trust, store_trust
from smart_mcp_proxy.catalog.tables.upsert import replace_columns
from smart_mcp_proxy.models import CallVariant, Role

TokenKind = Literal["agents", "operator"]
"""Whose token it is that a gateway made for itself."""
GATEWAY_TOKEN_LIFE_S: Final = 86_400.0
"""A gateway that has not confirmed its token for so long is gone, and who holds that has no right any more."""


class AgentToken(msgspec.Struct, frozen=True):
    """A token that an operator made for an agent. Times are in seconds since the epoch.

    Attributes:
        name: Chosen by the operator; of the tokens that are not revoked no two have the same.
        hash: Hex SHA-256 of the token.
        created_s: When it was made.
        expires_s: When it ends; None for never.
        servers: The servers it reaches; None for all.
        access: The most that a tool called with it may do.
        profile: The profile it is held to; None for none.
        id: Never reused; 0 before it is stored.
        last_used_s: When it was last used; None for never.
        revoked_s: When it was revoked; None while it is not.
        role: What its holder may do at the page and over REST; None for nothing.
        made_by: Id of the signed-in person who made it; empty for the gateway's user and the operator's token.
        is_altered: Whether its row does not carry the gateway's seal; then it opens nothing, whatever the row says.
    """

    name: str
    hash: str
    created_s: float
    expires_s: float | None
    servers: tuple[str, ...] | None = None
    access: CallVariant = "read"
    profile: str | None = None
    id: int = 0
    last_used_s: float | None = None
    revoked_s: float | None = None
    role: Role | None = None
    made_by: str = ""
    is_altered: bool = False

    def __repr__(self) -> str:  # without the hash
        return f"<AgentToken {self.name}>"

    @property
    def principal_id(self) -> str:
        """By which logs and sessions know its holder."""
        return f"agent-{self.id}"


TOKEN_COLUMNS: Final = (
    *("id", "name", "hash", "servers", "access", "profile", "created_s", "expires_s", "role", "made_by"),
)
"""Columns that the seal of a token covers; that it was revoked stands in `SealedTrust`."""


def store(connection: Connection, token: AgentToken, seals: Seals) -> bool:
    """Adds a token; False if one that is not revoked has its name."""
    same = select(agent_tokens.c.id).where(agent_tokens.c.name == token.name, agent_tokens.c.revoked_s.is_(None))
    if connection.execute(same).first() is not None:
        return False
    kept = {name: getattr(token, name) for name in TOKEN_COLUMNS if name != "id"}
    servers = None if token.servers is None else json.dumps(token.servers)
    row = insert(agent_tokens).values(kept | {"servers": servers})
    id_ = connection.execute(row.returning(agent_tokens.c.id)).scalar_one()
    is_it = agent_tokens.c.id == id_
    values = connection.execute(select(*(agent_tokens.c[name] for name in TOKEN_COLUMNS)).where(is_it)).one()
    connection.execute(update(agent_tokens).where(is_it).values(seal=seals.seal("token", *values)))
    return True


def find(connection: Connection, seals: Seals, good_at_s: float | None = None) -> tuple[AgentToken, ...]:
    """Tokens, oldest first: those that are good at a time, or all that were ever made.

    Those whose rows do not carry their seals are among them, as `is_altered`.
    """
    wanted = select(agent_tokens).order_by(agent_tokens.c.id)
    if good_at_s is not None:  # of the others there may be any number, and who follows them looks every second
        is_running = or_(agent_tokens.c.expires_s.is_(None), agent_tokens.c.expires_s > good_at_s)
        wanted = wanted.where(agent_tokens.c.revoked_s.is_(None), is_running)
    rows = connection.execute(wanted).all()
    trust = read_trust(connection, seals) if rows else None
    revoked = {} if trust is None or trust.revoked is None else trust.revoked
    if trust is not None:
        seals.see_edition(trust.edition)
    tokens = []
    for row in rows:
        is_sealed = trust is not None and seals.fits(row.seal, "token", *(row._mapping[name] for name in TOKEN_COLUMNS))
        held = {name: value for name, value in row._mapping.items() if name != "seal"}
        if is_sealed and (row.revoked_s is not None or row.id not in revoked):
            servers = None if row.servers is None else tuple(json.loads(row.servers))
            tokens.append(AgentToken(**{**held, "servers": servers}))
        else:
            nothing = {"servers": (), "access": "read", "profile": None, "role": None, "is_altered": True}
            tokens.append(AgentToken(**held | nothing))
    return tuple(tokens)


def revoke(connection: Connection, name: str, now_s: float, seals: Seals) -> bool:
    """Ends the token of that name for good; False if there is none that is not revoked.

    What its holder has approved and still needs others' approval counts no longer.
    """
    is_it = (agent_tokens.c.name == name) & agent_tokens.c.revoked_s.is_(None)
    ended = connection.execute(select(agent_tokens).where(is_it)).all()
    connection.execute(update(agent_tokens).where(is_it).values(revoked_s=now_s))
    for row in ended:  # one that a person made votes as that person, under its own name
        is_made = and_(approval_votes.c.person == row.made_by, approval_votes.c.shown == row.name)
        connection.execute(delete(approval_votes).where(is_made | (approval_votes.c.person == f"agent-{row.id}")))
    if ended and (trust := read_trust(connection, seals)) is not None:
        revoked = {id_: ends_s for id_, ends_s in (trust.revoked or {}).items() if ends_s is None or ends_s > now_s}
        for row in ended:
            is_sealed = seals.fits(row.seal, "token", *(row._mapping[name] for name in TOKEN_COLUMNS))
            revoked[row.id] = row.expires_s if is_sealed else None
        store_trust(connection, seals, trust._replace(revoked=revoked))
    return bool(ended)


def note_use(connection: Connection, used: Mapping[int, float]) -> None:
    """Store when tokens were last used, by id; a later use that another process has stored stays."""
    last_s = agent_tokens.c.last_used_s
    is_later = or_(last_s.is_(None), last_s < bindparam("at_s"))
    row = update(agent_tokens).where(agent_tokens.c.id == bindparam("token"), is_later)
    uses = [{"token": id_, "at_s": at_s} for id_, at_s in used.items()]
    connection.execute(row.values(last_used_s=bindparam("at_s")), uses)


class GatewayToken(NamedTuple):
    """A token that a gateway made for itself.

    Attributes:
        kind: Whose it is.
        replica: The gateway that made it; of each kind it has one.
        digest: Hex SHA-256 of the token.
    """

    kind: TokenKind
    replica: str
    digest: str


def confirm_gateway_tokens(
    connection: Connection, replica: str, digests: Mapping[TokenKind, str], now_s: float
) -> None:
    """Store the digests of all tokens that a gateway made, and drop those that nobody confirms any more."""
    made = gateway_tokens.c
    age_s = func.abs(made.confirmed_s - now_s)
    is_other = and_(made.replica == replica, made.kind.not_in(list(digests)))
    connection.execute(delete(gateway_tokens).where(or_(is_other, age_s >= GATEWAY_TOKEN_LIFE_S)))
    confirmed = replace_columns(connection, gateway_tokens, "digest", "confirmed_s")
    for kind, digest in sorted(digests.items()):
        row = {"kind": kind, "replica": replica, "digest": digest, "confirmed_s": now_s}
        connection.execute(confirmed, row)


def find_gateway_tokens(connection: Connection, now_s: float) -> tuple[GatewayToken, ...]:
    """The tokens that gateways made and have confirmed within a day.

    A time far in the future confirms nothing.
    """
    made = gateway_tokens.c
    wanted = select(made.kind, made.replica, made.digest)
    rows = connection.execute(wanted.where(func.abs(made.confirmed_s - now_s) < GATEWAY_TOKEN_LIFE_S))
    return tuple(GatewayToken(*row) for row in rows)
