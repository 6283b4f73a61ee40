"""Programs that run none of the names and texts that they are given."""

from __future__ import annotations

from typing import Final

READERS: Final = frozenset(
    "[ [[ : basename cal cat cd cksum cmp column comm cut dirname du df echo egrep expand expr false fgrep fmt"
    " fold free getconf grep groups head hexdump id join jq ls md5sum nl nproc od paste pr printf pwd readlink"
    " realpath rev seq sha1sum sha224sum sha256sum sha384sum sha512sum stat strings sum tac tail test tr true tsort"
    " tty type uname unexpand uptime users wc whereis which who whoami".split()
)
"""Without any option that does more than read."""

HARMLESS: Final = frozenset(
    "alias apk b2sum base32 base64 basename bunzip2 bzip2 cal cd chattr chgrp chmod chown cksum clear cp csplit"
    " curl date dd df diff diff3 dirs dnf dos2unix dpkg du eject exit export fallocate false file fsck getfacl"
    " groups gunzip gzip head help history hostname id info join kill killall less ln local locale locate logger login"
    " lsblk lscpu lsof lspci man md5 mkdir mkfifo mknod mktemp mount mv nl nslookup pacman passwd patch pgrep ping pkg"
    " pkill popd port pr printenv ps pushd pwd read readarray readonly return rmdir scoop seq set setfacl"
    " sha1sum shift shred shuf sleep split sum sync tac tail tee test top touch tput tr trash tree truncate tsort"
    " type ulimit umask umount unalias uname uniq unlink unset unxz unzip uptime useradd usermod vdir wait whatis"
    " whereis which whoami winget xz yes yum zcat zgrep zypper :".split()
)
"""Programs that take names and texts and run none of them, beside those that only read and those with a table."""

CHECKERS: Final = frozenset(
    "autoflake autopep8 bandit biome black buildifier clang-format clang-tidy cloc code codespell convert"
    " cppcheck cspell csslint ctags dos2unix ffmpeg ffprobe gh git-lfs glab goimports gofmt gofumpt hadolint"
    " helm htmlhint identify isort jscpd jsonlint ktlint license magick mdformat open oxlint"
    " pdftotext pycodestyle pydocstyle pyflakes pyright pyupgrade radon refurb revive rg ruff rustfmt sass scc semgrep"
    " shellcheck shfmt sops sqlfluff staticcheck stylua swiftformat swiftlint tflint tokei ty typos unix2dos vale"
    " vulture xdg-open xmllint yamlfmt yamllint yapf yq zstd".split()
)
"""Programs that look at the code that they are given, write it anew or send it, and do not run it."""
