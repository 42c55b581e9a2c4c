"""`mcpproxy completion`: scripts by which shells complete commands, options and names.

Refused: *cyclopts' own completion* (5.5.2). In bash it completes nothing behind a colon, which every tool's name has.
Its scripts hold the grammar, 44 to 60 kB against 0.5 kB here, and are out of date after an upgrade; without them its
answer for the first word takes 1.4 s of processor time, and this 0.6 s.
"""

from typing import Literal

from cyclopts import App

from smart_mcp_proxy.cli.support.output import show

app = App(
    name="completion",
    help_epilogue="""\
Examples:
  mcpproxy completion bash > ~/.local/share/bash-completion/completions/mcpproxy
  mcpproxy completion fish > ~/.config/fish/completions/mcpproxy.fish
  source <(mcpproxy completion zsh)

Names come from the server file and the stored catalog; nothing is started.""",
)

# Bash breaks words at colons, which tool names have: what stands before the last one is there already.
_BASH = """\
_mcpproxy() {
    local line="${COMP_LINE:0:COMP_POINT}" cur before
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur="${words[${#words[@]}-1]}"
    local IFS=$'\\n'
    COMPREPLY=($(mcpproxy completion candidates -- "${words[@]:1}" 2>/dev/null))
    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
        before="${cur%"${cur##*:}"}"
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
}
complete -o default -F _mcpproxy mcpproxy smart-mcp-proxy"""
_ZSH = """\
#compdef mcpproxy smart-mcp-proxy
_mcpproxy() {
    local -a found
    found=("${(@f)$(mcpproxy completion candidates -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
if [[ $funcstack[1] == _mcpproxy ]]; then _mcpproxy "$@"; else compdef _mcpproxy mcpproxy smart-mcp-proxy; fi"""
_FISH = """\
function __mcpproxy_candidates
    set -l words (commandline -opc) (commandline -ct)
    mcpproxy completion candidates -- $words[2..] 2>/dev/null
end
complete -c mcpproxy -a '(__mcpproxy_candidates)'
complete -c smart-mcp-proxy -a '(__mcpproxy_candidates)'"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script by which bash, zsh or fish completes commands and names.

    Args:
        shell: bash, zsh or fish.
    """
    show(_SCRIPTS[shell])
