"""Variants of query words in a catalog: synonyms, compounds, slips of the pen."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence, Set
from copy import copy
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.search.text import is_one_slip, terms

_SPELLINGS = """
    admin administrator, api endpoint, app application, arg argument, async asynchronous, auth authentication,
    authorise authorize authz, avg average mean, catalog catalogue, cfg conf config configuration, cmd command,
    col column, colour color, conn connection, coord coordinate, creds credential, ctx context,
    crypto cryptocurrency, db database, del delete, dep dependency, desc description, dest destination,
    dev development, dir directory folder, dist distribution, doc documentation, doc document, docx word,
    email mail, env environment, err error, exec execute, ext extension, favourite favorite,
    fn func function, freq frequency, geo geographic, gh github, grey gray, id identifier, img image,
    impl implementation, info information, init initialize initialise, js javascript, k8s kubernetes kube,
    kb knowledge, lang language, lib library, licence license, loc location, max maximum, md markdown,
    metadata meta, mgmt management, min minimum, ml machine, mongo mongodb, msg message, num number, obj object,
    opt option, org organization organisation, param parameter, pct percent percentage, pg postgres postgresql,
    pic picture photo photograph, pkg package, pos position, postcode zip postal zipcode, ppt powerpoint pptx,
    pref preference, prod production, prog programme program, proj project, pwd password, py python,
    qty quantity, ref reference, regex regexp, repo repository, req request, res resource, spec specification,
    stat statistic, sub subscription, svc service, sync synchronize synchronise, temp temperature,
    temp temporary, tmp temporary, ts typescript, txt text, tz timezone, url link, usr user, val value,
    var variable, vid video, vm virtual, vuln vulnerability, xls xlsx excel, yml yaml, analyse analyze,
    optimise optimize, organise organize, normalise normalize, summarise summarize, visualise visualize,
    customise customize, categorise categorize, centre center, behaviour behavior, metre meter, theatre theater,
    tonne ton, cheque check
"""
"""Abbreviations, British and American spelling, formats and what they are called."""

_MEANINGS = """
    delete remove erase drop destroy discard, clear purge empty reset, get fetch retrieve obtain,
    read get load view, find search lookup query locate, list show display enumerate, show get view display,
    create make add new generate, build make generate construct, add insert append attach,
    write create save store, save store keep persist, update change edit modify adjust,
    set update configure assign, send post deliver transmit, start begin launch run, run execute invoke trigger,
    stop end halt terminate kill, cancel abort revoke, pause suspend, resume continue unpause,
    rename name retitle, move relocate transfer, copy duplicate clone replicate, convert transform turn change,
    compare diff difference, merge combine join concatenate, split divide separate chunk, sort order rank,
    calculate compute evaluate, sum add total plus, subtract minus, check verify validate test,
    analyze examine inspect study, review inspect audit, book reserve schedule, upload put push,
    download save pull grab, share publish, publish release deploy, summarize summary overview,
    explain describe, extract parse pull, scrape crawl extract, browse navigate visit open, install setup add,
    connect attach join, disconnect detach, enable activate, disable deactivate, lock freeze block,
    open launch, close shut, buy purchase order, sell trade, pay payment spend, reply respond answer comment,
    ask question query, notify notification alert, monitor watch track, draw sketch paint render,
    plot chart graph visualize, diagram flowchart chart, picture image photo, icon logo svg,
    video movie film clip, audio sound voice, song track music, speak speech voice tts say,
    transcript subtitle caption, draft compose write, folder directory path, file document,
    repository project codebase, code source program script, bug issue defect, ticket issue,
    error exception failure crash, log history record, user account member person, people user contact person,
    customer client contact, team group, role permission, permission access right, calendar schedule agenda,
    event meeting appointment, task todo, note memo, page webpage website site, web internet online,
    link url address, browser chrome web, screenshot capture snapshot, location place position,
    near nearby around close, map geography, route directions navigation path, distance far,
    weather forecast climate, rain precipitation weather, warning alert, price cost rate,
    money currency cash balance fund, exchange convert rate, stock share equity ticker,
    portfolio holding investment, company business firm organization, profit earnings income,
    paper article publication preprint study, scholarly academic scientific research, literature paper book,
    news headline article, author writer, spreadsheet excel sheet workbook, presentation powerpoint slide deck,
    table sheet grid, table collection, column field, row record entry, schema structure,
    command terminal shell, terminal shell console bash, function method procedure, variable parameter,
    configuration setting option preference, password secret credential, token key credential, container docker,
    pod container, cluster kubernetes, instance server machine vm, server host machine, computer machine device,
    disk storage volume, memory ram, cloud azure, hotel accommodation lodging, restaurant food dining,
    recipe cooking meal, flight airline plane, trip travel journey itinerary vacation, train railway rail,
    car vehicle, job position vacancy career, employee staff worker, invoice bill, receipt invoice,
    discount coupon, product item article, shop store, order purchase, tweet twitter, post publish message,
    friend follower contact, channel room, chat conversation message, feedback comment review,
    rating score rank, tag label category, version release revision, commit change, branch version, pull merge,
    build compile, status state progress, health status, number count amount quantity many,
    latest recent newest last new, trending popular hot top, statistics metric analytics stats, report summary,
    performance speed, random shuffle, time clock hour, date day calendar, past history historical,
    future forecast predict, definition meaning dictionary, synonym thesaurus, idea brainstorm, plan goal,
    health medical, disease condition, drug medication medicine, doctor physician, gene protein,
    chemical compound molecule, game play, player athlete, match game, team club, school course education,
    student learner, lesson course, exam test quiz, verse scripture, wallet account, coin token cryptocurrency,
    blockchain chain network, transaction transfer payment, law legal, test trial, backup restore,
    template pattern, theme style, component widget element, button element, font text, layout design,
    animation motion
