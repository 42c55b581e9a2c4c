"""Places of a system, as data: what every program reads, where runtimes are, what may hold secrets."""

from typing import Final

SYSTEM: Final = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/snap", "/home/linuxbrew/.linuxbrew",
    "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives", "/etc/fonts",
    "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf",
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
    "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/mime.types", "/etc/os-release",
    "/etc/debian_version", "/etc/lsb-release", "/etc/gitconfig", "/etc/npmrc", "/etc/pip.conf", "/etc/uv",
    "/etc/java", "/etc/chromium", "/etc/chromium.d", "/etc/terminfo", "/etc/static",
    "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version", "/proc/sys",
    "/proc/filesystems", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip
"""Files and folders that programs of every kind read. Of `/proc` no process: others' arguments may hold secrets."""
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PRIVATE: Final = frozenset({"/proc", "/dev/shm"})
"""Folders of which each sandbox of bubblewrap has its own. Landlock opens those of all programs, or none."""
RUNTIMES: Final = (
    ("PYENV_ROOT", ".pyenv", ""),
    ("PYTHONUSERBASE", ".local", "lib"),
    ("NVM_DIR", ".nvm", ""),
    ("VOLTA_HOME", ".volta", ""),
    ("FNM_DIR", ".local/share/fnm", ""),
    ("ASDF_DATA_DIR", ".asdf", ""),
    ("MISE_DATA_DIR", ".local/share/mise", ""),
    ("RUSTUP_HOME", ".rustup", ""),
    ("PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", ""),
    ("PUPPETEER_CACHE_DIR", ".cache/puppeteer", ""),
)
"""Variable that names it, the place in the home where it is otherwise, and the part of it that is read."""
INSTALLATION_MARKS: Final = ("pyvenv.cfg", "lib/python*", "lib/node_modules", "conda-meta")
"""Files and folders beside the `bin` of an installation; other folders of programs may have secrets beside them."""
GROWING: Final = (".local/share/uv/python",)
"""Places in the home with versions of a runtime: those there are read, others come into the private home."""
_CREDENTIAL: Final = rb"(?i)_auth|password|passwd|token|secret|credential|://[^/\s'\"]*@"
_GIT_CREDENTIAL: Final = (
    rb"(?i)extraheader|password|(?:pass|passwd|token|secret|api_?key)[ \t]*=|"
    rb"://[^/\s'\":@]*(?::[^/\s'\"@]|[^/\s'\":@]{20})[^/\s'\"]*@"
)
"""A helper that keeps credentials elsewhere is none; a user in an address is one where it is as long as a token."""
RUNNER_FILES: Final = (
    ("NPM_CONFIG_USERCONFIG", ".npmrc", _CREDENTIAL),
    ("UV_CONFIG_FILE", ".config/uv/uv.toml", _CREDENTIAL),
    ("PIP_CONFIG_FILE", ".config/pip/pip.conf", _CREDENTIAL),
    ("GIT_CONFIG_GLOBAL", ".gitconfig", _GIT_CREDENTIAL),
)
"""Variable that names it, where it is in the home, and what must not be in it: read for where to download from."""
FILE_VARIABLE: Final = r"(?i)\w*(?:CERT|CA_BUNDLE|CAFILE|FIND_LINKS)\w*|NVM_DIR|UV_PYTHON\w*|UV_TOOL_DIR"
"""Variables that may name files and folders which a program reads to find its way."""
LEFT_OUT: Final = r"(?i)XDG_(?:CACHE|CONFIG|DATA|STATE)_HOME|XDG_RUNTIME_DIR|(?:UV|PIP|npm_config)_CACHE(?:_DIR)?"
"""Variables that lead to folders which all programs of the user share: the private home has each of them."""
OF_PROGRAMS: Final = r"(?s)\..*|snap|Library"
"""Entries of a home in which programs keep what is theirs: keys, cookies, profiles of browsers."""
OF_THE_HOST: Final = r"PATH|SHELL|USER|LOGNAME|NVM_DIR|UV_\w*PYTHON\w*|UV_TOOL_DIR|PIP_PYTHON|XDG_\w+"
"""Variables that mean nothing in a container, which has programs of its own."""
STEERS_ENGINES: Final = (
    r"(?i)PATH|HOME|TMPDIR|XDG_\w+|LD_\w+|GO\w+|SSL_CERT_\w+|\w+_PROXY|"
    r"\w*(?:DOCKER|CONTAINER|PODMAN|BUILDAH|STORAGE|REGISTR)\w*|SSH_\w+|DBUS_\w+|.*\*"
)
"""Variables by which an engine finds its service, images and itself; a star means several to podman."""
