"""Words that mean much the same where tools are described: a small general thesaurus, written by hand."""

from smart_mcp_proxy.search.text import terms

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


def _read(*texts: str) -> dict[str, tuple[str, ...]]:
    others: dict[str, dict[str, None]] = {}
    for group in ",".join(texts).split(","):
        words = [terms(word)[-1] for word in group.split()]  # the last term is the word as a whole: k8s
        for word in words:
            others.setdefault(word, {}).update(dict.fromkeys(other for other in words if other != word))
    return {word: tuple(found) for word, found in others.items()}


_OTHERS = _read(_SPELLINGS, _MEANINGS)


def same_in_meaning(term: str) -> tuple[str, ...]:
    """The terms that may stand for `term`, most of the time; empty if none is known."""
    return _OTHERS.get(term, ())
