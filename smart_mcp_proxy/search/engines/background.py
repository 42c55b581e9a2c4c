"""Background frequencies of words in tool definitions, before the first tool is indexed."""

USUAL_TOOLS = 2_000
"""How many tools the background stands for: in a small catalog it says what is rare, in a large one the tools do."""

_RARE = 1 / 400
"""The share of tools that hold a word that is not listed; the rarest listed ones are in one of 362."""

_ONE_IN = {
    2: "get mcp server",
    4: "id list name return use",
    8: "1 api arg data default detail e file g includ inform number option queri search specif tool type",
    16: """
        address avail base code contain content creat current descript document exampl fetch filter format identifi
        integr key limit maximum new not onli page paramet path project provid request result retriev s set specifi
        start string text token updat url user valu
    """,
    32: """
        0 2 3 4 5 access account add ai analyz array befor browser call case check collect complet configur context
        count crypto databas date delet dictionari directori each end error etc execut exist field find first full
        function generat given googl group imag index info input item json languag like local locat map market match
        max messag metadata model more multipl must network no object one open oper order output pagin per perform
        price read relat requir respons run servic size sourc status str support symbol system tabl target task time
        titl true uniqu valid version whether within
    """,
    64: """
        across action activ addit advanc after agent allow amount analysi app appli applic argument ask authent
        automat b balanc be best between block cach calcul categori chain chang clear client com command common
        compon comprehens connect contract control convert correct cursor custom d day dd de deploy destin dict
        direct display doc download element email empti encod endpoint ensur environ event exact exchang extract
        fals featur flow folder follow found game git h hash help histori host html https hub import indic initi
        instanc issu k keyword label larg last latest level link log look make manag markdown may memori mm mode
        most multi need next node note obtain offset organiz other pair param pattern point port posit post previous
        process product prompt properti python question rang recent recommend refer relev remot remov repo report
        repositori resourc save schema script second select send separ session show singl sort space stat state
        statist step store structur summari t tag term test than through timeout timestamp top topic total track
        trade transact two ui understand up usag usernam variabl verifi via view visual volum web without word work
        x year yyyi
    """,
    128: """
        absolut against alreadi also alway anoth articl associ attribut author back basic bodi both c cannot chart
        citi column combin comma comment compar complex config confirm consid creation criteria currenc defin
        definit detect determin develop differ domain edit effect either en enabl entir entri essenti evalu exclud
        explain explicit explor express extens fail focus general github global guid height high histor http insight
        instead instruct int interval iso just length librari line llm load lookup m main method metric might min
        minimum modifi month n natur navig news non num omit onc optim origin over overview owner pars pass password
        period person place platform play power prefix problem profil progress public random rank rate re real
        reason record repres role root same sampl secur see short sinc skip snippet sql standard statement stop
        storag style success such suggest summar syntax take templat trend tri uri various video wait weather write
        y z
    """,
    256: """
        accept auth better build charact close color convers depth durat estim graph ignor insert mani own prefer
        raw rule simpl think upload warn week
    """,
}
"""Stems of words by how many tools there are to one that holds them, in powers of two: counted over 4,450 public tool
definitions of 570 servers, parameters included, each server counted with at most 20 tools; only those of 15 servers
or more, so names of products are not among them."""

_COUNT = {stem: USUAL_TOOLS / one_in for one_in, stems in _ONE_IN.items() for stem in stems.split()}


def usual_count(term: str) -> float:
    """In how many of `USUAL_TOOLS` tools a term is expected, > 0."""
    return _COUNT.get(term, USUAL_TOOLS * _RARE)
