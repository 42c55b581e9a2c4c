"""Demo server `contacts`: an address book of invented people, kept in memory while the server runs."""

from contextlib import nullcontext
from typing import Any

from smart_mcp_proxy.demo.records import Records
from smart_mcp_proxy.demo.tool import Server, Tool, integer, items, string

__all__ = ["SERVER"]

_PEOPLE = (
    ("Amara Okafor", "amara@example.com", "+1 555 0100", "Northwind Bakery"),
    ("Jonas Lindqvist", "jonas@example.com", "+1 555 0101", "Harbor Logistics"),
    ("Mei Tanaka", "mei@example.com", "+1 555 0102", "Northwind Bakery"),
    ("Rafael Souza", "rafael@example.com", "+1 555 0103", "Cedar Clinic"),
)


def add_contact(contacts: Records, name: str, email: str, phone: str, company: str) -> dict[str, Any]:
    """Keeps a new contact."""
    return contacts.add(name=name, email=email, phone=phone, company=company)


def find_contacts(contacts: Records, query: str) -> dict[str, Any]:
    """The contacts in whose fields a text occurs."""
    wanted = query.lower()
    return {
        "contacts": [
            contact for contact in contacts if wanted in " ".join(map(str, list(contact.values())[1:])).lower()
        ]
    }


def get_contact(contacts: Records, id: int) -> dict[str, Any]:
    """One contact."""
    return contacts.get(id)


def update_contact(contacts: Records, id: int, field: str, value: str) -> dict[str, Any]:
    """Replaces one field of a contact."""
    contact = contacts.get(id)
    contact[field] = value
    return contact


def export_vcard(contacts: Records, id: int) -> str:
    """A contact as a vCard. Source: RFC 6350."""
    contact = contacts.get(id)
    lines = ["BEGIN:VCARD", "VERSION:4.0"]
    for key, field in (("FN", "name"), ("EMAIL", "email"), ("TEL", "phone"), ("ORG", "company")):
        if contact[field]:
            lines.append(f"{key}:{_escaped(contact[field])}")
    return "\r\n".join([*lines, "END:VCARD", ""])


def delete_contact(contacts: Records, id: int) -> str:
    """Forgets a contact."""
    return f"Deleted contact {id}, {contacts.delete(id)['name']}."


def _escaped(value: str) -> str:
    for character in "\\,;":
        value = value.replace(character, "\\" + character)
    return value.replace("\n", "\\n")


def _address_book() -> nullcontext[Records]:
    contacts = Records("contact")
    for name, email, phone, company in _PEOPLE:
        add_contact(contacts, name, email, phone, company)
    return nullcontext(contacts)


_ID = integer("Number of the contact", minimum=1)
_FIELDS = {
    "name": string("Full name", minLength=1, maxLength=200),
    "email": string("E-mail address", maxLength=200),
    "phone": string("Telephone number", maxLength=200),
    "company": string("Employer", maxLength=200),
}
_CONTACT = {"id": integer("Number of the contact"), **_FIELDS}

SERVER = Server(
    instructions="An address book that starts with invented people. Changes are forgotten when the server stops.",
    open=_address_book,
    tools=(
        Tool(
            add_contact,
            title="Add a contact",
            description="Add a person to the address book.",
            parameters={
                name: schema if name == "name" else {**schema, "default": ""} for name, schema in _FIELDS.items()
            },
            output=_CONTACT,
            effect="write",
        ),
        Tool(
            find_contacts,
            title="Find contacts",
            description="Look up people in the address book by name, e-mail address, phone number or company.",
            parameters={"query": string("Part of any field, in any case; empty for everyone", default="")},
            output={"contacts": items("In order of their numbers", _CONTACT)},
        ),
        Tool(
            get_contact,
            title="Read a contact",
            description="Read one contact's name, e-mail address, phone number and company.",
            parameters={"id": _ID},
            output=_CONTACT,
        ),
        Tool(
            update_contact,
            title="Update a contact",
            description="Replace one field of a contact, for example a phone number. The old value is lost.",
            parameters={
                "id": _ID,
                "field": string("Which field", enum=list(_FIELDS)),
                "value": string("Its new value", minLength=1, maxLength=200),
            },
            output=_CONTACT,
            effect="destructive",
        ),
        Tool(
            export_vcard,
            title="Export a vCard",
            description="Export a contact as a vCard file (RFC 6350) for other address books.",
            parameters={"id": _ID},
        ),
        Tool(
            delete_contact,
            title="Delete a contact",
            description="Delete a person from the address book for good.",
            parameters={"id": _ID},
            effect="destructive",
        ),
    ),
)