"""
"""Verbs and nouns that users and authors of tools use for one another. A word may stand in several groups; groups are
not joined through it, so `order` meets `sort` and `buy`, but these do not meet each other."""

_SYNONYM = 0.5
"""Weight of a match by synonym: half, so that the tool that says the very word comes first."""

SYNONYM_TERMS = 8
"""Queries of more terms are not met by synonyms: a long request has other words that tell its tool apart, and meets
synonyms by chance. Against half as much with each doubling of the terms, recall@5 of three query sets gained 0.003 to
0.006."""

COMPOUND = 0.8
"""Weight of `file system` for `filesystem` and the other way round: nearly the same, but not always."""

_SLIP = 0.5
"""Weight of a word that differs in one letter: it may be another word."""

_FEW = 16
"""Terms that are looked up one by one among all with their first letter, which takes a fraction of a look at each."""
_SLIP_LETTERS = 5
"""Shorter words have too many neighbours at one letter's distance."""

_SHAPE_BITS = 32

_PART_LETTERS = 3
"""The shortest part of a compound."""


def _group_words(*texts: str) -> dict[str, tuple[str, ...]]:
    others: dict[str, dict[str, None]] = {}
    for group in ",".join(texts).split(","):
        words = [terms(word)[-1] for word in group.split()]  # the last term is the word as a whole: k8s
        for word in words:
            others.setdefault(word, {}).update(dict.fromkeys(other for other in words if other != word))
    return {word: tuple(found) for word, found in others.items()}


_OTHERS = _group_words(_SPELLINGS, _MEANINGS)


def same_in_meaning(term: str) -> tuple[str, ...]:
    """The terms that may stand for `term`, most of the time; empty if none is known."""
    return _OTHERS.get(term, ())


class Variant(NamedTuple):
    """Known terms that together replace a term, and the weight of a match, in (0, 1)."""

    terms: tuple[str, ...]
    factor: float


class _Letters(NamedTuple):
    """Terms of one first letter, and the shape of each, see `_shape`."""

    terms: list[str]
    shapes: NDArray[np.uint64]


class Vocabulary:
    """The terms of a catalog for fuzzy look-up. Immutable: `replace_terms` returns the next one.

    Args:
        known: Terms by which tools can be found; must not change any more.
    """

    def __init__(self, known: Mapping[str, object]) -> None:
        self._known = known
        self._by_initial = _with_terms({}, known)

    def replace_terms(self, known: Mapping[str, object], touched: Collection[str]) -> "Vocabulary":
        """The vocabulary of `known`, for the cost of what is new or gone in it.

        Args:
            known: Terms as before, likewise.
            touched: Each once: all that may be new or gone.
        """
        following = copy(self)
        following._known = known
        kept = _without_terms(self._by_initial, {term for term in touched if term in self._known and term not in known})
        following._by_initial = _with_terms(kept, (term for term in touched if term not in self._known))
        return following

    def variants(self, term: str, *, has_synonyms: bool = True) -> list[Variant]:
        """Variants of `term`: synonyms if wanted; parts of a compound, else a slip, if it is unknown."""
        others = same_in_meaning(term) if has_synonyms else ()
        found = [Variant((other,), _SYNONYM) for other in others if other in self._known]
        if term not in self._known:
            found += [Variant(parts, COMPOUND) for parts in _parts(term, self._known)]
            found = found or [Variant((other,), _SLIP) for other in self._one_slip_away(term)]
        return found

    def _one_slip_away(self, term: str) -> Iterable[str]:
        """Known terms with the same first letter and one letter more, less, changed, or swapped."""
        if len(term) < _SLIP_LETTERS or not _is_word(term) or (near := self._by_initial.get(term[0])) is None:
            return []
        # One slip changes the set of letters by at most two; by one, where it changes the length by one.
        is_near = np.bitwise_count(near.shapes ^ np.uint64(_shape(term))) <= 2
        return [other for at in is_near.nonzero()[0].tolist() if is_one_slip(term, other := near.terms[at])]


def find_compounds(words: Sequence[str], known: Container[str]) -> dict[str, list[str]]:
    """The words of a query that make a known compound with their neighbour, with these compounds."""
    found: dict[str, list[str]] = {}
    for pair in pairwise(words):
        if (compound := "".join(pair)) not in known and not compound.endswith("e"):
            continue  # as nearly always
        for compound in form_compounds(*pair):
            if compound in known:
                for term in pair:
                    found.setdefault(term, []).append(compound)
    return found


def form_compounds(first: str, second: str) -> tuple[str, ...]:
    """Terms that two neighbours may form as one word, `web` and `page` for example webpage."""
    compound = first + second
    # The stemmer drops a final e from longer words only.
    return (compound, compound[:-1]) if compound.endswith("e") else (compound,)


def _parts(term: str, known: Container[str]) -> Iterable[tuple[str, str]]:
    cuts = range(_PART_LETTERS, len(term) - _PART_LETTERS + 1)
    return [(term[:at], term[at:]) for at in cuts if term[:at] in known and term[at:] in known]


def _is_word(term: str) -> bool:
    return term.isascii() and term.isalpha()


def _by_initials(terms: Iterable[str]) -> dict[str, list[str]]:
    """Group the terms that a slip may lead to by first letter."""
    words: dict[str, list[str]] = {}
    for term in terms:
        if len(term) >= _SLIP_LETTERS - 1 and _is_word(term):
            words.setdefault(term[0], []).append(term)
    return words


def _with_terms(by_initial: Mapping[str, _Letters], new: Iterable[str]) -> dict[str, _Letters]:
    """The table with more terms; 20 ms for 30,000 of them."""
    table = dict(by_initial)
    for initial, entering in _by_initials(new).items():
        more = _Letters(entering, np.fromiter(map(_shape, entering), np.uint64, len(entering)))
        if (old := table.get(initial)) is not None:
            more = _Letters([*old.terms, *entering], np.concatenate((old.shapes, more.shapes)))
        table[initial] = more
    return table


def _without_terms(by_initial: Mapping[str, _Letters], gone: Set[str]) -> dict[str, _Letters]:
    """The table with fewer terms."""
    table = dict(by_initial)
    for initial, leaving in _by_initials(gone).items():
        old = table.pop(initial)
        if len(leaving) <= _FEW:
            places = [old.terms.index(term) for term in leaving]
        else:
            places = [at for at, term in enumerate(old.terms) if term in gone]
        if len(places) < len(old.terms):
            staying = old.terms.copy()
            for at in sorted(places, reverse=True):
                del staying[at]
            table[initial] = _Letters(staying, np.delete(old.shapes, places))
    return table


def _shape(term: str) -> int:
    """A bit for each letter in a term, and as many further ones as it has letters, up to 32."""
    bits = (1 << min(len(term), _SHAPE_BITS)) - 1 << _SHAPE_BITS
    for letter in term:
        bits |= 1 << (ord(letter) & _SHAPE_BITS - 1)
    return bits
